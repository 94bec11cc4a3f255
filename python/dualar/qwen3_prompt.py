"""Text, and perhaps a voice or an instruction, to the prompt of a Qwen3-TTS model.

Owns the layout of the four kinds of request (plain, speaker, cloned voice, instruction) and the checks on what goes
into them. Pure numpy. Leaves ids to `tokenizer.py`, and adding the vectors up to the compiled core.

A position is the sum of a text side and a codec side, and the text of a request lies over its frames: `trailing` has a
text id for each frame to come. Each piece of the template is encoded on its own, so a text cannot grow together with
what stands around it, nor smuggle control tokens in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from dualar.convert import qwen3_names as keys
from dualar.prompt import PromptTokenizer, require_codes, require_words

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]
TextMode = Literal["over-frames", "first"]

ASSISTANT_OPEN = "<|im_start|>assistant\n"
USER_OPEN = "<|im_start|>user\n"
CLOSE = "<|im_end|>\n"
AUTO = "auto"

_NOTHING = -1


class Metadata(Protocol):
    """A model file, or a dict of its metadata."""

    def get(self, key: str, /) -> Any: ...


class TalkerSizes(Protocol):
    """What a prompt is checked against; `dualar.Qwen3TTS` has it."""

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
    """What the talker is given before its first frame, and the text that follows frame by frame.

    columns: int32 [1 + N, T]: row 0 a text id, row 1 an id of the talker's vocabulary (a code of codebook 0, a control
    id, a speaker), rows 2 to N the codes of the other codebooks; -1 is nothing. trailing: int32 [M], the text id under
    each frame to come; `tts_pad` after the last. speaker: float32 [D], a cloned voice's vector, added at
    speaker_column; None for none.
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

    def checked(self, model: TalkerSizes, *, text_vocab_size: int) -> TalkerPrompt:
        """The same with plain arrays; ValueError where something is out of the model's range."""
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
    """A cloned voice: its vector float32 [D], and for a closer likeness a recording as codes int [N, T] with its text.

    codes and transcript: both or neither.
    """

    speaker: npt.ArrayLike
    codes: npt.ArrayLike | None = None
    transcript: str | None = None


@dataclass(frozen=True, kw_only=True)
class Qwen3Layout:
    """What of a model file the prompt depends on: its kind, its control ids, its languages and speakers.

    kind: "base" (cloned voices), "custom_voice" (named speakers) or "voice_design" (instructions). size: "0b6" or
    "1b7". languages: id of each name that can be chosen; dialects: those of speakers alone; speakers: id of each name;
    speaker_dialects: the dialect of a speaker that has one.
    """

    kind: str
    size: str
    num_codebooks: int
    codebook_size: int
    hidden_size: int
    codec_pad: int
    codec_bos: int
    think: int
    nothink: int
    think_bos: int
    think_eos: int
    tts_pad: int
    tts_bos: int
    tts_eos: int
    languages: Mapping[str, int] = field(default_factory=dict)
    dialects: Mapping[str, int] = field(default_factory=dict)
    speakers: Mapping[str, int] = field(default_factory=dict)
    speaker_dialects: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, metadata: Metadata, *, source: str) -> Qwen3Layout:
        """From a model file or its metadata; ModelError naming every key that is missing or of another type."""
        problems: list[str] = []

        def get(key: str, kind: type) -> Any:
            value = metadata.get(key)
            if type(value) is kind:
                return value
            problems.append(f"[{key}] expected {kind.__name__}, got {'nothing' if value is None else repr(value)[:60]}")
            return kind()

        def table(names: str, values: str) -> dict[str, Any]:
            found = get(names, list), get(values, list)
            if len(found[0]) != len(found[1]) or not all(isinstance(name, str) for name in found[0]):
                problems.append(f"[{names}] expected a name for each of {len(found[1])} values of {values}")
                return {}
            return {name.lower(): value for name, value in zip(*found, strict=True)}

        languages = table(keys.LANGUAGE_NAMES, keys.LANGUAGE_IDS)
        speakers = table(keys.SPEAKER_NAMES, keys.SPEAKER_IDS)
        of_speakers = {
            name: str(of).lower() for name, of in table(keys.SPEAKER_NAMES, keys.SPEAKER_DIALECTS).items() if of
        }
        vocabulary = get(keys.VOCAB_SIZE, int)
        for name, value in [*languages.items(), *speakers.items()]:
            if type(value) is not int or not 0 <= value < vocabulary:
                problems.append(f"[{name}] expected an id from 0 to {vocabulary - 1}, got {value!r:.60}")
        for name, dialect in of_speakers.items():
            if dialect not in languages:
                problems.append(f"[{keys.SPEAKER_DIALECTS}] expected a language for {name}, got {dialect!r:.60}")
        layout = cls(
            kind=get(keys.MODEL_KIND, str),
            size=get(keys.MODEL_SIZE, str),
            num_codebooks=get(keys.NUM_CODEBOOKS, int),
            codebook_size=get(keys.CODEBOOK_SIZE, int),
            hidden_size=get(keys.EMBEDDING_LENGTH, int),
            codec_pad=get(keys.CODEC_PAD_ID, int),
            codec_bos=get(keys.CODEC_BOS_ID, int),
            think=get(keys.CODEC_THINK_ID, int),
            nothink=get(keys.CODEC_NOTHINK_ID, int),
            think_bos=get(keys.CODEC_THINK_BOS_ID, int),
            think_eos=get(keys.CODEC_THINK_EOS_ID, int),
            tts_pad=get(keys.TTS_PAD_ID, int),
            tts_bos=get(keys.TTS_BOS_ID, int),
            tts_eos=get(keys.TTS_EOS_ID, int),
            languages={name: i for name, i in languages.items() if "dialect" not in name},
            dialects={name: i for name, i in languages.items() if "dialect" in name},
            speakers=speakers,
            speaker_dialects=of_speakers,
        )
        if problems:
            from dualar._core import ModelError

            raise ModelError(f"[load] {source}: the model's description is not as expected:\n" + "\n".join(problems))
        return layout

    @property
    def text_mode(self) -> TextMode:
        """Where the published code puts the text: over the frames for cloned voices, before them for the others."""
        return "over-frames" if self.kind == "base" else "first"

    def language_id(self, language: str, speaker: str | None) -> int | None:
        """The id that the prompt names, None for "auto". A speaker of a dialect speaks it where the language is Chinese
        or left to the model. ValueError for an unknown language."""
        name = language.lower()
        if name != AUTO and name not in self.languages:
            raise ValueError(
                f"[language] expected {AUTO} or one of {', '.join(sorted(self.languages))}, got {language!r}"
            )
        dialect = None if speaker is None else self.speaker_dialects.get(speaker.lower())
        if dialect is not None and name in (AUTO, "chinese"):
            return {**self.languages, **self.dialects}[dialect]
        return None if name == AUTO else self.languages[name]

    def speaker_id(self, speaker: str) -> int:
        """The id of a named speaker; ValueError for an unknown one."""
        if speaker.lower() not in self.speakers:
            have = f"one of {', '.join(sorted(self.speakers))}" if self.speakers else "none: this model has no speakers"
            raise ValueError(f"[speaker] expected {have}, got {speaker!r}")
        return self.speakers[speaker.lower()]


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

    language: "auto" or a name of the layout, in any case. speaker: a named speaker; or voice: a cloned one. instruct:
    how to speak, in words. text_mode: "over-frames" (a text token under each frame, so that speech may begin before
    the text is whole) or "first" (all text before the first frame); by default the layout's. What a kind of model was
    made for is not asked here: `Engine` does.

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
    """The recording with its text, and the text to speak; returns what of the text is left for the frames."""
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
    """Columns so far."""

    def __init__(self, layout: Qwen3Layout) -> None:
        self.layout = layout
        self.count = 0
        self._parts: list[npt.NDArray[np.int64]] = []

    def add(
        self, *, text: Sequence[int], codec: Sequence[int] | None = None, codes: npt.NDArray[np.int64] | None = None
    ) -> None:
        """Text ids, and beside them ids of the talker's vocabulary, or whole frames [N, T]."""
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
