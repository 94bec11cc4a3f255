"""Damage to GGUF files, for the fuzzer: a function of a seed.

Owns the kinds of damage: to the numbers, names and types of the header, consistent changes that a reader cannot refuse
for their form, and blind changes of bytes. Leaves running what comes out to `fuzz_gguf.py`.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable
from random import Random

from fixtures.gguf_raw import ARRAY, BLOCKS, SIZES, STRING, UINT32, Key, RawGguf, Tensor, nbytes, string

EDGES = [0, 1, 2, 3, 7, 8, 31, 33, 64, 255, 256, 1 << 15, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
         1 << 32, 1 << 42, (1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]  # fmt: skip
MOST = 1 << 22  # bytes of a tensor that was made larger
FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e-6, 1e6, 1e12, 3e38, float("inf"), -float("inf"), float("nan")]


def number(rng: Random, old: int) -> int:
    """A number near an old one, at an edge, or small."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(EDGES)
    if kind == 1:
        return old + rng.choice([-2, -1, 1, 2])
    if kind == 2:
        return old * rng.choice([2, 3, 256, 1 << 20])
    if kind == 3:
        return max(old, 0) // 2
    return rng.randrange(0, 200)


def _change_value(rng: Random, raw: RawGguf) -> None:
    key = rng.choice(raw.keys)
    if key.type == STRING:
        key.value = string(rng.choice([b"", b"fish-speech", b"\xff\xfe", b"A" * 5000, b"\0", rng.randbytes(20)]))
    elif key.type == ARRAY:
        element = int.from_bytes(key.value[:4], "little")
        n = rng.choice([0, 1, 2, 3, 5, 17])
        size = SIZES.get(element, 4)
        items = b"".join((number(rng, 2) % (1 << 8 * size)).to_bytes(size, "little") for _ in range(n))
        claimed = n if rng.random() < 0.8 else number(rng, n)
        key.value = struct.pack("<IQ", element, claimed % (1 << 64)) + items
    elif key.type in (6, 12):
        key.value = struct.pack("<f" if key.type == 6 else "<d", rng.choice(FLOATS))
    else:
        size = SIZES.get(key.type, len(key.value))  # an earlier change may have made the type unknown
        key.value = (number(rng, int.from_bytes(key.value, "little")) % (1 << 8 * size)).to_bytes(size, "little")


def _widen_value(rng: Random, raw: RawGguf) -> None:
    """Another integer type, with any number that it holds."""
    key = rng.choice(raw.keys)
    key.type = rng.choice([0, 1, 2, 3, 4, 5, 10, 11])
    size = SIZES[key.type]
    key.value = (number(rng, int.from_bytes(key.value[:8], "little")) % (1 << 8 * size)).to_bytes(size, "little")


def _change_key(rng: Random, raw: RawGguf) -> None:
    i = rng.randrange(len(raw.keys))
    kind = rng.randrange(5)
    if kind == 0:
        del raw.keys[i]
    elif kind == 1:
        raw.keys.insert(rng.randrange(len(raw.keys)), copy.copy(raw.keys[i]))
    elif kind == 2:
        raw.keys[i].type = rng.choice([*range(14), 1 << 31, (1 << 32) - 1])
    elif kind == 3:
        raw.keys[i].name = _name(rng, raw.keys[i].name)
    else:
        raw.keys.append(Key(b"general.alignment", UINT32, struct.pack("<I", rng.choice(EDGES) % (1 << 32))))


def _name(rng: Random, name: bytes) -> bytes:
    return rng.choice(
        [b"", b"\0", b"\xff" + name, name + b"\n", name[:-1], name * 40, b"n" * 2000, rng.randbytes(12), name + b"x"]
    )


def _change_tensor(rng: Random, raw: RawGguf) -> None:
    i = rng.randrange(len(raw.tensors))
    tensor, kind = raw.tensors[i], rng.randrange(8)
    if kind == 0:
        del raw.tensors[i]
    elif kind == 1:
        raw.tensors.append(copy.copy(tensor))
    elif kind == 2:
        tensor.name = _name(rng, tensor.name)
    elif kind == 3:
        tensor.dims[rng.randrange(len(tensor.dims))] = number(rng, rng.choice(tensor.dims))
    elif kind == 4:
        tensor.type = rng.choice([*range(42), 1 << 31, (1 << 32) - 1])
    elif kind == 5:
        tensor.n_dims = rng.choice([0, 1, 2, 3, 4, 5, 100, (1 << 32) - 1])
    elif kind == 6:
        tensor.offset = rng.choice([*EDGES, 32, 4096, rng.randrange(1 << 18)])
    else:
        tensor.dims = [number(rng, 4) for _ in range(rng.randrange(5))]


def _reshape(rng: Random, raw: RawGguf) -> None:
    """A tensor of another shape or type whose data fits it: well-formed, and wrong for the model."""
    tensor = rng.choice(raw.tensors)
    if rng.random() < 0.5 and tensor.dims:
        d = rng.randrange(len(tensor.dims))
        tensor.dims[d] = max(1, number(rng, tensor.dims[d]) % 512)
    if rng.random() < 0.2:
        rng.shuffle(tensor.dims)
    fits = [kind for kind, (values, _) in BLOCKS.items() if not tensor.dims or tensor.dims[0] % values == 0]
    tensor.type = rng.choice(fits)
    size = min(nbytes(tensor.dims, tensor.type), MOST)
    tensor.data = (tensor.data * (size // max(1, len(tensor.data)) + 1))[:size]


def _retype_all(rng: Random, raw: RawGguf) -> None:
    """Every matrix in another type, as a quantizer would write it; its values are noise."""
    for tensor in raw.tensors:
        kind = rng.choice([0, 1, 2, 8, 30])
        size = nbytes(tensor.dims, kind)
        if len(tensor.dims) > 1 and tensor.dims[0] % BLOCKS[kind][0] == 0 and size <= MOST and rng.random() < 0.7:
            tensor.type = kind
            tensor.data = rng.randbytes(size)


def _refactor(rng: Random, raw: RawGguf) -> None:
    """Numbers that the tensors' shapes do not pin down: heads against head_dim, windows, contexts, ranges, flags."""
    uints = {
        key.name.decode(errors="replace"): int.from_bytes(key.value, "little") for key in raw.keys if key.type == UINT32
    }
    for _ in range(rng.randrange(1, 4)):
        pick = rng.choice(
            ["fish-speech.context_length", "fish_speech.semantic_begin_id", "fish_speech.semantic_end_id",
             "fish_speech.codec.rvq_transformer.window_size", "fish_speech.codec.sample_rate",
             "fish_speech.fast_context_length", "heads", "fast heads", "rvq heads", "flag"]
        )  # fmt: skip
        if pick == "flag":
            for key in rng.sample(flags := [key for key in raw.keys if key.type == 7], min(2, len(flags))):
                key.value = rng.choice([b"\0", b"\1", b"\xff"])
        elif pick.endswith("heads"):
            names = {
                "heads": ("fish-speech.attention.head_count", "fish-speech.attention.key_length"),
                "fast heads": ("fish_speech.fast_head_count", "fish_speech.fast_head_dim"),
                "rvq heads": ("fish_speech.codec.rvq_transformer.n_head", "fish_speech.codec.rvq_transformer.head_dim"),
            }[pick]
            if all(name in uints for name in names):
                factor = rng.choice([2, 4, 8])
                raw.set_uint(names[0], uints[names[0]] * factor)
                raw.set_uint(names[1], uints[names[1]] // factor)
                if pick != "rvq heads" and names[0] + "_kv" in uints:
                    raw.set_uint(names[0] + "_kv", uints[names[0] + "_kv"] * factor)
        elif pick in uints:
            raw.set_uint(pick, number(rng, uints[pick]) % (1 << 32))


def _change_header(rng: Random, raw: RawGguf) -> None:
    kind = rng.randrange(4)
    if kind == 0:
        raw.n_keys = number(rng, len(raw.keys))
    elif kind == 1:
        raw.n_tensors = number(rng, len(raw.tensors))
    elif kind == 2:
        raw.version = rng.choice([0, 1, 2, 4, 1 << 24, 3 << 24, (1 << 32) - 1])
    else:
        raw.magic = rng.choice([b"GGUD", b"\0\0\0\0", b"gguf", b"", b"FUGG"])


def _spoil_data(rng: Random, raw: RawGguf) -> None:
    """Weights that are NaN, infinite, huge or noise."""
    for _ in range(rng.choice([1, 1, 3, 20])):
        tensor: Tensor = rng.choice(raw.tensors)
        fill = rng.choice([b"\xff", b"\0", b"\x7f", b"\x00\x00\x80\x7f", b"\x00\x7c", b"\xff\xff\x7f\x7f", None])
        n = len(tensor.data)
        tensor.data = rng.randbytes(n) if fill is None else (fill * (n // len(fill) + 1))[:n]


STRUCTURAL: list[Callable[[Random, RawGguf], None]] = [
    _change_value,
    _change_value,
    _widen_value,
    _change_key,
    _change_tensor,
    _reshape,
    _retype_all,
    _refactor,
    _refactor,
    _change_header,
    _spoil_data,
    _spoil_data,
]


def _blind(rng: Random, data: bytes, header: int) -> bytes:
    """Changes of bytes that know nothing of the format; most of them in the header."""
    out = bytearray(data)
    kind = rng.randrange(5)
    if kind == 0:
        return bytes(out[: rng.randrange(len(out))])
    if kind == 1:
        return bytes(out[: rng.randrange(header)])
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(header if rng.random() < 0.9 else len(out))
        if kind == 2:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            out[at : at + 8] = (rng.choice(EDGES) % (1 << 64)).to_bytes(8, "little")
        else:
            out[at : at + rng.randrange(9)] = rng.randbytes(rng.randrange(9))
    return bytes(out)


def mutate(data: bytes, seed: int) -> bytes:
    """The file `data`, damaged; one seed, one damage."""
    rng = Random(seed)
    raw = RawGguf.parse(data)
    changed = rng.random() < 0.85
    if changed:
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            if raw.keys and raw.tensors:
                rng.choice(STRUCTURAL)(rng, raw)
    out = raw.write()
    if not changed or rng.random() < 0.1:
        out = _blind(rng, out, min(len(out), raw.marks.get("data 0", len(out))))
    return out
