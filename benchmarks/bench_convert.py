"""Memory and time that `dualar convert` takes for a published folder of S1-mini's layout and size, with random weights.

    python benchmarks/bench_convert.py [--types q8_0 f16] [--folder FOLDER] [--keep]

The folder is made first (some 3 GB: model.pth in BF16, codec.pth in F32 with weight norm, a vocabulary of 151,000
tokens), each conversion runs in a process of its own, and all is removed at the end unless `--keep` is given. What is
watched is the process's own memory, as Linux tells it in /proc every few milliseconds: anonymous pages, which no file
can give back, and all that is resident, in which the mapped files count too.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import report

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from fixtures.s2_layout import MINI, TensorSpec, tensor_specs
from fixtures.torch_files import Call, Global, Persistent, Storages, write_zip

S1_MINI = replace(MINI, tie_word_embeddings=False)

_POOL = np.random.default_rng(0).standard_normal(1 << 22, np.float32) / np.float32(32)
_TOKENS = 151_000
_SPECIAL = ["begin_of_text", "end_of_text", "pad", "im_start", "im_end", "text", "voice", "interleave"]
_INTERVAL_S = 0.002


@dataclass(frozen=True)
class Drawn:
    """Random values that are there only while they are written."""

    size: int
    bf16: bool

    def tobytes(self) -> bytes:
        """The pool, as often as it takes."""
        values = np.resize(_POOL, self.size)
        return ((values.view("<u4") >> 16).astype("<u2") if self.bf16 else values).tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", nargs="+", default=["q8_0", "f16", "f32"], help="values of --type (%(default)s)")
    parser.add_argument("--folder", type=Path, help="where to make it (by default a new temporary folder)")
    parser.add_argument("--keep", action="store_true", help="leave the folder, and use it if it is there")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="dualar-convert-"))
    checkpoint = folder / "checkpoint"
    try:
        if not (checkpoint / "codec.pth").exists():
            make(checkpoint)
        size = sum(file.stat().st_size for file in checkpoint.iterdir())
        print(report.describe(threads=1))
        report.section(f"dualar convert of {size / 1e9:.2f} GB")
        rows = []
        for kind in options.types:
            peak = converted(checkpoint, folder / "model.gguf", kind)
            rows.append([kind, *(report.number(value) for value in peak)])
        titles = ("--type", "anonymous peak, MB", "resident peak, MB", "seconds", "file, GB")
        print(report.table(titles, rows))
    finally:
        if not options.keep:
            shutil.rmtree(folder)


def make(folder: Path) -> None:
    """The published folder."""
    folder.mkdir(parents=True, exist_ok=True)
    g, f = S1_MINI.slow, S1_MINI.fast
    assert f is not None
    config = {
        "model_type": "dual_ar",
        "vocab_size": S1_MINI.vocab_size,
        "n_layer": g.layers,
        "n_head": g.heads,
        "n_local_heads": g.kv_heads,
        "head_dim": g.head_dim,
        "dim": g.width,
        "intermediate_size": g.feed_forward,
        "rope_base": g.rope_base,
        "norm_eps": g.eps,
        "max_seq_len": S1_MINI.context_length,
        "tie_word_embeddings": S1_MINI.tie_word_embeddings,
        "attention_qk_norm": g.qk_norm,
        "codebook_size": S1_MINI.codebook_size,
        "num_codebooks": S1_MINI.num_codebooks,
        "scale_codebook_embeddings": True,
        "n_fast_layer": f.layers,
        "fast_dim": f.width,
        "fast_n_head": f.heads,
        "fast_n_local_heads": f.kv_heads,
        "fast_head_dim": f.head_dim,
        "fast_intermediate_size": f.feed_forward,
        "fast_attention_qk_norm": f.qk_norm,
    }
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    specs = tensor_specs(S1_MINI, weight_type="F32", codec_type="F32")
    write_tensors(folder / "model.pth", [s for s in specs if not s.name.startswith("c.")], bf16=True)
    write_tensors(folder / "codec.pth", list(weight_normed(s for s in specs if s.name.startswith("c."))), bf16=False)


def weight_normed(specs: Iterator[TensorSpec]) -> Iterator[TensorSpec]:
    """The codec's tensors by the checkpoint's names, each convolution's weight as gain and direction."""
    for spec in specs:
        name = spec.name.removeprefix("c.")
        if len(spec.shape) == 3 and name.endswith(".weight"):
            stem = name.removesuffix("weight") + "parametrizations.weight.original"
            yield TensorSpec(f"{stem}0", (spec.shape[0], 1, 1))
            yield TensorSpec(f"{stem}1", spec.shape)
        else:
            yield TensorSpec(name, spec.shape)


def write_tensors(path: Path, specs: list[TensorSpec], *, bf16: bool) -> None:
    arrays, value = {}, {}
    for i, spec in enumerate(specs):
        size = int(np.prod(spec.shape))
        kind = Global("torch", "BFloat16Storage" if bf16 else "FloatStorage")
        strides = tuple(int(np.prod(spec.shape[axis + 1 :])) for axis in range(len(spec.shape)))
        arguments = (Persistent(("storage", kind, str(i), "cpu", size)), 0, spec.shape, strides, False, None)
        value[spec.name] = Call(Global("torch._utils", "_rebuild_tensor_v2"), arguments)
        arrays[str(i)] = Drawn(size, bf16)
    write_zip(path, value, Storages(arrays))  # type: ignore[arg-type]


def write_tokenizer(folder: Path) -> None:
    """A vocabulary of random pairs of tokens that are there before."""
    rng = np.random.default_rng(1)
    tokens = [bytes([byte]) for byte in range(256)]
    known = set(tokens)
    while len(tokens) < _TOKENS:
        left, right = (tokens[int(i)] for i in rng.integers(0, len(tokens), 2))
        if len(left + right) <= 12 and left + right not in known:
            tokens.append(left + right)
            known.add(left + right)
    lines = (f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens))
    (folder / "tokenizer.tiktoken").write_text("".join(lines))
    names = [*_SPECIAL, *(f"semantic:{code}" for code in range(S1_MINI.codebook_size))]
    special = {f"<|{name}|>": _TOKENS + i for i, name in enumerate(names)}
    (folder / "special_tokens.json").write_text(json.dumps(special))


def converted(checkpoint: Path, output: Path, kind: str) -> tuple[float, float, float, float]:
    """Peaks of anonymous and of resident memory in MB, seconds, GB of the file."""
    command = [
        sys.executable,
        "-m",
        "dualar",
        "convert",
        str(checkpoint),
        "-o",
        str(output),
        "--type",
        kind,
        "-q",
        "-f",
    ]
    began = time.perf_counter()
    process = subprocess.Popen(command)
    anonymous = resident = 0.0
    while process.poll() is None:
        status = memory(process.pid)
        anonymous, resident = max(anonymous, status.get("RssAnon", 0)), max(resident, status.get("VmRSS", 0))
        time.sleep(_INTERVAL_S)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"dualar convert ended with exit code {process.returncode}")
    size = output.stat().st_size / 1e9
    output.unlink()
    return anonymous / 1e3, resident / 1e3, seconds, size


def memory(pid: int) -> dict[str, float]:
    """Its memory in kB of 1000 bytes, by Linux's names; nothing once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(value) * 1.024 for name, value, _ in fields}


if __name__ == "__main__":
    main()
