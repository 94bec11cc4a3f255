"""When each word of a text is heard, from the heads that look at the token that is being spoken.

Owns `WordPath`: a monotonic path of a request's frames through the words of its text, found by dynamic programming.
Leaves which token is of which word to `dualar.text.places`, the attention to the compiled core.

At frame t the heads' attention over the text's tokens (their mean, a softmax) is summed over the tokens of each unit u:
a word, or what stands between two words. The path is the sequence u_0 <= u_1 <= ... with the largest sum of
log p_t(u_t); from one frame to the next it stays, goes on to the next unit, or past one that is no word, which may
take no time at all. A border lies where the frame before it and the one after it share their weight: at b - 0.5 (share
of the later unit in frame b - 1) + 0.5 (share of the earlier one in frame b), in frames.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dualar.text.places import PAUSE, TimedWord, WordMap, token_units

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

_LEAST = 1e-4  # weight of a unit that the heads do not look at
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

    def words(self, *, ended: bool, frames: int | None = None) -> tuple[TimedWord, ...]:
        """All words that were begun. ended: the speech ended by itself, so that all were said. frames: of the first so
        many frames alone, by default all."""
        return self._timed(self._units(ended=ended, frames=frames))

    def next_words(self, *, last: bool, ended: bool = False) -> tuple[TimedWord, ...]:
        """The words that no earlier call told and that the path has left for good; with `last`, the rest."""
        units = self._units(ended=ended, frames=None)
        words = self._timed(units)
        if not last:
            limit = (len(units) - _SURE_FRAMES) * self._map.samples_per_frame
            words = tuple(word for word in words if word.sample_end <= limit)
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

    def _timed(self, units: list[int]) -> tuple[TimedWord, ...]:
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
        rate, text = self._map.samples_per_frame, self._map.text
        return tuple(
            TimedWord(text=text[a:b], start=a, end=b, sample_start=round(begin * rate), sample_end=round(end * rate))
            for (a, b), (begin, end) in ((self._map.words[owner], span) for owner, span in sorted(spans.items()))
        )

    def _border(self, frame: int, before: int, after: int) -> float:
        """Where unit `after` begins, in frames: it is the unit of `frame`, `before` that of the one in front of it."""
        late = _share(self._weights[frame - 1], after, before)
        early = _share(self._weights[frame], before, after)
        return frame - 0.5 * late + 0.5 * early


def _share(weights: Float64, one: int, other: int) -> float:
    return float(weights[one] / max(weights[one] + weights[other], 1e-12))
