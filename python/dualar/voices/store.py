"""The store: a folder of named voices, a `.voice` file each.

Owns where the folder is, and adding, finding and removing voices, safely for several processes at once. Leaves names to
`name.py` and the files' bytes to `formats.py`.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dualar.files import replacing
from dualar.voices.formats import encode_voice, read_file
from dualar.voices.name import check_voice_name
from dualar.voices.voice import Voice

STORE_VARIABLE = "DUALAR_VOICES"

_SUFFIX = ".voice"


def store_folder(
    environment: Mapping[str, str] | None = None, *, platform: str = sys.platform, home: Path | None = None
) -> Path:
    """The folder of the user's voices: DUALAR_VOICES, or `dualar/voices` where the system keeps such data.

    That is $XDG_DATA_HOME or ~/.local/share; on macOS ~/Library/Application Support; on Windows %LOCALAPPDATA%. The
    folder need not exist. OSError where there is no home.
    """
    env = os.environ if environment is None else environment
    if named := env.get(STORE_VARIABLE):
        return Path(named)
    try:
        base = Path.home() if home is None else home
    except RuntimeError as error:
        raise OSError(f"[voice] expected a home folder, or {STORE_VARIABLE}, for the voices: {error}") from error
    if platform == "darwin":
        data = base / "Library" / "Application Support"
    elif platform == "win32":
        data = Path(env.get("LOCALAPPDATA") or base / "AppData" / "Local")
    else:
        data = Path(env.get("XDG_DATA_HOME") or "")
        if not data.is_absolute():  # the standard says to pass over others
            data = base / ".local" / "share"
    return data / "dualar" / "voices"


class VoiceStore:
    """The voices in a folder, by name. Several processes may use one folder at once."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        """folder: by default `store_folder()`. It is made by the first `add`."""
        self.folder = store_folder() if folder is None else Path(folder)

    def names(self) -> list[str]:
        """The names of the voices, sorted; their files may be damaged. OSError where the folder is a file or cannot be
        read; a folder that does not exist has no voices.
        """
        return sorted(self._files())

    def get(self, name: str) -> Voice:
        """The voice of that name; its `name` is the one that it has in the store.

        Errors: ValueError for a name that is not there, with similar ones that are, and for a file that is damaged or a
        link; OSError where it cannot be read.
        """
        path = self._path(name)
        try:
            voice = Voice.decode(read_file(path, follow_links=False), source=str(path))
        except FileNotFoundError:
            raise self._unknown(name) from None  # removed since
        return replace(voice, name=check_voice_name(name))

    def find(self, name: str) -> str:
        """The name as it is in the store; ValueError for one that is not there, with similar ones that are."""
        self._path(name)
        return check_voice_name(name)

    def add(self, name: str, voice: Voice, *, force: bool = False) -> Path:
        """Keep a voice under a name, whole or not at all; returns the file's path.

        force: replace a voice of that name. Errors: ValueError for a name that is not allowed or is taken (where two
        processes add it at once, one of them succeeds), also by one that differs only in upper and lower case, which
        some file systems do not tell apart; OSError where the file cannot be written.
        """
        path = self.check_new(name, force=force)
        name = check_voice_name(name)
        data = encode_voice(replace(voice, name=name))
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with replacing(path, new=not force) as file:
                file.write(data)
        except FileExistsError:
            raise self._taken(name) from None
        return path

    def check_new(self, name: str, *, force: bool = False) -> Path:
        """The path that `add` would write to; ValueError where `add` would raise it: to find out before the
        work. force: as for `add`."""
        name = check_voice_name(name)
        files = self._files()
        for other in files:
            if other != name and other.casefold() == name.casefold():
                raise ValueError(
                    f"[voice] expected a name unlike those in {self.folder}, got {name!r} beside {other!r}"
                )
        path = files.get(name, self.folder / (name + _SUFFIX))
        if path.is_symlink() or path.is_dir():
            raise ValueError(f"[voice] expected a plain file or none at {path}, got a link or a folder")
        if name in files and not force:
            raise self._taken(name)
        return path

    def remove(self, name: str) -> None:
        """Delete the voice of that name, a damaged file too; of a link, the link. Errors as for `get`."""
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            raise self._unknown(name) from None

    def _files(self) -> dict[str, Path]:
        """Name -> path. Files whose names no voice may have are left out."""
        try:
            entries = os.listdir(self.folder)
        except FileNotFoundError:
            return {}
        found = {}
        for entry in entries:
            if entry.endswith(_SUFFIX):
                with contextlib.suppress(ValueError):
                    found[check_voice_name(entry.removesuffix(_SUFFIX))] = self.folder / entry
        return found

    def _path(self, name: str) -> Path:
        # By the list of the folder, not by opening: a file system may find "Anna" for "anna".
        path = self._files().get(check_voice_name(name))
        if path is None:
            raise self._unknown(name)
        return path

    def _taken(self, name: str) -> ValueError:
        return ValueError(f"[voice] expected a new name, got {name!r}, which is in {self.folder}")

    def _unknown(self, name: str) -> ValueError:
        names = self.names()
        folded = {known.casefold(): known for known in names}
        near = [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.6)]
        if near:
            advice = "; did you mean " + " or ".join(map(repr, near)) + "?"
        else:
            advice = f"; it has {len(names)}, see `dualar voice list`" if names else ", which is empty"
        if os.path.exists(name):
            advice += f" (for the file of that name, say {os.path.join(os.curdir, name)})"
        return ValueError(
            f"[voice] expected the name of a voice in the store, got {name!r}: not in {self.folder}{advice}"
        )
