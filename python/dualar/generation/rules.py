"""The rules of one request: which token is drawn from logits, which codes are kept, and when the request ends.

Owns the order of a frame's draws and every stop rule. Leaves the computations to `batch.py`, and the draws to the
core's samplers, which `dualar.sampling` defines.
"""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

from dualar.config import GenerationConfig, StallGuard
from dualar.generation.checks import checked_seed, frame_budget, text_limit
from dualar.generation.frames import FinishReason, Frame, Generation, Timings
from dualar.generation.prefix_cache import session_positions
from dualar.generation.prompts import checked_prompt
from dualar.generation.steps import Draw, core_sampler
from dualar.generation.word_times import WordPath
from dualar.model import Model, PromptLike, Session
from dualar.text.places import TimedWord, WordMap

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]


_log = logging.getLogger("dualar")


class FrameRules:
    """The frames of one request so far, and what is to be computed next. Checked on creation, before any computation.

    A batch prefills `prompt` and then repeats: call `draw` with the logits; compute the frame's further codes with the
    Fast-AR, drawn as `residual_draw` says; `add` the codes; deliver the frame; step the model with `next_column`. The
    request has ended once `finish_reason` is set, which `draw`, `next_column` and `cancel` do.
    """

    def __init__(
        self,
        model: Model,
        prompt: PromptLike,
        config: GenerationConfig | None = None,
        *,
        seed: int | None = None,
        text_tokens: int | None = None,
        session: Session | None = None,
        word_map: WordMap | None = None,
    ) -> None:
        """ValueError for a prompt or option out of range. session: an existing session that the request will run in.

        word_map: which word each token of the prompt's text is of, to find out when each word is spoken.
        """
        self._model = model
        self.config = config or GenerationConfig()
        self.prompt = checked_prompt(model, prompt)
        self.seed = checked_seed(seed)
        start = 0 if session is None else session.position
        self.max_new_tokens = frame_budget(model, self.config, start + self.prompt.shape[1], session)
        self.watched = None if word_map is None else word_map.span(start + self.prompt.shape[1])
        self._path = None if word_map is None else WordPath(word_map)
        limit = text_limit(self.config.stall_guard, text_tokens)
        # The guard never ends a request before the frames that min_tokens_before_end asks for.
        self._frame_limit = None if limit is None else max(limit, self.config.min_tokens_before_end)
        self._watch = _RepeatWatch(self.config.stall_guard)
        self._codes = np.zeros((model.num_codebooks, self.max_new_tokens), np.int32)
        self._drawn = np.zeros(self.max_new_tokens, np.int32)  # main tokens, as indices into main_ids
        self._sampler = core_sampler(self.config.sampling, residual=False)
        self._main_ids = model.main_ids
        # What ends speech: the last main id, or, in models that have no such id, a frame of nothing but this code.
        self._end_code: int | None = getattr(model, "end_code", None)
        self.frames = 0
        self.token = -1
        self._frame: Frame | None = None
        self.padded_frames = 0
        self._is_padded = False
        self.finish_reason: FinishReason | None = None

    @property
    def positions(self) -> int:
        """How many positions a session needs for this request."""
        return session_positions(self._model, self.prompt, self.max_new_tokens)

    @property
    def semantic_code(self) -> int:
        """The code that stands for `token`."""
        return min(max(self.token - self._model.semantic_begin_id, 0), self._model.codebook_size - 1)

    def draw(self, logits: Float32) -> bool:
        """Draw the next main token from logits, one for each of the model's main ids; False where it is the end of
        speech.

        ModelError for logits with NaN, or with no id that may be drawn.
        """
        end = len(self._main_ids) - 1 if self._end_code is None else -1
        if self.frames < self.config.min_tokens_before_end:
            logits = logits.copy()
            # In the logits themselves, so that no draw or redraw can give it. A frame that does not begin with the
            # end's code is not the end.
            logits[end if self._end_code is None else self._end_code] = -np.inf
        drawn = self._sampler.draw(
            logits, seed=self.seed, step=self.frames, stream=0, history=self._drawn[: self.frames]
        )
        if drawn == end:
            self.finish_reason = "end"
            return False
        self._drawn[self.frames] = drawn
        self.token = int(self._main_ids[drawn])
        return True

    def look(self, attention: Float32) -> None:
        """Take the attention over `watched`, float32 [heads, positions], of the position that made the frame."""
        if self._path is not None:
            self._path.add(attention)

    def next_words(self, *, last: bool) -> tuple[TimedWord, ...]:
        """The words that were spoken since the last call; with `last`, all that are left. None asked for, none told."""
        return (
            ()
            if self._path is None
            else self._path.next_words(
                last=last, ended=self.finish_reason == "end", codes=self._codes[0, : self.frames]
            )
        )

    @property
    def residual_draw(self) -> Draw:
        """How the further codes of the next frame are drawn: (sampling, seed, index of the frame)."""
        return self.config.sampling, self.seed, self.frames

    def pad(self, reason: object) -> None:
        """Count the frame that is about to be added as padded, and log why its last codes are 0."""
        self.padded_frames += 1
        self._is_padded = True
        _log.warning("[generate] frame %d: its last codes are 0: %s", self.frames, reason)

    def add(self, codes: Int32) -> Frame | None:
        """Keep codes int32 [N] as the frame of `token`; None where they are the end of speech."""
        is_padded, self._is_padded = self._is_padded, False  # zeros that the model did not draw are no end
        if self._end_code is not None and not is_padded and (codes == self._end_code).all():
            self.finish_reason = "end"
            return None
        self._codes[:, self.frames] = codes
        self._frame = frame = Frame(self.frames, self.token, codes)
        self.frames += 1
        return frame

    @property
    def last_frame(self) -> Frame:
        """The frame that was added last; there must be one."""
        assert self._frame is not None
        return self._frame

    def next_column(self) -> Int32 | None:
        """The column int32 [1 + N] to step with after the frame added last; None where a rule ends the request."""
        if self._watch.stalled(int(self._drawn[self.frames - 1])) and (
            self.frames >= self.config.min_tokens_before_end
        ):
            self.finish_reason = "stalled"
        # The next token is not computed, so it may have been the end: "length" says that the budget was used up, and
        # not that the speech was cut.
        elif self.frames == self.max_new_tokens:
            self.finish_reason = "length"
        elif self.frames == self._frame_limit:
            self.finish_reason = "stalled"
        else:
            return np.concatenate([[self.token], self._codes[:, self.frames - 1]]).astype(np.int32)
        return None

    def cancel(self) -> None:
        """End the request, unless it has ended."""
        if self.finish_reason is None:
            self.finish_reason = "cancelled"

    def result(self, *, prefill_s: float, loop_s: float) -> Generation:
        """The Generation of a request that has ended; prefill_s and loop_s: seconds that its computations took."""
        assert self.finish_reason is not None
        loop_ms = loop_s * 1e3
        return Generation(
            codes=self._codes[:, : self.frames].copy(),
            finish_reason=self.finish_reason,
            seed=self.seed,
            padded_frames=self.padded_frames,
            words=None
            if self._path is None
            else self._path.words(
                ended=self.finish_reason == "end", frames=self.frames, codes=self._codes[0, : self.frames]
            ),
            timings=Timings(
                prefill_ms=prefill_s * 1e3,
                loop_ms=loop_ms,
                ms_per_frame=loop_ms / self.frames if self.frames else 0.0,
            ),
        )


class _RepeatWatch:
    """Counts, for each period, how many main tokens in a row equal the one a period earlier."""

    def __init__(self, guard: StallGuard | None) -> None:
        self._limit = 0 if guard is None else guard.repeat_frames
        self._runs = [0] * (guard.max_period if guard is not None and self._limit else 0)
        self._tokens: list[int] = []

    def stalled(self, token: int) -> bool:
        """True once more than repeat_frames frames, this one included, are one cycle of at most max_period."""
        found = False
        for i in range(len(self._runs)):
            period = i + 1
            same = len(self._tokens) >= period and self._tokens[-period] == token
            self._runs[i] = self._runs[i] + 1 if same else 0
            found |= same and self._runs[i] + period > self._limit
        self._tokens.append(token)
        return found
