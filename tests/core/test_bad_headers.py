"""GGUF headers that lie, in files of a hundred bytes: each is one ModelError, at once, in no memory to speak of."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FIXTURES
from fixtures.gguf_raw import ARRAY, BOOL, STRING, UINT32, UINT64, Key, RawGguf, Tensor, string
from refusals import refused


def lying(*parts: int | bytes, version: int = 3, n_tensors: int = 0, n_keys: int = 0) -> bytes:
    """A header and whatever follows it; ints are 64 bits wide."""
    out = b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_keys)
    return out + b"".join(p if isinstance(p, bytes) else p.to_bytes(8, "little") for p in parts)


def u32(n: int) -> bytes:
    return struct.pack("<I", n)


TINY_FILES = {
    "2^42 tensors": lying(n_tensors=1 << 42),
    "2^64 - 1 tensors": lying(n_tensors=(1 << 64) - 1),
    "2^42 keys": lying(n_keys=1 << 42),
    "2^63 keys": lying(n_keys=1 << 63),
    "a tensor that is not there": lying(n_tensors=1),
    "a key of 2^42 bytes": lying(1 << 42, n_keys=1),
    "a key of 2^64 - 1 bytes": lying((1 << 64) - 1, b"abc", n_keys=1),
    "an empty key": lying(0, u32(UINT32), u32(1), n_keys=1),
    "a key that is no UTF-8": lying(string(b"\xff\xfe"), u32(UINT32), u32(1), n_keys=1),
    "a key with an escape": lying(string(b"a\x1b[2J"), u32(UINT32), u32(1), n_keys=1),
    "a string of 2^42 bytes": lying(string("a"), u32(STRING), 1 << 42, n_keys=1),
    "type 13": lying(string("a"), u32(13), 0, n_keys=1),
    "type 2^32 - 1": lying(string("a"), u32((1 << 32) - 1), 0, n_keys=1),
    "an array of arrays": lying(string("a"), u32(ARRAY), u32(ARRAY), 1, u32(UINT32), 1, u32(1), n_keys=1),
    "an array of type 99": lying(string("a"), u32(ARRAY), u32(99), 1, 0, n_keys=1),
    "an array of 2^42": lying(string("a"), u32(ARRAY), u32(UINT32), 1 << 42, n_keys=1),
    "an array of 2^62 uint32": lying(string("a"), u32(ARRAY), u32(UINT32), (1 << 62) + 1, n_keys=1),
    "an array of 2^61 uint64": lying(string("a"), u32(ARRAY), u32(UINT64), 1 << 61, n_keys=1),
    "an array of 2^42 strings": lying(string("a"), u32(ARRAY), u32(STRING), 1 << 42, n_keys=1),
    "alignment 0": lying(string("general.alignment"), u32(UINT32), u32(0), n_keys=1),
    "alignment 3": lying(string("general.alignment"), u32(UINT32), u32(3), n_keys=1),
    "alignment of another type": lying(string("general.alignment"), u32(STRING), string("32"), n_keys=1),
    "5 dimensions": lying(string("t"), u32(5), 1, 1, 1, 1, 1, u32(0), 0, n_tensors=1),
    "2^32 - 1 dimensions": lying(string("t"), u32((1 << 32) - 1), n_tensors=1),
    "dimension 0": lying(string("t"), u32(2), 4, 0, u32(0), 0, n_tensors=1),
    "dimension -1": lying(string("t"), u32(2), 4, (1 << 64) - 1, u32(0), 0, n_tensors=1),
    "dimension 2^42": lying(string("t"), u32(1), 1 << 42, u32(0), 0, n_tensors=1),
    "2^42 x 2^42": lying(string("t"), u32(2), 1 << 42, 1 << 42, u32(0), 0, n_tensors=1),
    "sizes that wrap to 0": lying(string("t"), u32(2), 1 << 32, 1 << 32, u32(0), 0, n_tensors=1),
    "2^62 values of 4 bytes": lying(string("t"), u32(1), 1 << 62, u32(0), 0, n_tensors=1),
    "type 4, withdrawn": lying(string("t"), u32(1), 32, u32(4), 0, n_tensors=1),
    "ggml type 99": lying(string("t"), u32(1), 32, u32(99), 0, n_tensors=1),
    "ggml type 2^31": lying(string("t"), u32(1), 32, u32(1 << 31), 0, n_tensors=1),
    "Q4_K rows of 32": lying(string("t"), u32(2), 32, 8, u32(12), 0, n_tensors=1),
    "an offset of 2^42": lying(string("t"), u32(1), 1, u32(0), 1 << 42, n_tensors=1),
    "an offset of 2^64 - 32": lying(string("t"), u32(1), 1, u32(0), (1 << 64) - 32, n_tensors=1),
    "an empty tensor name": lying(string(""), u32(1), 1, u32(0), 0, n_tensors=1),
    "alignment 2^31": lying(
        string("general.alignment"), u32(UINT32), u32(1 << 31), string("t"), u32(1), 1, u32(0), 0, n_keys=1, n_tensors=1
    ),
}


@pytest.mark.parametrize("name", TINY_FILES)
def test_tiny_files_that_lie(tmp_path: Path, name: str) -> None:
    data = TINY_FILES[name]
    assert len(data) < 120
    (tmp_path / "x.gguf").write_bytes(data)
    text = refused(tmp_path / "x.gguf", within=0.5)
    assert "x.gguf" in text and text.isprintable() and len(text) < 600


def test_lies_take_no_memory(tmp_path: Path) -> None:
    """All of them in a process that may not grow by more than a few megabytes."""
    program = """if True:
        import resource, sys
        from pathlib import Path
        from dualar import _core
        from core.test_bad_headers import TINY_FILES
        path = Path(sys.argv[1])
        pages = lambda: int(Path("/proc/self/statm").read_text().split()[0])
        before = pages() * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (before + (8 << 20), -1))
        for data in TINY_FILES.values():
            path.write_bytes(data)
            try:
                _core.ModelFile(str(path))
            except _core.ModelError:
                continue
            sys.exit("loaded")
    """
    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc")
    command = [sys.executable, "-c", program, str(tmp_path / "x.gguf")]
    subprocess.run(command, check=True, timeout=60, env=with_tests())


def with_tests() -> dict[str, str]:
    """The environment of a process that imports this folder's modules."""
    path = os.pathsep.join(filter(None, (str(FIXTURES.parent), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def test_many_keys_and_tensors_are_refused_quickly(tmp_path: Path) -> None:
    many = RawGguf([Key(b"k%d" % i, BOOL, b"\1") for i in range(20000)])
    (tmp_path / "x.gguf").write_bytes(many.write())
    assert "at most 16384 metadata keys" in refused(tmp_path / "x.gguf")
    many = RawGguf([], [Tensor(b"t%d" % i, [1], 0, bytes(4)) for i in range(16000)])
    (tmp_path / "x.gguf").write_bytes(many.write())
    assert "general.architecture" in refused(tmp_path / "x.gguf")
