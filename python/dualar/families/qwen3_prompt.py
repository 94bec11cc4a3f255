"""Builds the prompt of a Qwen3-TTS model from a text and, where given, a voice, a speaker's name or an instruction.

Owns the layout of the four kinds of request (plain, speaker, cloned voice, instruction) and the checks on what goes
into them. Pure numpy. Leaves ids to `dualar.text.tokenizer`, and adding the vectors up to the compiled core.

The model's input at a position is the sum of a text embedding and a codec embedding. The text of a request lies over
its frames: `trailing` has a text id for each frame to come. Each piece of the template is encoded on its own, so that
no token spans a text and the template around it, and no text can bring in control tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dualar.codes import require_codes
from dualar.families.qwen3_layout import AUTO, Qwen3Layout, TextMode
from dualar.text.tokenizer import PromptTokenizer
from dualar.text.words import require_words

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]

ASSISTANT_OPEN = "<|im_start|>assistant\n"
USER_OPEN = "<|im_start|>user\n"
CLOSE = "<|im_end|>\n"

_NOTHING = -1  # in a column: no id on this side


class TalkerSizes(Protocol):
    """The sizes of a model that a prompt is checked against; `dualar.Qwen3TTS` has them."""

    @property
    def num_codebooks(self) -> int: ...
    @property
    def codebook_size(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...


@dataclass(frozen=True, eq=False)
class TalkerPrompt:
    """The talker's input before its first frame, and the text for the frames that follow.

    columns: int32 [1 + N, T]: row 0 a text id, row 1 an id of the talker's vocabulary (a code of codebook 0, a control
    id, a named speaker's id), rows 2 to N the codes of the other codebooks; -1 for none. trailing: int32 [M], the text
    ids that are added to the frames to come, one to each; `tts_pad` after the last. speaker: float32 [D], the vector of
    a cloned voice's speaker, added at speaker_column; None for none.
    """

    columns: Int32
    trailing: Int32
    speaker: Float32 | None = None
    speaker_column: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(1 + N, T), as a prompt that is one array has it."""
        rows, count = self.columns.shape
        return rows, count

    @property
    def prefix_length(self) -> int:
        """0: the text lies over the whole prompt, so that no part of it depends on the voice alone."""
        return 0

    @property
    def divisible(self) -> bool:
        """False: the core takes it as a whole."""
        return False

    def piece(self, start: int, stop: int) -> TalkerPrompt:
        """The prompt itself, as `Session.prefill` takes it; start and stop must be its beginning and end."""
        assert (start, stop) == (0, self.shape[1])
        return self

    def checked(self, model: TalkerSizes) -> TalkerPrompt:
        """The same with plain arrays; ValueError where something is out of the model's range, or the model takes
        prompts of another family."""
        text_vocab_size = getattr(model, "text_vocab_size", None)
        if text_vocab_size is None:
            raise ValueError("[prompt] expected an array for a model of this family, got a TalkerPrompt")
        rows = 1 + model.num_codebooks
        columns, trailing = np.asarray(self.columns), np.asarray(self.trailing)
        for name, array, dims in (("columns", columns, 2), ("trailing", trailing, 1)):
            if array.ndim != dims or (array.dtype.kind not in "iu" and array.size):
                raise ValueError(
                    f"[prompt] expected {name} int of {dims} dimensions, got {array.dtype} {list(array.shape)}"
                )
        if columns.shape[0] != rows or columns.shape[1] == 0:
            raise ValueError(f"[prompt] expected int [{rows}, T >= 1], got {columns.dtype} {list(columns.shape)}")
        for name, part, low, size in (
            ("text ids", columns[:1], _NOTHING, text_vocab_size),
            ("ids", columns[1:2], _NOTHING, model.vocab_size),
            ("codes", columns[2:], _NOTHING, model.codebook_size),
            ("trailing text ids", trailing, 0, text_vocab_size),
        ):
            bad = (part < low) | (part >= size)
            if bad.any():
                raise ValueError(f"[prompt] expected {name} from {low} to {size - 1}, got {part[bad][0]}")
        vector = None if self.speaker is None else _vector("prompt", self.speaker, model.hidden_size)
        if not 0 <= self.speaker_column < columns.shape[1]:
            raise ValueError(f"[prompt] expected speaker_column under {columns.shape[1]}, got {self.speaker_column}")
        return TalkerPrompt(
            np.ascontiguousarray(columns, np.int32), trailing.astype(np.int32), vector, int(self.speaker_column)
        )


@dataclass(frozen=True)
class Qwen3Voice:
    """A cloned voice: its speaker's vector float32 [D] and, for a closer likeness, a recording as codes int [N, T] with
    its transcript: both or neither.
    """

    speaker: npt.ArrayLike
    codes: npt.ArrayLike | None = None
    transcript: str | None = None


def build_talker_prompt(
    text: str,
    *,
    tokenizer: PromptTokenizer,
    layout: Qwen3Layout,
    language: str = AUTO,
    speaker: str | None = None,
    voice: Qwen3Voice | None = None,
    instruct: str | None = None,
    text_mode: TextMode | None = None,
) -> TalkerPrompt:
    """The prompt that makes a Qwen3-TTS model speak `text`.

    language: "auto" or a name of the layout, in upper or lower case. speaker: the name of a speaker, or voice: a cloned
    one. instruct: how to speak, in words. text_mode: "over-frames" (a text token added to each frame, so that speech
    may begin before the text is complete) or "first" (all text before the first frame); by default the layout's.
    Whether the kind of model takes these options is checked in `qwen3_tts.py`, not here.

    Errors: ValueError for texts with nothing to speak, unknown names, a speaker beside a voice, or a voice that does
    not fit.
    """
    require_words("text", text)
    if speaker is not None and voice is not None:
        raise ValueError(f"[prompt] expected a speaker or a voice, got both ({speaker!r} and a voice)")
    if text_mode not in (None, "over-frames", "first"):
        raise ValueError(f"[prompt] expected text_mode 'over-frames' or 'first', got {text_mode!r}")
    over_frames = (text_mode or layout.text_mode) == "over-frames"
    prompt = _Columns(layout)
    if instruct is not None:
        require_words("instruct", instruct)
        pieces = (
            tokenizer.encode_template(USER_OPEN),
            tokenizer.encode_text(instruct),
            tokenizer.encode_template(CLOSE),
        )
        prompt.add(text=[i for piece in pieces for i in piece])
    prompt.add(text=tokenizer.encode_template(ASSISTANT_OPEN))

    language_id = layout.language_id(language, speaker)
    if language_id is None:
        codec = [layout.nothink, layout.think_bos, layout.think_eos]
    else:
        codec = [layout.think, layout.think_bos, language_id, layout.think_eos]
    speaker_column, vector = 0, None
    if speaker is not None:
        codec.append(layout.speaker_id(speaker))
    elif voice is not None:
        vector = _vector("voice", voice.speaker, layout.hidden_size)
        speaker_column = prompt.count + len(codec)
        codec.append(_NOTHING)
    codec.append(layout.codec_pad)
    prompt.add(text=[layout.tts_pad] * (len(codec) - 1) + [layout.tts_bos], codec=codec)

    ids = tokenizer.encode_text(text)
    trailing: list[int] = []
    if voice is not None and (voice.codes is not None or voice.transcript is not None):
        trailing = _add_reference(prompt, voice, ids, tokenizer=tokenizer, over_frames=over_frames)
    elif over_frames:
        prompt.add(text=ids[:1], codec=[layout.codec_bos])
        trailing = [*ids[1:], layout.tts_eos]
    else:
        prompt.add(text=[*ids, layout.tts_eos], codec=[layout.codec_pad] * (len(ids) + 1))
        prompt.add(text=[layout.tts_pad], codec=[layout.codec_bos])
    return TalkerPrompt(prompt.matrix(), np.asarray(trailing, np.int32), vector, speaker_column)


def _add_reference(
    prompt: _Columns, voice: Qwen3Voice, ids: Sequence[int], *, tokenizer: PromptTokenizer, over_frames: bool
) -> list[int]:
    """Add the recording with its text, and the text to speak; returns the text ids that are left for later frames."""
    layout = prompt.layout
    if voice.codes is None or voice.transcript is None:
        raise ValueError("[voice] expected codes and a transcript, or neither, got one of them")
    require_words("voice transcript", voice.transcript)
    codes = require_codes(
        "voice codes", voice.codes, num_codebooks=layout.num_codebooks, codebook_size=layout.codebook_size
    )
    spoken = [*tokenizer.encode_text(voice.transcript), *ids, layout.tts_eos]
    frames = np.concatenate([np.full((layout.num_codebooks, 1), _NOTHING), codes], axis=1)
    frames[0, 0] = layout.codec_bos
    if not over_frames:
        prompt.add(text=spoken, codec=[layout.codec_pad] * len(spoken))
        prompt.add(text=[layout.tts_pad] * frames.shape[1], codes=frames)
        return []
    room = frames.shape[1]
    beside = spoken[:room] + [layout.tts_pad] * (room - len(spoken))
    prompt.add(text=beside, codes=frames)
    return spoken[room:]


class _Columns:
    """The columns of a prompt while it is built."""

    def __init__(self, layout: Qwen3Layout) -> None:
        self.layout = layout
        self.count = 0
        self._parts: list[npt.NDArray[np.int64]] = []

    def add(
        self, *, text: Sequence[int], codec: Sequence[int] | None = None, codes: npt.NDArray[np.int64] | None = None
    ) -> None:
        """Add text ids, and beside them ids of the talker's vocabulary, or whole frames [N, T]."""
        part = np.full((1 + self.layout.num_codebooks, len(text)), _NOTHING, np.int64)
        part[0] = text
        if codec is not None:
            part[1] = codec
        if codes is not None:
            part[1:] = codes
        self._parts.append(part)
        self.count += len(text)

    def matrix(self) -> Int32:
        return np.ascontiguousarray(np.concatenate(self._parts, axis=1), np.int32)


def _vector(where: str, speaker: npt.ArrayLike, size: int) -> Float32:
    vector: npt.NDArray[Any] = np.asarray(speaker)
    if vector.shape != (size,) or vector.dtype.kind != "f":
        raise ValueError(
            f"[{where}] expected the speaker's vector float [{size}], got {vector.dtype} {list(vector.shape)}"
        )
    if not np.isfinite(vector).all():
        raise ValueError(f"[{where}] expected a speaker's vector of finite values, got NaN or infinite ones")
    return np.ascontiguousarray(vector, np.float32)
