"""Several pieces of a long text at once: the order, the context, the attempts; alone on a scripted model, then on the
toy model's engine with its job."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dualar import Engine, NarrationConfig
from dualar._core import BackendError
from dualar.families.base import Turn
from dualar.families.s2_prompt import build_prompt
from dualar.generation.batch import Batch
from dualar.generation.requests import GenerationRequest
from dualar.narration.job import settled_samples
from dualar.narration.plan import NOT_PLACED, NarrationProgress, piece_seed
from scripted_model import END, GREEDY, FakeModel, FakeSession, Main, N, script

from narration.test_narrate import FAILURES, SENTENCES, Scripted, device_lost, first_codes, narrator
from narration.test_narration import OPTIONS, TEXT, assert_same, until

ROWS = [2, 3, 8]


@dataclass
class RowModel(FakeModel):
    """One script for each session, in the order in which they are opened; counts those that are open."""

    scripts: deque[Main] = field(default_factory=deque)
    opened: list[FakeSession] = field(default_factory=list)

    def session(self, *, max_positions: int, kv_type: str = "auto") -> FakeSession:
        self.opened.append(FakeSession(FakeModel(main=self.scripts.popleft()), max_positions, kv_type))
        return self.opened[-1]


@dataclass
class ScriptedRows(Scripted):
    """A `Speaker` of which several pieces may be asked at once."""

    model: RowModel = field(default_factory=RowModel)
    batches: list[Batch] = field(default_factory=list)

    def batch(self, rows: int) -> Batch:
        self.batches.append(Batch(self.model, max_rows=rows, sampling=GREEDY))
        return self.batches[-1]

    def request(self, prompt: Any, text: str, seed: int, on_frame: Callable[..., object] | None) -> GenerationRequest:
        self.model.scripts.append(self.next_script(text))
        self.asked.append((text, seed, prompt.T.tolist()))
        return GenerationRequest(
            prompt=prompt, max_new_tokens=30, seed=seed, on_frame=on_frame, stall_guard=self.config.stall_guard
        )


def context_of(speaker: Scripted, text: str, turns: Sequence[Turn]) -> list[list[int]]:
    columns: list[list[int]] = speaker.prompt(text, turns).T.tolist()
    return columns


# ------------------------------------------------------------------ what is asked
@pytest.mark.parametrize("rows", ROWS)
def test_the_first_piece_is_spoken_alone_and_is_the_context_of_the_others(rows: int) -> None:
    speaker = ScriptedRows()
    run = narrator(speaker, rows=rows)
    first = next(run)
    assert not speaker.batches
    pieces = [first, *run]
    assert [piece.text for piece in pieces] == SENTENCES
    assert first_codes(pieces) == [[len(text), 1, 2] for text in SENTENCES]
    assert [piece.seed for piece in pieces] == [5, *(piece_seed(5, i, 0) for i in (1, 2, 3))]
    assert [piece.sample_start for piece in pieces] == [0, 180, 360, 540]
    assert len(speaker.batches) == 1 and speaker.batches[0].max_rows == rows
    turn = Turn(SENTENCES[0].strip(), first.codes)
    for text, _, columns in speaker.asked[1:]:
        assert columns == context_of(speaker, text.strip(), [turn])
    assert run.pieces == pieces and not run.cancelled


def test_without_context_all_pieces_go_at_once() -> None:
    speaker = ScriptedRows()
    pieces = list(narrator(speaker, rows=4, context_tokens=0))
    assert first_codes(pieces) == [[len(text), 1, 2] for text in SENTENCES] and len(speaker.model.opened) == 4
    for text, _, columns in speaker.asked:
        assert columns == context_of(speaker, text.strip(), [])


def test_context_that_is_too_long_is_left_out() -> None:
    for budget, kept in ((11, 0), (12, 1)):  # the first piece is nine letters and three frames
        speaker = ScriptedRows()
        pieces = list(narrator(speaker, rows=2, context_tokens=budget))
        turns = [Turn(SENTENCES[0].strip(), pieces[0].codes)][:kept]
        assert speaker.asked[3][2] == context_of(speaker, SENTENCES[3].strip(), turns)


def test_rows_are_filled_as_they_end_and_pieces_come_out_in_order() -> None:
    speaker = ScriptedRows({SENTENCES[1]: [script(*range(20), END)]})
    begun: list[int] = []
    busy: list[int] = []

    def on_frame(frame: Any) -> None:
        begun.append(len(speaker.model.opened))
        busy.append(speaker.batches[0].rows if speaker.batches else 0)

    run = narrator(speaker, rows=2, on={"on_frame": on_frame})
    next(run)
    second = next(run)
    assert second.codes[0].tolist() == list(range(20)) and max(begun) == 3 and max(busy) == 2
    spoken_ahead = len(begun)
    assert first_codes(list(run)) == [[11, 1, 2], [11, 1, 2]]
    assert len(begun) == spoken_ahead == 3 + 20 + 6  # the last two had ended before the second did


# ------------------------------------------------------------------ failures
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("rows", ROWS)
def test_a_piece_that_fails_is_tried_again_with_another_seed(rows: int, failure: str) -> None:
    main, _, _ = FAILURES[failure]
    speaker = ScriptedRows({SENTENCES[2]: [main, script(40, 41, END)]})
    pieces = list(narrator(speaker, rows=rows))
    assert first_codes(pieces) == [[10, 1, 2], [12, 1, 2], [40, 41], [11, 1, 2]]
    assert [piece.attempts for piece in pieces] == [1, 1, 2, 1] and all(piece.error is None for piece in pieces)
    assert pieces[2].seed == piece_seed(5, 2, 1)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("retries", [0, 2])
def test_a_piece_that_fails_for_good_spoils_nothing(failure: str, retries: int) -> None:
    main, words, reason = FAILURES[failure]
    run = narrator(ScriptedRows({SENTENCES[1]: [main]}), retries=retries, rows=3)
    pieces = list(run)
    bad = pieces.pop(1)
    assert bad.error is not None and words in bad.error
    assert (bad.index, bad.attempts, bad.finish_reason) == (1, retries + 1, reason)
    assert bad.codes.shape == (N, 0) and bad.sample_count == bad.padded_frames == 0
    assert first_codes(pieces) == [[10, 1, 2], [11, 1, 2], [11, 1, 2]]
    assert [piece.sample_start for piece in pieces] == [0, 330, 510]
    assert run.frames_kept == 9 <= run.frames_made


def test_while_the_first_piece_fails_the_next_is_spoken_alone() -> None:
    speaker = ScriptedRows({SENTENCES[0]: [script(END)]})
    run = narrator(speaker, retries=0, rows=2)
    first, second = next(run), next(run)
    assert first.error is not None and not speaker.batches
    assert first_codes(list(run)) == [[11, 1, 2], [11, 1, 2]]
    turn = Turn(SENTENCES[1].strip(), second.codes)
    assert speaker.asked[-1][2] == context_of(speaker, SENTENCES[3].strip(), [turn])


def test_a_device_that_fails_ends_the_run() -> None:
    speaker = ScriptedRows({SENTENCES[2]: [device_lost]})
    run = narrator(speaker, rows=3)
    with pytest.raises(BackendError, match="lost"):
        list(run)
    assert len(run.pieces) < 3 and speaker.batches[0].rows == 0


# ------------------------------------------------------------------ stopping
def test_on_frame_stops_all_rows() -> None:
    seen: list[int] = []

    def on_frame(frame: Any) -> object:
        seen.append(frame.index)
        return len(seen) < 6

    speaker = ScriptedRows()
    run = narrator(speaker, rows=3, on={"on_frame": on_frame})
    assert len(list(run)) == 1 and run.cancelled and speaker.batches[0].rows == 0
    assert 6 <= len(seen) <= 8 and run.frames_made == len(seen)  # the other rows had theirs of that step


def test_an_on_frame_that_raises_ends_the_run() -> None:
    def on_frame(frame: Any) -> None:
        if frame.index == 2 and speaker.batches:
            raise OSError("full")

    speaker = ScriptedRows()
    with pytest.raises(OSError, match="full"):
        list(narrator(speaker, rows=2, on={"on_frame": on_frame}))
    assert speaker.batches[0].rows == 0


def test_closing_ends_the_rows() -> None:
    speaker = ScriptedRows({SENTENCES[3]: [script(*range(20), END)]})
    run = narrator(speaker, rows=3)
    next(run), next(run)
    assert speaker.batches[0].rows > 0
    run.close()
    assert run.cancelled and list(run) == [] and len(run.pieces) == 2 and speaker.batches[0].rows == 0


def test_on_piece_stops_all_rows() -> None:
    speaker = ScriptedRows({SENTENCES[3]: [script(*range(20), END)]})
    run = narrator(speaker, rows=3, on={"on_piece": lambda progress: progress.done < 2})
    assert len(list(run)) == 2 and run.cancelled and speaker.batches[0].rows == 0
    assert run.frames_made > run.frames_kept == 6  # those that were spoken ahead are counted too


def test_progress_counts_what_was_spoken_ahead() -> None:
    seen: list[NarrationProgress] = []
    speaker = ScriptedRows({SENTENCES[1]: [script(*range(20), END)]})
    list(narrator(speaker, rows=3, on={"on_piece": seen.append}))
    assert [(p.done, p.total) for p in seen] == [(i, 4) for i in (1, 2, 3, 4)]
    assert seen[0].seconds_left > 0 and [p.seconds_left for p in seen[1:]] == [0, 0, 0]


@pytest.mark.parametrize("rows", [0, 257, 1.5])
def test_a_number_of_rows_out_of_range(rows: Any) -> None:
    with pytest.raises(ValueError, match=r"narrate\.rows"):
        NarrationConfig(rows=rows)


# ------------------------------------------------------------------ on an engine
def options(rows: int, **change: Any) -> dict[str, Any]:
    return {**OPTIONS, "config": NarrationConfig(piece_size=20, context_tokens=120, rows=rows), **change}


@pytest.mark.parametrize("rows", ROWS)
def test_each_piece_is_what_it_is_alone_after_the_first(engine: Engine, rows: int) -> None:
    got = engine.narrate(TEXT, **options(rows))
    assert_same(got, engine.narrate(TEXT, **options(2)))
    with engine.narrate_stream(TEXT, **options(rows)) as stream:
        np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in stream]), got.samples)
    turn, model = Turn(got.pieces[0].text.rstrip(), got.pieces[0].codes), engine.model
    for piece in got.pieces[1:]:
        words = piece.text if piece.ends == "text" else piece.text.rstrip()
        prompt = build_prompt(
            words, tokenizer=engine.tokenizer, num_codebooks=model.num_codebooks, codebook_size=model.codebook_size,
            semantic_begin_id=model.semantic_begin_id, history=[turn],
        )  # fmt: skip
        alone = engine.generate(
            prompt, seed=piece.seed, max_new_tokens=60, min_tokens_before_end=8,
            text_tokens=len(engine.tokenizer.encode_text(piece.text)),
        )  # fmt: skip
        np.testing.assert_array_equal(piece.codes, alone.codes)
    assert got.timings.loop_ms > 0 and got.timings.prefill_ms > 0 and got.timings.real_time_factor is not None


@pytest.mark.parametrize("rows", [(2, 8), (3, 2)])
@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_job_continued_is_a_job_done_at_once(
    engine: Engine, tmp_path: Path, stop: int, rows: tuple[int, int]
) -> None:
    job, whole = tmp_path / "a.job", engine.narrate(TEXT, **options(3))
    assert len(engine.narrate(TEXT, job=job, **options(rows[0]), **until(stop)).pieces) == stop
    assert_same(engine.narrate(TEXT, job=job, **options(rows[1])), whole)
    ends = [piece.sample_start + piece.sample_count for piece in whole.pieces]
    assert settled_samples(job, retries=1) == ends
    assert engine.narrate(TEXT, job=job, **options(2)).timings.loop_ms == 0


def test_what_was_spoken_ahead_is_in_the_job(engine: Engine, tmp_path: Path) -> None:
    job, whole = tmp_path / "a.job", engine.narrate(TEXT, **options(3))

    def entries() -> list[dict[str, Any]]:
        return [json.loads(line) for line in job.read_text(encoding="utf-8").splitlines()[1:]]

    engine.narrate(TEXT, job=job, **options(3), **until(2))
    ahead = [entry["index"] for entry in entries() if entry["sample_start"] is None]
    assert len(ahead) >= 1 and 0 not in ahead
    placed = {entry["index"] for entry in entries() if entry["sample_start"] is not None}
    assert placed == {0, 1}
    ends = [piece.sample_start + piece.sample_count for piece in whole.pieces]
    assert settled_samples(job, retries=1) == ends[:2]
    lines = job.read_text(encoding="utf-8").splitlines(keepends=True)
    job.write_text("".join(line for line in lines if '"index":1,' not in line), encoding="utf-8")
    assert settled_samples(job, retries=1) == ends[:1]  # of one that is missing the place is not known
    assert_same(engine.narrate(TEXT, job=job, **options(3)), whole)


@pytest.mark.parametrize(("begun", "continued"), [(1, 2), (2, 1)])
def test_a_job_knows_which_context_its_pieces_had(engine: Engine, tmp_path: Path, begun: int, continued: int) -> None:
    job = tmp_path / "a.job"
    engine.narrate(TEXT, job=job, **options(begun), **until(1))
    with pytest.raises(ValueError, match="expected the context with which"):
        engine.narrate(TEXT, job=job, **options(continued))


def test_a_piece_is_not_placed_before_those_in_front_of_it(engine: Engine) -> None:
    result = engine.narrate(TEXT, **options(3))
    assert all(piece.sample_start >= 0 for piece in result.pieces) and NOT_PLACED < 0
