"""The run over a long text's pieces, on a scripted model: seeds, context, attempts, what a piece that fails leaves."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from dualar._core import BackendError
from dualar.config import GenerationConfig, StallGuard
from dualar.families.base import Turn
from dualar.generation.checks import frame_budget
from dualar.generation.generate import FrameLoop
from dualar.narration.config import DEFAULT_PAUSES, NarrationConfig
from dualar.narration.narrator import Narrator
from dualar.narration.plan import NarratedPiece, NarrationProgress, piece_seed, plan
from scripted_model import BEGIN, END, GREEDY, FakeModel, Float32, Main, N, script

TEXT = "It rains. We stay in. Do we ask? Yes, we do."
SENTENCES = ["It rains. ", "We stay in. ", "Do we ask? ", "Yes, we do."]
RATE, FRAME = 1000, 10
PIECES = {"piece_size": 12}


def not_a_number(step: int, columns: list[list[int]]) -> Float32:
    return np.full(65, np.nan, np.float32) if step == 2 else script(5, 6, 7)(step, columns)


def device_lost(step: int, columns: list[list[int]]) -> Float32:
    raise BackendError("[device] lost")


FAILURES: dict[str, tuple[Main, str, str | None]] = {
    "stalls": (script(7), "ran on without end", "stalled"),
    "ends at once": (script(END), "before its first frame", "end"),
    "reaches the cap": (script(*range(60)), "the most frames that are allowed, 30", "length"),
    "is NaN": (not_a_number, "got NaN", None),
}


@dataclass
class Scripted:
    """A `PieceModel` that says what it is told: for a text, what to do at each attempt; by default a few frames."""

    scripts: dict[str, list[Main]] = field(default_factory=dict)
    context_length: int = 2000
    asked: list[tuple[str, int, list[list[int]]]] = field(default_factory=list)
    num_codebooks: int = N
    config: GenerationConfig = field(
        default_factory=lambda: GenerationConfig(
            max_new_tokens=30, sampling=GREEDY, stall_guard=StallGuard(repeat_frames=12)
        )
    )

    def prompt(self, text: str, history: Sequence[Turn]) -> Any:
        columns = []
        for turn in history:
            columns += [[ord(c) % 90, *[0] * N] for c in turn.text]
            columns += [[BEGIN + int(codes[0]), *map(int, codes)] for codes in np.asarray(turn.codes).T]
        columns += [[ord(c) % 90, *[0] * N] for c in text]
        return np.ascontiguousarray(np.array(columns, np.int32).T)

    def check(self, prompt: Any) -> None:
        frame_budget(FakeModel(context_length=self.context_length), self.config, prompt.shape[1], None)

    def loop(self, prompt: Any, text: str, seed: int) -> FrameLoop:
        model = FakeModel(main=self.next_script(text), context_length=self.context_length)
        self.asked.append((text, seed, prompt.T.tolist()))
        return FrameLoop(model, prompt, self.config, seed=seed)

    def next_script(self, text: str) -> Main:
        mains = self.scripts.get(text, [script(len(text), 1, 2, END)])
        return mains[min(sum(said == text for said, _, _ in self.asked), len(mains) - 1)]

    def batch(self, rows: int) -> Any:
        raise NotImplementedError

    def request(self, prompt: Any, text: str, seed: int, on_frame: Any) -> Any:
        raise NotImplementedError


def narrator(speaker: Scripted, text: str = TEXT, *, seed: int = 5, on: Any = None, **config: Any) -> Narrator:
    return Narrator(
        plan(text, NarrationConfig(**{**PIECES, **config})), speaker, seed=seed, max_new_tokens=30, sample_rate=RATE,
        samples_per_frame=FRAME, **(on or {}),
    )  # fmt: skip


def first_codes(pieces: Sequence[NarratedPiece]) -> list[list[int]]:
    return [piece.codes[0].tolist() for piece in pieces]


# ------------------------------------------------------------------ the run
def test_each_piece_is_spoken_with_a_seed_of_its_own() -> None:
    speaker = Scripted()
    run = narrator(speaker)
    pieces = list(run)
    assert [piece.text for piece in pieces] == SENTENCES and len(run) == 4
    assert first_codes(pieces) == [[len(text), 1, 2] for text in SENTENCES]
    assert [piece.seed for piece in pieces] == [seed for _, seed, _ in speaker.asked]
    assert [piece.seed for piece in pieces] == [5, *(piece_seed(5, i, 0) for i in (1, 2, 3))]
    assert {(piece.attempts, piece.error, piece.finish_reason) for piece in pieces} == {(1, None, "end")}
    assert [(piece.index, piece.start, piece.ends) for piece in pieces] == [
        (0, 0, "sentence"), (1, 10, "sentence"), (2, 22, "sentence"), (3, 33, "text"),
    ]  # fmt: skip
    assert run.pieces == pieces and not run.cancelled and run.seed == 5


def test_the_seed_of_an_attempt_is_a_published_function() -> None:
    digest = hashlib.sha256(b"5 2 1").digest()
    assert piece_seed(5, 2, 1) == int.from_bytes(digest[:8], "little")
    assert piece_seed(5, 0, 0) == 5
    seeds = {piece_seed(seed, index, attempt) for seed in range(4) for index in range(20) for attempt in range(4)}
    assert len(seeds) == 320 and max(seeds) < 2**64


def test_where_the_sound_of_a_piece_is() -> None:
    text = "It rains. It pours.\n\nWe stay in, waiting.\n<|speaker:1|>we wait."
    pieces = list(narrator(Scripted(), text))
    assert [piece.ends for piece in pieces] == ["sentence", "paragraph", "clause", "turn", "text"]
    assert [piece.sample_count for piece in pieces] == [3 * FRAME] * 5
    starts = [pieces[0].sample_start]
    for piece in pieces[:-1]:
        starts.append(starts[-1] + piece.sample_count + round(DEFAULT_PAUSES[piece.ends] * RATE / 1000))
    assert [piece.sample_start for piece in pieces] == starts and starts[:2] == [0, 180]
    pieces = list(narrator(Scripted(), text, pause_ms=7))
    assert [piece.sample_start for piece in pieces] == [0, 37, 74, 111, 148]
    pieces = list(narrator(Scripted(), text, pause_ms={"paragraph": 0, "turn": 1000}))
    assert [piece.sample_start for piece in pieces] == [0, 180, 210, 240, 1270]


def test_the_first_piece_is_short_where_a_sentence_ends() -> None:
    text = " ".join(f"This is sentence number {i} of a text." for i in range(20))
    pieces = plan(text).pieces
    assert 60 < len(pieces[0].text) <= 121 and 240 < len(pieces[1].text) <= 301
    assert "".join(piece.text for piece in pieces) == text
    assert len(plan("x" * 200 + ", " + "y" * 200).pieces[0].text) == 202  # no sentence ends early
    assert [piece.text for piece in plan("One.\r\nTwo\0.").pieces] == ["One.\nTwo."]  # plain text


# ------------------------------------------------------------------ context
def test_earlier_turns_are_context_newest_first_within_the_budget() -> None:
    turns = [len(text.strip()) + 3 for text in SENTENCES]  # of letters and frames
    for budget, kept in ((0, [0] * 4), (1024, [0, 1, 2, 3]), (sum(turns[1:3]), [0, 1, 2, 2]), (13, [0, 1, 0, 1])):
        speaker = Scripted()
        pieces = list(narrator(speaker, context_tokens=budget))
        for i, (_, _, columns) in enumerate(speaker.asked):
            history = [Turn(pieces[j].text.strip(), pieces[j].codes) for j in range(i - kept[i], i)]
            assert columns == speaker.prompt(SENTENCES[i].strip(), history).T.tolist(), (budget, i)


def test_context_leaves_room_to_speak() -> None:
    speaker = Scripted(context_length=30 + 26)  # 30 frames, 10 letters, and turns of 14
    list(narrator(speaker))
    assert [len(columns) for _, _, columns in speaker.asked] == [9, 11 + 12, 10 + 14, 11 + 13]


def test_a_piece_that_cannot_fit_is_named_before_anything_is_spoken() -> None:
    speaker = Scripted(context_length=40)
    with pytest.raises(ValueError, match=r"piece 2 of 4 \('We stay in.'\): .* got 11 \+ 30 = 41"):
        narrator(speaker)
    assert not speaker.asked


# ------------------------------------------------------------------ failures
@pytest.mark.parametrize("failure", FAILURES)
def test_a_piece_that_fails_is_tried_again_with_another_seed(failure: str) -> None:
    main, _, _ = FAILURES[failure]
    speaker = Scripted({SENTENCES[1]: [main, script(40, 41, END)]})
    pieces = list(narrator(speaker))
    assert first_codes(pieces) == [[10, 1, 2], [40, 41], [11, 1, 2], [11, 1, 2]]
    assert [piece.attempts for piece in pieces] == [1, 2, 1, 1] and all(piece.error is None for piece in pieces)
    assert [seed for _, seed, _ in speaker.asked] == [5] + [
        piece_seed(5, *of) for of in ((1, 0), (1, 1), (2, 0), (3, 0))
    ]
    assert speaker.asked[1][2] == speaker.asked[2][2]  # the same prompt


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_piece_that_fails_for_good_is_reported_and_spoils_nothing(failure: str, retries: int) -> None:
    main, words, reason = FAILURES[failure]
    speaker = Scripted({SENTENCES[1]: [main]})
    run = narrator(speaker, retries=retries)
    pieces = list(run)
    bad = pieces.pop(1)
    assert bad.error is not None and words in bad.error
    assert (bad.index, bad.text, bad.attempts, bad.finish_reason) == (1, SENTENCES[1], retries + 1, reason)
    assert bad.codes.shape == (N, 0) and bad.sample_count == bad.padded_frames == 0
    assert first_codes(pieces) == [[10, 1, 2], [11, 1, 2], [11, 1, 2]]
    assert [piece.sample_start for piece in pieces] == [0, 30 + 150 + 150, 330 + 30 + 150]  # its pauses stay
    history = [Turn("It rains.", pieces[0].codes)]  # and it is no context
    assert speaker.asked[-2][2] == speaker.prompt("Do we ask?", history).T.tolist()
    assert run.frames_kept == 9 <= run.frames_made


def test_a_device_that_fails_ends_the_run() -> None:
    run = narrator(Scripted({SENTENCES[2]: [device_lost]}))
    with pytest.raises(BackendError, match="lost"):
        list(run)
    assert [piece.text for piece in run.pieces] == SENTENCES[:2]


# ------------------------------------------------------------------ stopping, progress
def test_on_frame_stops_within_a_piece_which_is_dropped() -> None:
    seen = []

    def on_frame(frame: Any) -> object:
        seen.append(frame.index)
        return len(seen) < 5

    run = narrator(Scripted(), on={"on_frame": on_frame})
    assert len(list(run)) == 1 and run.cancelled and seen == [0, 1, 2, 0, 1]


def test_on_piece_tells_how_far_it_is_and_may_stop() -> None:
    seen: list[NarrationProgress] = []
    pieces = list(narrator(Scripted(), on={"on_piece": seen.append}))
    assert [(p.done, p.total) for p in seen] == [(i, 4) for i in (1, 2, 3, 4)]
    assert [p.piece for p in seen] == pieces
    assert seen[0].seconds_left > 0 and seen[-1].seconds_left == 0
    run = narrator(Scripted(), on={"on_piece": lambda progress: progress.done < 2})
    assert len(list(run)) == 2 and run.cancelled
    run = narrator(Scripted(), on={"on_piece": lambda progress: progress.done < 4})
    assert len(list(run)) == 4 and not run.cancelled


def test_closing_is_cancelling() -> None:
    run = narrator(Scripted())
    next(run)
    run.close()
    assert run.cancelled and list(run) == [] and len(run.pieces) == 1


# ------------------------------------------------------------------ options
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"piece_size": 0}, "narrate.piece_size"),
        ({"context_tokens": -1}, "narrate.context_tokens"),
        ({"retries": 1.5}, "narrate.retries"),
        ({"pause_ms": -1}, "expected 0 to 600000 ms, got -1"),
        ({"pause_ms": {"breath": 3}}, "expected pauses after turn, paragraph, .*, got 'breath'"),
        ({"pause_ms": {"turn": float("nan")}}, "got nan after a turn"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        NarrationConfig(**options)


@pytest.mark.parametrize("text", ["", "  \n", "<|speaker:1|> <|speaker:2|>", "\0\x07"])
def test_nothing_to_say(text: str) -> None:
    with pytest.raises(ValueError, match="expected something to speak"):
        narrator(Scripted(), text)


def test_the_first_piece_too_is_one_sentence_where_that_is_asked_for() -> None:
    text = "Help the woman. The view stunned the boy. " * 3  # two of them fit into the first piece's size
    for pieces in (plan(text, longest_text=150).pieces, plan(text, NarrationConfig(one_sentence=True)).pieces):
        assert [piece.text for piece in pieces] == ["Help the woman. ", "The view stunned the boy. "] * 3
