"""Calls of malloc and its kin in one frame: a Slow-AR step and a Fast-AR frame of a small model.

    python benchmarks/count_allocations.py [--frames N]

Needs a C compiler and Linux: a small library that counts is preloaded, for which the script starts itself again. What
is counted is all of the process, the numpy arrays that a call gives back included; Python's own small objects have an
allocator of their own and are not seen. The model is the toy model of `tests/fixtures`.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static long calls, bytes;
long counted_calls(void) { return calls; }
long counted_bytes(void) { return bytes; }
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static void count(size_t n) {
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&bytes, n, __ATOMIC_RELAXED);
}
void *malloc(size_t n) { count(n); return __libc_malloc(n); }
void *calloc(size_t k, size_t n) { count(k * n); return __libc_calloc(k, n); }
void *realloc(void *p, size_t n) { count(n); return __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { count(n); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { count(n); *p = __libc_memalign(a, n); return *p ? 0 : 12; }
"""
MARK = "DUALAR_COUNT_ALLOCATIONS"


def preloaded() -> None:
    """Start this script again with the counting library in front of the C library."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "count.c"), Path(folder, "count.so")
        source.write_text(SOURCE)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        environment = os.environ | {"LD_PRELOAD": str(library), MARK: str(library)}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode)


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description="Count a frame's allocations.")
    options.add_argument("--frames", type=int, default=100, help="frames to take the mean of (%(default)s)")
    frames = options.parse_args().frames
    if MARK not in os.environ:
        preloaded()
    from dualar import _core
    from fixtures.make_toy_model import write_toy_model

    counter = ctypes.CDLL(os.environ[MARK])
    counter.counted_calls.restype = counter.counted_bytes.restype = ctypes.c_long
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "toy.gguf")
        write_toy_model(path, seed=0)
        model = _core.DualAR(_core.ModelFile(str(path)), _core.Runtime(threads=2), im_end_id=0)
        session = model.session(max_positions=8)
        prompt = np.zeros((1 + model.num_codebooks, 4), np.int32)
        out = session.prefill(prompt)
        column = np.concatenate([[model.semantic_begin_id], np.zeros(model.num_codebooks)]).astype(np.int32)
        batch, row = _core.Batch(model), [session]
        draws = [(_core.Sampler("fish", temperature=0.7, top_p=0.8, top_k=30), 1, 0)]
        hidden, codes, columns = out.hidden[None], np.zeros(1, np.int32), column[None]

        def step() -> None:
            batch.step(row, columns)
            session.truncate(4)

        def frame() -> None:
            batch.fast_frames(row, hidden, codes, draws)

        parts: dict[str, Callable[[], None]] = {"Slow-AR step": step, "Fast-AR frame, draws included": frame}
        for name, run in parts.items():
            for _ in range(5):
                run()
            calls, nbytes = counter.counted_calls(), counter.counted_bytes()
            for _ in range(frames):
                run()
            calls, nbytes = counter.counted_calls() - calls, counter.counted_bytes() - nbytes
            print(f"{name}: {calls / frames:.2f} allocations, {nbytes / frames:.0f} bytes")
        size = model.codebook_size
        print(
            f"{model.num_codebooks} codebooks of {size}; a step gives back {4 * (size + 1 + model.hidden_size)} bytes"
        )


if __name__ == "__main__":
    main()
