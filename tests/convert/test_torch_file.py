"""PyTorch's files, read without it: both formats, views, and what is said of those that are damaged or mean harm."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.convert.torch_file import TorchFile
from fixtures import torch_files
from fixtures.torch_files import Call, Global, Persistent, Storages, pickled, write_old, write_zip

Write = Callable[..., None]

both = pytest.mark.parametrize("write", [write_zip, write_old], ids=["zip", "old"])


def whole(file: TorchFile, name: str) -> np.ndarray:
    return file.tensors[name].rows(0, file.tensors[name].shape[0])


def refused(path: Path) -> str:
    with pytest.raises(dualar.ModelError) as error:
        TorchFile(path)
    text = str(error.value)
    assert str(path) in text and len(text) < len(str(path)) + 400
    return text


@both
def test_values(write: Write, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    storages = Storages()
    arrays = {kind: rng.standard_normal((5, 3, 2)).astype(kind) for kind in ("<f8", "<f4", "<f2")}
    value: dict[str, Any] = {kind: storages.tensor(array) for kind, array in arrays.items()}
    bits = (arrays["<f4"].view(np.uint32) >> 16).astype("<u2")
    value["bf16"] = storages.tensor(bits, kind="BFloat16Storage")
    value |= {"step": 7, "name": "x", "rate": 0.5, "none": None, "list": [1, True]}
    write(tmp_path / "x.pth", value, storages)
    file = TorchFile(tmp_path / "x.pth")
    assert set(file.tensors) == {*arrays, "bf16"}
    for kind, array in arrays.items():
        np.testing.assert_array_equal(whole(file, kind), array.astype(np.float32))
        np.testing.assert_array_equal(file.tensors[kind].rows(1, 3), array[1:3].astype(np.float32))
    cut = (arrays["<f4"].view(np.uint32) & 0xFFFF0000).view(np.float32)
    np.testing.assert_array_equal(whole(file, "bf16"), cut)


@both
def test_views_of_one_storage(write: Write, tmp_path: Path) -> None:
    base = np.arange(24, dtype="<f4").reshape(4, 6)
    storages = Storages()
    views = {"turned": base.T, "part": base[1:3, 2:5], "column": base[:, 3]}
    write(tmp_path / "x.pth", {name: storages.tensor(view) for name, view in views.items()}, storages)
    assert len(storages.arrays) == 1
    file = TorchFile(tmp_path / "x.pth")
    for name, view in views.items():
        np.testing.assert_array_equal(whole(file, name), view)
        np.testing.assert_array_equal(file.tensors[name].rows(1, 2), view[1:2])


@both
def test_an_object_of_a_class_is_refused_and_nothing_runs(write: Write, tmp_path: Path) -> None:
    made = tmp_path / "made"
    harm = Call(Global("os", "system"), (f"touch {made}",))
    write(tmp_path / "x.pth", {"w": harm}, Storages())
    text = refused(tmp_path / "x.pth")
    assert "os.system, which dualar does not run" in text
    assert "weights_only" not in text and not made.exists()


@both
@pytest.mark.parametrize(
    "value",
    [
        Call(Global("torch", "FloatStorage"), (1 << 40,)),
        Call(Global("collections", "OrderedDict"), (5,)),
        Persistent(("storage", Global("torch", "FloatStorage"), "0", "cpu", -1)),
        Persistent(("storage", "FloatStorage", "0", "cpu", 1)),
        Persistent(("module", Global("torch", "FloatStorage"), "0", "cpu", 1)),
        Persistent("storage"),
        Call(Global("torch._utils", "_rebuild_tensor_v2"), (1, 2, 3, 4)),
        Call(Global("torch._utils", "_rebuild_tensor_v2"), ()),
        [],
        "text",
    ],
)
def test_damaged_objects(value: Any, write: Write, tmp_path: Path) -> None:
    write(tmp_path / "x.pth", value if isinstance(value, list | str) else {"w": value}, Storages())
    refused(tmp_path / "x.pth")


@both
@pytest.mark.parametrize(
    ("first", "shape", "strides"),
    [
        (0, (5,), (1,)),
        (1, (4,), (1,)),
        (0, (2, 2), (3, 1)),
        (-1, (2,), (1,)),
        (0, (2,), (-1,)),
        (0, (2**50,), (0,)),
        (0, (1,) * 9, (1,) * 9),
        (0, (2, 2), (2,)),
        (4, (1,), (1,)),
    ],
)
def test_tensors_beyond_their_storage(
    first: int, shape: tuple[int, ...], strides: tuple[int, ...], write: Write, tmp_path: Path
) -> None:
    storages = Storages()
    good = storages.tensor(np.zeros(4, "<f4"))
    bad = Call(good.function, (good.arguments[0], first, shape, strides, False, None))
    write(tmp_path / "x.pth", {"w": bad}, storages)
    refused(tmp_path / "x.pth")


@both
def test_every_truncation_is_one_error(write: Write, tmp_path: Path) -> None:
    storages = Storages()
    write(tmp_path / "x.pth", {"w": storages.tensor(np.arange(6, dtype="<f4"))}, storages)
    whole_file = (tmp_path / "x.pth").read_bytes()
    for size in range(len(whole_file)):
        (tmp_path / "y.pth").write_bytes(whole_file[:size])
        refused(tmp_path / "y.pth")


@both
def test_every_damaged_byte_is_read_or_one_error(write: Write, tmp_path: Path) -> None:
    storages = Storages()
    write(tmp_path / "x.pth", {"w": storages.tensor(np.arange(6, dtype="<f4"))}, storages)
    data = bytearray((tmp_path / "x.pth").read_bytes())
    for at in range(len(data)):
        for change in (0x01, 0x80, 0xFF):
            data[at] ^= change
            (tmp_path / "y.pth").write_bytes(data)
            data[at] ^= change
            try:
                file = TorchFile(tmp_path / "y.pth")
            except dualar.ModelError:
                continue
            for tensor in file.tensors.values():
                if tensor.dtype == "F32" and tensor.shape:
                    tensor.rows(0, tensor.shape[0])


def test_entries_that_do_not_fit(tmp_path: Path) -> None:
    storages = Storages()
    value = {"w": storages.tensor(np.arange(600, dtype="<f4"))}
    write_zip(tmp_path / "x.pth", value, storages, compression=zipfile.ZIP_DEFLATED)
    assert "compressed" in refused(tmp_path / "x.pth")
    write_zip(tmp_path / "x.pth", value, Storages())
    assert "no entry data/0" in refused(tmp_path / "x.pth")
    write_zip(tmp_path / "x.pth", value, Storages({"0": np.zeros(2, "<f4")}))
    assert "8 bytes in data/0 where 2400 belong" in refused(tmp_path / "x.pth")
    with zipfile.ZipFile(tmp_path / "x.pth", "w") as archive:
        archive.writestr("a/data.pkl", pickled({}))
        archive.writestr("a/byteorder", b"big")
    assert "big-endian" in refused(tmp_path / "x.pth")
    with zipfile.ZipFile(tmp_path / "x.pth", "w") as archive:
        archive.writestr("readme.txt", b"")
    assert "0 entries NAME/data.pkl" in refused(tmp_path / "x.pth")
    write_old(tmp_path / "x.pth", value, storages, little_endian=False)
    assert "big-endian" in refused(tmp_path / "x.pth")


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "x.pth"
    for content in (b"x", b"\x80\x02N.", pickled(7), b"GGUF" + bytes(64), struct.pack("<Q", 2) + b"{}"):
        path.write_bytes(content)
        assert "neither a zip archive nor the older format" in refused(path)
    path.write_bytes(b"")
    assert "empty" in refused(path)
    # A memo of 2^31 places: Python's own reader would allocate it.
    storages = Storages()
    write_zip(path, {}, storages)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02}r\xff\xff\xff\x7f.")
    assert TorchFile(path).tensors == {}


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("old", [False, True])
def test_what_pytorch_writes(old: bool, protocol: int, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    base = torch.randn(6, 4)
    state = torch.nn.Linear(3, 2).state_dict()
    found = {
        "f32": base,
        "turned": base.t(),
        "part": base[1:3, 1:],
        "f16": base.half(),
        "bf16": base.bfloat16(),
        "f64": base.double(),
        "parameter": torch.nn.Parameter(base),
        **{name: state[name] for name in state},
    }
    state.update(found)
    torch.save(state, tmp_path / "x.pth", pickle_protocol=protocol, _use_new_zipfile_serialization=not old)
    file = TorchFile(tmp_path / "x.pth")
    assert set(file.tensors) == set(found)
    for name, tensor in found.items():
        np.testing.assert_array_equal(whole(file, name), tensor.detach().float().numpy(), err_msg=name)
    torch.save({"a": torch.zeros(2, dtype=torch.int64), "b": torch.ones(3) > 0}, tmp_path / "y.pth")
    assert {name: t.dtype for name, t in TorchFile(tmp_path / "y.pth").tensors.items()} == {"a": "I64", "b": "BOOL"}
    torch.save({"q": torch.zeros(2, dtype=torch.float8_e4m3fn)}, tmp_path / "z.pth")
    assert TorchFile(tmp_path / "z.pth").tensors["q"].dtype == "F8_E4M3"


def test_the_fixtures_files_are_pytorchs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    arrays = {"a": np.arange(6, dtype="<f4").reshape(2, 3), "b": np.arange(4, dtype="<f2")}
    for old in (False, True):
        torch_files.save(tmp_path / "x.pth", arrays, old=old)
        loaded = torch.load(tmp_path / "x.pth", weights_only=True)
        for name, array in arrays.items():
            np.testing.assert_array_equal(loaded[name].numpy(), array)
