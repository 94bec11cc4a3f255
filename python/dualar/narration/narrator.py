"""Speaks a long text piece by piece: gives each piece its context and seed, and tries again a piece that fails.

Owns the run over the pieces: the earlier turns that each is given as context, its attempts, and where its sound stands
in the whole. Leaves the options to `config.py`, the cutting and the seeds to `plan.py`, several pieces at once to
`rows.py`, samples and threads to `speak.py`, and the file of a job that can be continued to `job.py`. Needs no engine:
`PieceModel` is all that it asks of a model.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dualar.config import DEFAULT_MAX_NEW_TOKENS
from dualar.families.base import Turn
from dualar.generation.batch import Batch
from dualar.generation.checks import checked_seed
from dualar.generation.frames import Frame, Generation
from dualar.generation.generate import FrameLoop
from dualar.generation.requests import GenerationRequest
from dualar.model import BuiltPrompt
from dualar.narration.plan import NOT_PLACED, NarratedPiece, NarrationProgress, TextPlan, piece_seed
from dualar.narration.rows import PieceRows
from dualar.text.split import Piece, speech_size

Int32 = npt.NDArray[np.int32]

_log = logging.getLogger("dualar")


class PieceModel(Protocol):
    """What a narration needs: a model, its tokenizer and a voice, as one object."""

    @property
    def num_codebooks(self) -> int: ...
    @property
    def context_length(self) -> int: ...
    def prompt(self, text: str, history: Sequence[Turn], /) -> BuiltPrompt: ...
    def check(self, prompt: BuiltPrompt, /) -> None: ...  # ValueError where it leaves no room to speak
    def loop(self, prompt: BuiltPrompt, text: str, seed: int, /) -> FrameLoop: ...
    def batch(self, rows: int, /) -> Batch: ...
    def request(
        self, prompt: BuiltPrompt, text: str, seed: int, on_frame: Callable[[Frame], object] | None, /
    ) -> GenerationRequest: ...


class Job(Protocol):
    """Where finished pieces are kept; `dualar.narration.job.Job` is one."""

    def finished(self, index: int, retries: int, /) -> NarratedPiece | None: ...
    def attempts(self, index: int, /) -> int: ...
    def add(self, piece: NarratedPiece, /) -> None: ...


class Narrator(Iterator[NarratedPiece]):
    """Iterator over the pieces as they are spoken; `close()` ends it, and drops the piece that is being spoken.

    A piece that ends before its first frame, stalls, reaches max_new_tokens or gets NaN from the model is tried again
    with another seed. After its last attempt it is left out, of the sound and of later pieces' context, and the next
    piece follows. One thread at a time.
    """

    def __init__(
        self,
        plan: TextPlan,
        model: PieceModel,
        *,
        seed: int | None,
        max_new_tokens: int | None,
        sample_rate: int,
        samples_per_frame: int,
        job: Job | None = None,
        on_frame: Callable[[Frame], object] | None = None,
        on_piece: Callable[[NarrationProgress], object] | None = None,
    ) -> None:
        """ValueError, before anything is computed, for a piece that the model's context cannot hold."""
        self._texts = plan.pieces
        self._model = model
        self._config = plan.config
        self.seed = checked_seed(seed)
        self._reserve = max_new_tokens
        self._rate, self._frame_samples = sample_rate, samples_per_frame
        self._job = job
        self._on_frame, self._on_piece = on_frame, on_piece
        self._pauses = {end: round(ms * sample_rate / 1000) for end, ms in plan.config.pauses.items()}
        for index, piece in enumerate(self._texts):
            try:
                model.check(model.prompt(_spoken(piece), []))
            except ValueError as error:
                where = f"piece {index + 1} of {len(self._texts)} ({_shortened(piece.text)!r})"
                raise ValueError(f"[narrate] {where}: {error}") from error
        self.pieces: list[NarratedPiece] = []
        self.cancelled = False
        self.prefill_ms = self.loop_ms = 0.0
        self.frames_kept = 0  # in this run, not those of a job, and not those of attempts that failed
        self._own_frames = 0
        self._rows: PieceRows[NarratedPiece] | None = None
        self._turns: list[Turn] = []
        self._generator = self._run()

    def __next__(self) -> NarratedPiece:
        return next(self._generator)

    def __len__(self) -> int:
        """How many pieces the text has."""
        return len(self._texts)

    @property
    def frames_made(self) -> int:
        """Frames of all attempts in this run."""
        return self._own_frames + (0 if self._rows is None else self._rows.frames)

    def requests(self) -> Generator[GenerationRequest, tuple[Generation | None, str | None], None]:
        """Yield each attempt as a request, for a caller who runs them in a batch of its own; in place of iterating.

        The caller sends back (what was made, None), or (None, the text of the model's error). Each settled piece is
        appended to `pieces`. A job is not kept.
        """
        position = pause = 0
        for index, text in enumerate(self._texts):
            piece, attempt = None, 0
            while piece is None:
                made, error = yield self._request(index, attempt)
                piece = self._settled(index, attempt, made, error)
                attempt += 1
            piece = replace(piece, sample_start=position + pause)
            self.pieces.append(piece)
            if piece.error is None:
                self._turns.append(Turn(_spoken(text), piece.codes))
            position, pause = piece.sample_start + piece.sample_count, self._pauses[text.end]

    def close(self) -> None:
        """Stop; `cancelled` unless all pieces were done."""
        self._generator.close()
        self.cancelled |= len(self.pieces) < len(self._texts)

    def _run(self) -> Generator[NarratedPiece, None, None]:
        try:
            yield from self._in_order()
        finally:
            if self._rows is not None:
                self._rows.close()

    def _in_order(self) -> Generator[NarratedPiece, None, None]:
        position = pause = 0
        sizes = [speech_size(piece.text) for piece in self._texts]
        spent, made_here = 0.0, set[int]()
        for index, text in enumerate(self._texts):
            began = time.perf_counter()
            piece = self._kept(index)
            made = piece is None
            if piece is None:
                piece = self._speak(index) if self._is_spoken_by_itself() else self._take(index)
            if piece is None:  # cancelled
                self.cancelled = True
                return
            moved = piece.sample_start != position + pause  # a piece before it failed in the job's run and not in this
            piece = replace(piece, sample_start=position + pause)
            if made:
                self.frames_kept += piece.codes.shape[1]
            if self._job is not None and (made or moved):
                self._job.add(piece)
            self.pieces.append(piece)
            if piece.error is None:
                self._turns.append(Turn(_spoken(text), piece.codes))
            position, pause = piece.sample_start + piece.sample_count, self._pauses[text.end]
            stop = False
            if made:
                spent += time.perf_counter() - began
                made_here |= {index} if self._rows is None else {index, *self._rows.done}
                size, ahead = sum(sizes[i] for i in made_here), sum(sizes[i] for i in made_here if i > index)
                left = spent / max(size, 1) * (sum(sizes[index + 1 :]) - ahead)
                progress = NarrationProgress(piece=piece, done=index + 1, total=len(self._texts), seconds_left=left)
                stop = self._on_piece is not None and self._on_piece(progress) is False
            yield piece
            if stop:
                self.cancelled = index + 1 < len(self._texts)
                return

    def _kept(self, index: int) -> NarratedPiece | None:
        """The piece as an earlier run left it in the job; None where it is to be spoken in this run."""
        if self._job is None or (self._rows is not None and index in self._rows.pieces):
            return None
        return self._job.finished(index, self._config.retries)

    def _is_spoken_by_itself(self) -> bool:
        """Whether the next piece is spoken alone: with one row, or while there is no piece yet as context for rows."""
        return self._config.rows == 1 or (self._config.context_tokens > 0 and not self._turns)

    def _speak(self, index: int) -> NarratedPiece | None:
        """Speak the piece, in as many attempts as it needs and may have; None once cancelled."""
        text = self._texts[index]
        prompt = self._prompt(text)
        piece = None
        for attempt in range(self._first_attempt(index), self._config.retries + 1):
            made, error = self._attempt(prompt, text, piece_seed(self.seed, index, attempt))
            if made is not None and made.finish_reason == "cancelled":
                return None
            piece = self._settled(index, attempt, made, error)
            if piece is not None:
                break
        assert piece is not None  # the last attempt is settled in any case
        return piece

    def _attempt(self, prompt: BuiltPrompt, text: Piece, seed: int) -> tuple[Generation | None, str | None]:
        """What was made and None, or None and the text of the model's error."""
        from dualar._native import ModelError

        loop = self._model.loop(prompt, text.text, seed)
        error: str | None = None
        while True:
            try:
                frame = next(loop, None)
            except ModelError as raised:
                error = str(raised)
                break
            if frame is None:
                break
            if self._on_frame is not None and self._on_frame(frame) is False:
                loop.close()
        made = loop.result()
        self._own_frames += loop.frames
        self.prefill_ms += made.timings.prefill_ms
        self.loop_ms += made.timings.loop_ms
        return (made, None) if error is None else (None, error)

    def _take(self, index: int) -> NarratedPiece | None:
        """Take the piece from those that are spoken at once; None once cancelled."""
        if self._rows is None:
            self._rows = PieceRows(
                self._model.batch(self._config.rows),
                [(i, self._first_attempt(i)) for i in range(index, len(self)) if self._kept(i) is None],
                self._request,
                self._settled_ahead,
            )
        seconds, prefill_ms = self._rows.seconds, self.prefill_ms
        piece = self._rows.take(index)
        self.loop_ms += (self._rows.seconds - seconds) * 1e3 - (self.prefill_ms - prefill_ms)
        return piece

    def _request(self, index: int, attempt: int) -> GenerationRequest:
        text, seed = self._texts[index], piece_seed(self.seed, index, attempt)
        return self._model.request(self._prompt(text), text.text, seed, self._on_frame)

    def _settled_ahead(
        self, index: int, attempt: int, made: Generation | None, error: str | None
    ) -> NarratedPiece | None:
        """`_settled` for a row's piece, which the job keeps at once: an interruption may come before its turn."""
        if made is not None:
            self.prefill_ms += made.timings.prefill_ms
        piece = self._settled(index, attempt, made, error)
        if piece is not None and self._job is not None:
            self._job.add(piece)
        return piece

    def _first_attempt(self, index: int) -> int:
        return 0 if self._job is None else self._job.attempts(index)

    def _settled(self, index: int, attempt: int, made: Generation | None, error: str | None) -> NarratedPiece | None:
        """The piece that an attempt gives, without its place in the whole; None where another attempt follows."""
        text = self._texts[index]
        error = _failure(made) if made is not None else error
        if error is not None:
            _log.info("[narrate] piece %d, attempt %d: %s", index + 1, attempt + 1, error)
            if attempt < self._config.retries:
                return None
        spoken = made if error is None else None
        codes = np.zeros((self._model.num_codebooks, 0), np.int32) if spoken is None else spoken.codes
        return NarratedPiece(
            index=index,
            text=text.text,
            start=text.start,
            ends=text.end,
            codes=codes,
            seed=piece_seed(self.seed, index, attempt),
            attempts=attempt + 1,
            finish_reason=None if made is None else made.finish_reason,
            error=error,
            padded_frames=0 if spoken is None else spoken.padded_frames,
            sample_start=NOT_PLACED,
            sample_count=codes.shape[1] * self._frame_samples,
            words=None if spoken is None else spoken.words,
        )

    def _prompt(self, text: Piece) -> BuiltPrompt:
        """The prompt, with as many of the last turns as fit into context_tokens and leave room to speak; where several
        pieces are spoken at once, with the first turn if it fits."""
        spoken = _spoken(text)
        best = self._model.prompt(spoken, [])
        alone, room = best.shape[1], self._model.context_length
        room -= min(DEFAULT_MAX_NEW_TOKENS, room - alone) if self._reserve is None else self._reserve
        turns = self._turns if self._config.rows == 1 else self._turns[:1]
        for count in range(1, len(turns) + 1):
            longer = self._model.prompt(spoken, turns[-count:])
            if longer.shape[1] - alone > self._config.context_tokens or longer.shape[1] > room:
                break
            best = longer
        return best


def _failure(made: Generation) -> str | None:
    frames = made.codes.shape[1]
    if made.finish_reason == "stalled":
        return f"the model ran on without end, and was stopped after {frames} frames"
    if made.finish_reason == "length":
        return f"the model reached the most frames that are allowed, {frames}, before its end"
    return "the model ended before its first frame" if frames == 0 else None


def _spoken(piece: Piece) -> str:
    """The text to speak: a piece that is cut from a text loses the blanks at its end."""
    return piece.text if piece.end == "text" else piece.text.rstrip()


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 40 else text[:37] + "..."
