"""What a Qwen3-TTS file says about its prompts: kind of model, control ids, and names of languages and speakers.

Owns `Qwen3Layout`, its reading from a file and the look-up of names. Leaves building the prompt to
`qwen3_prompt.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dualar.gguf import qwen3_names as keys

TextMode = Literal["over-frames", "first"]
AUTO = "auto"


class Metadata(Protocol):
    """A model file, or a dict of its metadata."""

    def get(self, key: str, /) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Qwen3Layout:
    """The part of a model file's description that prompts depend on.

    kind: "base" (cloned voices), "custom_voice" (named speakers) or "voice_design" (instructions). size: "0b6" or
    "1b7". languages: name -> id, of those that can be chosen; dialects: name -> id, of those that only speakers have;
    speakers: name -> id; speaker_dialects: speaker's name -> dialect's name, where there is one.
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
            from dualar._native import ModelError

            raise ModelError(f"[load] {source}: the model's description is not as expected:\n" + "\n".join(problems))
        return layout

    @property
    def text_mode(self) -> TextMode:
        """Where the published code puts the text: over the frames for cloned voices, before them for the others."""
        return "over-frames" if self.kind == "base" else "first"

    def language_id(self, language: str, speaker: str | None) -> int | None:
        """The id of the language for the prompt, None for "auto". speaker: a speaker's name; one with a dialect speaks
        it where the language is "chinese" or "auto". ValueError for an unknown language."""
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
        """The id of a speaker's name; ValueError for an unknown one."""
        if speaker.lower() not in self.speakers:
            have = f"one of {', '.join(sorted(self.speakers))}" if self.speakers else "none: this model has no speakers"
            raise ValueError(f"[speaker] expected {have}, got {speaker!r}")
        return self.speakers[speaker.lower()]
