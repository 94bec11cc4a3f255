"""When each word of a text is heard, from the heads that look at the token that is being spoken.

Owns `WordPath`: a monotonic path of a request's frames through the words of its text, found by dynamic programming.
Leaves which token is of which word to `dualar.text.places`, the attention to the compiled core.

At frame t the heads' attention over the text's tokens (their mean, a softmax) is summed over the tokens of each unit u:
a word, or what stands between two words. The path is the sequence u_0 <= u_1 <= ... with the largest sum of
log p_t(u_t); from one frame to the next it stays, goes on to the next unit, or past one that is no word, which may
take no time at all. A border lies where the frame before it and the one after it share their weight: at b - 0.5 (share
of the later unit in frame b - 1) + 0.5 (share of the earlier one in frame b), in frames.

The heads look at a word also while nothing is heard: before the first word, behind the last one, and in a pause, which
is part of the word in front of it or behind it. So, where the model file names the codes of silent frames
(`dualar.silent_codes`), a word begins behind the silent frames at its start and ends before those at its end.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dualar.text.places import PAUSE, TimedWord, WordMap, token_units

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]

_LEAST = 1e-4  # weight of a unit that the heads do not look at
_LEAST_PAUSE = 3  # silent frames; fewer, inside a text, may be the closure of a stop such as [t], which is of its word
_SURE_FRAMES = 5  # a word is told once the path has left it for so long: what comes later hardly moves it then


class WordPath:
    """The path of one request. `add` takes each frame's attention; `words` tells where the words are so far."""

    def __init__(self, word_map: WordMap) -> None:
        self._map = word_map
        units = token_units(word_map.owners)
        self._owners = [owner for _, _, owner in units]
        self._starts = np.array([first for first, _, _ in units])
        count = len(units)
        # What it costs to come to a unit from two before it: nothing past a pause, else more than anything.
        self._skip = np.full(count, -np.inf)
        self._skip[2:] = [0.0 if owner == PAUSE else -np.inf for owner in self._owners[1:-1]]
        self._waiting: list[Float32] = []  # attention that the path was not led through yet
        self._weights = np.zeros((0, count))  # [frames, units]
        self._scores = np.zeros((0, count))  # of the best path that is at the unit in the frame
        self._steps = np.zeros((0, count), np.int64)  # how many units that path went on from the frame before
        self._told = 0

    def add(self, attention: Float32) -> None:
        """attention float32 [heads, len(owners)] of the position that made a frame."""
        self._waiting.append(attention)  # led through when someone asks: a frame is not to wait for it

    def words(self, *, ended: bool, frames: int | None = None, codes: Int32 | None = None) -> tuple[TimedWord, ...]:
        """All words that were begun. ended: the speech ended by itself, so that all were said. frames: of the first so
        many frames alone, by default all. codes [n]: the main codes of the first n frames, which tell the silent ones;
        the other frames count as heard."""
        units = self._units(ended=ended, frames=frames)
        return self._timed(self._spans(units), self._silent(codes, len(units)))

    def next_words(self, *, last: bool, ended: bool = False, codes: Int32 | None = None) -> tuple[TimedWord, ...]:
        """The words that no earlier call told and that the path has left for good; with `last`, the rest. ended and
        codes: as for `words`."""
        units = self._units(ended=ended, frames=None)
        spans = self._spans(units)
        if not last:
            spans = {owner: span for owner, span in spans.items() if span[1] <= len(units) - _SURE_FRAMES}
        words = self._timed(spans, self._silent(codes, len(units)))
        new, self._told = words[self._told :], max(self._told, len(words))
        return new

    def _catch_up(self) -> None:
        """Lead the path through the frames that wait."""
        if not self._waiting:
            return
        attention = np.stack(self._waiting).mean(axis=1, dtype=np.float64)
        self._waiting = []
        weights = np.add.reduceat(attention, self._starts, axis=1)
        gains = np.log(weights + _LEAST)
        count = weights.shape[1]
        scores, steps = np.empty_like(gains), np.zeros(gains.shape, np.int64)
        behind = np.full(count + 2, -np.inf)  # the last scores, behind two that cannot be
        if len(self._scores):
            behind[2:] = self._scores[-1]
        else:  # the first frame is in the first unit; or in the second, where the first is no word
            behind[2] = 0.0
            behind[3 : 3 + (self._owners[0] == PAUSE)] = 0.0
        for t, gain in enumerate(gains):
            score, step = scores[t], steps[t]
            if len(self._scores) + t == 0:
                score[:] = behind[2:]
            else:
                np.maximum(behind[2:], behind[1:-1], out=score)
                np.greater(behind[1:-1], behind[2:], out=step, casting="unsafe")
                past = behind[:-2] + self._skip
                step[past > score] = 2
                np.maximum(score, past, out=score)
            score += gain
            behind[2:] = score
        self._weights = np.concatenate([self._weights, weights])
        self._scores = np.concatenate([self._scores, scores])
        self._steps = np.concatenate([self._steps, steps])

    def _units(self, *, ended: bool, frames: int | None) -> list[int]:
        """The unit of each frame."""
        self._catch_up()
        count = len(self._scores) if frames is None else min(frames, len(self._scores))
        if count == 0:
            return []
        score, first = self._scores[count - 1], 0
        if ended:  # the last word was said, where there were frames enough to reach it
            last_word = max((u for u, owner in enumerate(self._owners) if owner != PAUSE), default=0)
            first = last_word if np.isfinite(score[last_word:]).any() else 0
        unit = first + int(np.argmax(score[first:]))
        path = [unit]
        for t in range(count - 1, 0, -1):
            unit -= int(self._steps[t, unit])
            path.append(unit)
        return path[::-1]

    def _spans(self, units: list[int]) -> dict[int, tuple[float, float]]:
        """For each word that was begun, by its index: where the path comes to it and where it leaves it, in frames."""
        spans: dict[int, tuple[float, float]] = {}
        start = 0.0
        for frame, unit in enumerate(units):
            goes_on = frame + 1 < len(units) and units[frame + 1] == unit
            if goes_on:
                continue
            end = float(len(units)) if frame + 1 == len(units) else self._border(frame + 1, unit, units[frame + 1])
            owner = self._owners[unit]
            if owner != PAUSE:
                spans[owner] = spans.get(owner, (start, end))[0], end
            start = end
        return dict(sorted(spans.items()))

    def _silent(self, codes: Int32 | None, frames: int) -> Bool:
        """For each frame whether nothing is heard in it."""
        silent = np.zeros(frames, np.bool_)
        if codes is not None:
            known = codes[:frames]
            silent[: len(known)] = np.isin(known, list(self._map.silent_codes))
        return silent

    def _timed(self, spans: dict[int, tuple[float, float]], silent: Bool) -> tuple[TimedWord, ...]:
        rate, text, last = self._map.samples_per_frame, self._map.text, len(self._map.words) - 1
        words = []
        for owner, (begin, end) in spans.items():
            first, behind = self._map.words[owner]
            start, stop = (round(at * rate) for at in _heard(begin, end, silent, owner == 0, owner == last))
            words.append(
                TimedWord(text=text[first:behind], start=first, end=behind, sample_start=start, sample_end=stop)
            )
        return tuple(words)

    def _border(self, frame: int, before: int, after: int) -> float:
        """Where unit `after` begins, in frames: it is the unit of `frame`, `before` that of the one in front of it."""
        late = _share(self._weights[frame - 1], after, before)
        early = _share(self._weights[frame], before, after)
        return frame - 0.5 * late + 0.5 * early


def _heard(begin: float, end: float, silent: Bool, is_first: bool, is_last: bool) -> tuple[float, float]:
    """The part of a word's span that is heard, in frames: without the silent frames at its edges, where they are as
    many as a pause has, or the text begins or ends there. All of a span in which nothing is heard."""
    inside = silent[round(begin) : round(end)]
    if inside.all():
        return begin, end
    before, behind = int(np.argmin(inside)), int(np.argmin(inside[::-1]))
    if before >= (1 if is_first else _LEAST_PAUSE):
        begin = float(round(begin) + before)
    if behind >= (1 if is_last else _LEAST_PAUSE):
        end = float(round(end) - behind)
    return begin, end


def _share(weights: Float64, one: int, other: int) -> float:
    return float(weights[one] / max(weights[one] + weights[other], 1e-12))
