"""Writes files whole or not at all, and recognises Git LFS pointers that stand in the place of a file.

Owns the check, before work begins, that a file can be written; the writing itself, to a temporary name in the same
folder that is then renamed over the target; and the error text for a Git LFS pointer. Leaves what is written and read
to its callers.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_POINTER = b"version https://git-lfs.github.com/spec/v1"
POINTER_SIZE = 1024
"""Bytes that a Git LFS pointer has at most."""


def pointer_problem(beginning: bytes) -> str | None:
    """The error text for a file whose first POINTER_SIZE bytes are `beginning`, where it is a Git LFS pointer: a note
    that Git leaves in the place of a large file that was not fetched. None for any other file."""
    if not beginning.startswith(_POINTER):
        return None
    size = re.search(rb"\nsize ([0-9]{1,18})(\n|$)", beginning)
    of = f" of {int(size.group(1))} bytes" if size else ""
    return f"expected the file itself{of}, got a Git LFS pointer to it: fetch it with `git lfs pull`"


_unfinished: set[Path] = set()  # the temporary files of this process


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise the OSError, naming the path, that `write_file` would: to find out before long work, not after it."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"[output] expected a file name, got a folder: {target}")
    folder = target.parent
    if not folder.exists():
        raise FileNotFoundError(f"[output] expected an existing folder, got {folder} (to write {target.name})")
    if not folder.is_dir():
        raise NotADirectoryError(f"[output] expected a folder, got a file: {folder} (to write {target.name})")
    special = target.exists() and not target.is_file()
    if not os.access(target if special else folder, os.W_OK):
        raise PermissionError(f"[output] expected a folder that can be written to, got {folder} (to write {target})")


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path`, whole or not at all; OSError, naming the path, where that fails."""
    check_writable(path)
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)  # a device or a pipe: renaming would put a plain file in its place
            return
        with replacing(target) as file:
            file.write(data)
    except OSError as error:
        raise type(error)(error.errno, f"[output] cannot write {target}: {error.strerror or error}") from error


@contextlib.contextmanager
def unfinished(path: Path) -> Iterator[None]:
    """While entered, `path` is removed where the process ends at once, and when the block ends badly."""
    _unfinished.add(path)
    try:
        yield
    except BaseException:  # also KeyboardInterrupt: nothing half-written stays
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        _unfinished.discard(path)


@contextlib.contextmanager
def replacing(target: Path, *, new: bool = False) -> Iterator[BinaryIO]:
    """A file beside `target` that takes its place if the block ends well and vanishes if it does not.

    new: the block ends with FileExistsError where there is a target by then; of several that make one at once, one
    succeeds.
    """
    final = Path(os.path.realpath(target))  # a link stays a link
    temporary = final.with_name(f".dualar-{secrets.token_hex(6)}.tmp")
    with unfinished(temporary):
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # so that a full disk is an error before the rename, not after it
        if new:
            _rename_to_new(temporary, final)
            return
        if final.exists():
            os.chmod(temporary, final.stat().st_mode & 0o777)
        os.replace(temporary, final)


def _rename_to_new(temporary: Path, final: Path) -> None:
    try:
        os.link(temporary, final)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: claim the name first
        os.close(os.open(final, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        with unfinished(final):
            os.replace(temporary, final)
    else:
        temporary.unlink()


def remove_unfinished() -> None:
    """Remove what is being written, for a process that ends at once."""
    while _unfinished:
        with contextlib.suppress(OSError):
            _unfinished.pop().unlink()
