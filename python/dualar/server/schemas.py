"""The body of a request for speech, checked field by field.

Owns `SpeechCall` and what each field may be. Each is honoured or refused, by an error that names it; one that nobody
knows is refused too. Leaves voices to `voices.py`, and sending errors to `guard.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dualar.config import FAMILIES, SamplingConfig
from dualar.server.encoders import MEDIA_TYPES, has_aac
from dualar.server.errors import ApiError, of_value_error

OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15")
_MAX_INSTRUCTIONS = 4096
_SAMPLING = tuple(dict.fromkeys(f.name for family in FAMILIES.values() for f in fields(family)))
_KNOWN = (
    "model", "input", "voice", "response_format", "speed", "instructions", "stream_format", "stream", "seed",
    "language", "sampler", "max_new_tokens", "min_tokens_before_end", "word_times", *_SAMPLING,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SpeechCall:
    """A checked body. model: None for the one that is served. voice: a name, None for the model's own.

    stream: False is an answer in one part, made before it is sent, so that its header says how long it is. options: the
    fields of `SpeechRequest` that were given as they are; sampler and sampling: how codes are drawn, where that was
    said.
    """

    text: str
    model: str | None = None
    voice: str | None = None
    format: str = "mp3"
    sse: bool = False
    stream: bool = True
    sampler: str | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def sampling_config(self, default: SamplingConfig) -> SamplingConfig:
        """How codes are drawn. ApiError for an option that the family does not have, or one out of range."""
        try:
            if self.sampler is None:
                return default.with_options(**self.sampling)
            return SamplingConfig.from_options(self.sampler, **self.sampling)
        except ValueError as error:
            raise of_value_error(error) from error


def parse_json(body: bytes) -> dict[str, Any]:
    """A JSON object. ApiError 400 for anything else, however deep."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(
            400, f"expected a JSON object in UTF-8, got what is none: {error}", code="invalid_json"
        ) from None
    if not isinstance(value, dict):
        raise ApiError(400, f"expected a JSON object, got {_kind(value)}", code="invalid_json")
    return value


def speech_call(body: Mapping[str, Any], *, max_characters: int) -> SpeechCall:
    """The body of POST /v1/audio/speech. ApiError 400 that names the field."""
    for name in body:
        if name not in _KNOWN:
            raise _refused(str(name)[:64], f"expected one of {', '.join(_KNOWN)}", "unknown_parameter")
    text = _string(body, "input", max_characters)
    if text is None:
        raise _refused("input", "expected a text, got none", "missing_required_parameter")
    kind = _string(body, "response_format", 16) or "mp3"
    if kind not in MEDIA_TYPES:
        raise _refused("response_format", f"expected one of {', '.join(MEDIA_TYPES)}, got {kind!r}")
    if kind == "aac" and not has_aac():
        raise _refused("response_format", "AAC needs PyAV on the server: pip install 'dualar[aac]'")
    stream_format = _string(body, "stream_format", 16) or "audio"
    if stream_format not in ("audio", "sse"):
        raise _refused("stream_format", f"expected audio or sse, got {stream_format!r}")
    stream = body.get("stream")
    if not isinstance(stream, bool | None):
        raise _refused("stream", f"expected true or false, got {_kind(stream)}")
    if stream_format == "sse" and stream is False:
        raise _refused("stream", "expected true beside stream_format sse")
    word_times = body.get("word_times")
    if not isinstance(word_times, bool | None):
        raise _refused("word_times", f"expected true or false, got {_kind(word_times)}")
    if word_times and stream_format != "sse":
        raise _refused("word_times", "expected stream_format sse beside it: its last event has the words")
    _check_speed(body)
    sampler = _string(body, "sampler", 16)
    if sampler is not None and sampler not in FAMILIES:
        raise _refused("sampler", f"expected one of {', '.join(FAMILIES)}, got {sampler!r}")
    return SpeechCall(
        text=text, model=_string(body, "model", 256), voice=_voice(body), format=kind, sse=stream_format == "sse",
        stream=stream is not False, sampler=sampler, options=_options(body),
        sampling={name: value for name in _SAMPLING if (value := _number(body, name)) is not None},
    )  # fmt: skip


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "seed": _whole(body, "seed", 0, 2**64 - 1),
        "max_new_tokens": _whole(body, "max_new_tokens", 1, 2**31 - 1),
        "min_tokens_before_end": _whole(body, "min_tokens_before_end", 0, 2**31 - 1),
        "language": _string(body, "language", 64) or None,
        "word_times": body.get("word_times") or None,
        "instruct": _string(body, "instructions", _MAX_INSTRUCTIONS) or None,
    }
    return {name: value for name, value in options.items() if value is not None}


def _check_speed(body: Mapping[str, Any]) -> None:
    speed = _number(body, "speed")
    if speed is None:
        return
    if not 0.25 <= speed <= 4.0:
        raise _refused("speed", f"expected 0.25 to 4, got {speed:g}")
    if speed != 1.0:
        raise _refused("speed", f"expected 1: this server does not change the speed of speech, got {speed:g}")


def _voice(body: Mapping[str, Any]) -> str | None:
    voice = body.get("voice")
    if isinstance(voice, dict):
        if set(voice) != {"id"}:
            raise _refused("voice", 'expected a name, or an object {"id": name} with nothing else in it')
        return _string({"voice": voice["id"]}, "voice", 256)
    return _string(body, "voice", 256)


def _string(body: Mapping[str, Any], name: str, longest: int) -> str | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise _refused(name, f"expected a string, got {_kind(value)}")
    if len(value) > longest:
        raise _refused(name, f"expected at most {longest} characters, got {len(value)}", "string_too_long")
    return value


def _number(body: Mapping[str, Any], name: str) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**63:  # inf and NaN too
        raise _refused(name, f"expected a number, got {_kind(value)}")
    return value


def _whole(body: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _refused(name, f"expected a whole number from {low} to {high}, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, bool | int | float):
        return json.dumps(value)[:40]
    return {str: "a string", list: "a list", dict: "an object", type(None): "null"}.get(type(value), "another value")


def _refused(name: str, problem: str, code: str = "invalid_value") -> ApiError:
    return ApiError(400, f"[{name}] {problem}", param=name, code=code)
