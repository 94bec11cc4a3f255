"""What one caller asked to have said, on its way from a text to samples.

Owns `Utterance`: which rows it needs one after the other, and which frames are decoded together. Leaves stepping the
rows and the order of the work among callers to `engine_thread.py`, the pieces of a long text to `dualar.narration`.

Its samples are those of `Engine.synthesize` (whole), `Engine.stream` with LIVE_CADENCE or, for a text of several
pieces, `Engine.narrate`, bit for bit: how frames are grouped depends on the request alone and not on the load.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dualar.codec.codec import BLOCK_FRAMES
from dualar.families.base import Turn
from dualar.generation.checks import checked_seed
from dualar.generation.frames import Frame, Generation
from dualar.generation.requests import GenerationRequest
from dualar.loading import EngineParts
from dualar.narration.narrator import Narrator
from dualar.narration.plan import TextPlan, plan
from dualar.narration.speak import DEFAULT_CADENCE, narrator_of
from dualar.narration.timeline import piece_words
from dualar.speech.request import PromptBuilder, SpeechRequest
from dualar.text.places import TimedWord

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Answer = tuple[Generation | None, str | None]

LIVE_CADENCE = (1, 2, 4)
"""Frames that are decoded together: the first sound at once, the rest in cheaper steps."""
CONTEXT_POSITIONS = 768  # of earlier turns in a prompt, as a narration has it


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an utterance ended. finish_reason: as of a Generation, or "incomplete" where pieces of a long text failed.

    frames: that were heard; text_tokens: of the text; complete: whether all that was asked for was said. words: when
    each word is heard, where the request asked for it.
    """

    finish_reason: str
    seed: int
    frames: int
    text_tokens: int
    complete: bool
    words: tuple[TimedWord, ...] | None = None


@dataclass(frozen=True)
class _Chunk:
    """Frames to decode together; fresh: from silence, after `pause` samples of it. piece: of the text, from 0."""

    codes: Int32
    fresh: bool = False
    pause: int = 0
    piece: int = 0


class Utterance:
    """Made in a thread of its own (`__init__` finds the voice and builds prompts), then used by the engine's thread."""

    def __init__(
        self, parts: EngineParts, request: SpeechRequest, *, whole: bool, history: Sequence[Turn] = ()
    ) -> None:
        """whole: nobody hears it before its end. history: what was said before. ValueError for what cannot be said."""
        self.seed = checked_seed(request.seed)
        self._request = replace(request, seed=self.seed, on_frame=self._hear)
        text_plan = plan(request.text, longest_text=parts.family.longest_text)
        codec, self._builder = parts.codec, PromptBuilder.of(parts, request)
        self.sample_rate = codec.sample_rate
        self.text_tokens = self._builder.count_tokens(request.text)
        self._pending: list[Int32] = []
        self._ready: deque[_Chunk] = deque()
        self._chunks = self._frames = 0
        self._finish_reason: str | None = None
        self._failed = False
        self._words: list[TimedWord] = []
        self.turn: Turn | None = None
        self.piece = 0  # of the text, that was decoded last
        self.is_long = text_plan.is_long
        self._sizes = DEFAULT_CADENCE if self.is_long else (BLOCK_FRAMES,) if whole else LIVE_CADENCE
        before = self._builder.decoded_before
        if whole and not self.is_long:
            self._decoder = codec._stream(None, before=before, max_frames=BLOCK_FRAMES)
        else:
            self._decoder = codec._stream(None, before=before)
        self._script = self._pieces(text_plan) if self.is_long else self._in_one(history)
        self._next: GenerationRequest | None = next(self._script)
        # Told here and not when its turn comes.
        assert self._next is not None
        self._next.rules(parts.model, sampling=parts.sampling, min_tokens_before_end=0)

    @property
    def next_row(self) -> GenerationRequest | None:
        """What to run next; None once all rows have been run."""
        return self._next

    def ran(self, made: Generation | None, error: str | None) -> None:
        """What became of the row: what was made, or None and an error of the model."""
        try:
            self._next = self._script.send((made, error))
        except StopIteration:
            self._next = None
            self._flush()

    @property
    def frames(self) -> int:
        """How many were decoded."""
        return self._frames

    @property
    def has_sound(self) -> bool:
        """Whether frames wait to be decoded."""
        return bool(self._ready)

    def decode(self) -> Float32:
        """Samples of the next frames that wait."""
        chunk = self._ready.popleft()
        self.piece = chunk.piece
        if chunk.fresh:
            self._decoder.reset()
        samples = self._decoder.push(chunk.codes)
        self._frames += chunk.codes.shape[1]
        return np.concatenate([np.zeros(chunk.pause, np.float32), samples]) if chunk.pause else samples

    def outcome(self) -> Outcome:
        """Once there is no next row and no sound left."""
        reason = self._finish_reason or "incomplete"
        asked_length = reason == "length" and self._request.max_new_tokens is not None
        return Outcome(
            finish_reason=reason,
            seed=self.seed,
            frames=self._frames,
            text_tokens=self.text_tokens,
            words=tuple(self._words) if self._request.word_times else None,
            complete=(reason == "end" or asked_length) and self._frames > 0,
        )

    def close(self) -> None:
        """Give its state back."""
        self._script.close()
        self._decoder.close()

    def _hear(self, frame: Frame) -> None:
        if self.is_long:
            return  # a piece is heard once it is whole, because one that fails is spoken again
        self._pending.append(frame.codes)
        if len(self._pending) == self._size:
            self._flush()

    @property
    def _size(self) -> int:
        return self._sizes[min(self._chunks, len(self._sizes) - 1)]

    def _flush(self) -> None:
        if self._pending:
            self._ready.append(_Chunk(np.stack(self._pending, axis=1)))
            self._pending.clear()
            self._chunks += 1

    def _in_one(self, history: Sequence[Turn]) -> Generator[GenerationRequest, Answer, None]:
        builder, request = self._builder, self._request
        parts = builder.parts
        config = request.config(sampling=parts.sampling, min_tokens_before_end=parts.family.min_tokens_before_end)
        prompt = builder.prompt(request.text)
        alone, room = prompt.shape[1], parts.model.context_length - (request.max_new_tokens or 512)
        for count in range(1, len(history) + 1 if parts.family.takes_history else 1):
            longer = builder.prompt(request.text, history[-count:])
            if longer.shape[1] - alone > CONTEXT_POSITIONS or longer.shape[1] > room:
                break
            prompt = longer
        made, _ = yield builder.request(config, prompt, request.text, seed=self.seed, on_frame=request.on_frame)
        if made is not None:
            self._finish_reason = made.finish_reason
            self._words += made.words or ()
            self.turn = Turn(request.text, made.codes)

    def _pieces(self, text_plan: TextPlan) -> Generator[GenerationRequest, Answer, None]:
        narrator, _ = narrator_of(self._builder.parts, self._request, text_plan)
        script, end = narrator.requests(), 0
        request = next(script)
        try:
            while True:
                answer = yield request
                heard = len(narrator.pieces)
                request = script.send(answer)
                end = self._hear_pieces(narrator, heard, end)
        except StopIteration:
            self._hear_pieces(narrator, heard, end)
            self._finish_reason = "incomplete" if self._failed else "end"

    def _hear_pieces(self, narrator: Narrator, heard: int, end: int) -> int:
        """The chunks of the pieces that were settled since; where their sound ends."""
        for piece in narrator.pieces[heard:]:
            self._failed |= piece.error is not None
            if piece.sample_count == 0:
                continue
            self._words += piece_words(piece)
            start = number = 0
            while start < piece.codes.shape[1]:
                codes = piece.codes[:, start : start + self._sizes[min(number, len(self._sizes) - 1)]]
                pause = piece.sample_start - end if start == 0 else 0
                self._ready.append(_Chunk(codes, fresh=start == 0, pause=pause, piece=piece.index))
                start, number = start + codes.shape[1], number + 1
            end = piece.sample_start + piece.sample_count
        return end
