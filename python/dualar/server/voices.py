"""The voices that a server offers: the model's own, and those in the folder that it was given.

Owns the names that may be asked for and the routes that list, add and delete. No path, file name or URL of a caller is
ever opened: a name follows the store's rule, and is looked for in the store's list. Leaves the store to
`dualar.voices`, and cloning to the engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dualar.loading import EngineParts
from dualar.server.errors import ApiError
from dualar.voices.name import check_voice_name
from dualar.voices.store import VoiceStore

DEFAULT_VOICE = "default"
# The names that OpenAI's callers have built in; here each is the model's own voice, unless the folder has one so named.
OPENAI_VOICES = (
    "alloy", "ash", "ballad", "coral", "echo", "fable", "onyx", "nova", "sage", "shimmer", "verse", "marin", "cedar",
)  # fmt: skip


class VoiceBook:
    """The voices by name. Its methods read files: not for the event loop."""

    def __init__(self, parts: EngineParts, folder: Path | None) -> None:
        self._speakers = parts.family.speakers
        self._takes_voice = parts.family.takes_voice and parts.codec.can_encode
        self._store = None if folder is None else VoiceStore(folder)

    @property
    def store(self) -> VoiceStore:
        """Where voices are added; ApiError 403 where none may be."""
        if self._store is None:
            raise ApiError(403, "This server takes no voices: it was started without --voices.", code="voices_disabled")
        if not self._takes_voice:
            raise ApiError(403, "The model takes no voices: it speaks with its own.", code="voices_disabled")
        return self._store

    @property
    def can_add(self) -> bool:
        return self._store is not None and self._takes_voice

    def names(self) -> list[str]:
        """All that may be asked for, the model's own first."""
        return [DEFAULT_VOICE, *self._speakers, *([] if self._store is None else self._store.names())]

    def options(self, name: str | None) -> dict[str, Any]:
        """The field of a `SpeechRequest` that a name stands for. ApiError 400 for a name that is none, or unknown."""
        if name is None or name == DEFAULT_VOICE:
            return {}
        try:
            name = check_voice_name(name)
        except ValueError as error:
            raise ApiError(400, str(error), param="voice", code="invalid_voice") from error
        if name in self._speakers:
            return {"speaker": name}
        if self._store is not None and name in self._store.names():
            try:
                return {"voice": self._store.get(name)}
            except ValueError as error:  # a damaged file: its path is nobody's business
                raise ApiError(400, f"[voice] {name!r} cannot be read", param="voice", code="invalid_voice") from error
        if name in OPENAI_VOICES:
            return {}
        raise ApiError(
            400, f"[voice] expected one of {', '.join(self.names()[:50])}, got {name!r}", param="voice",
            code="voice_not_found",
        )  # fmt: skip
