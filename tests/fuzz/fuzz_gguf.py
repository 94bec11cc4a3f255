"""Fuzz the loader and a frame of inference with damaged model files.

    python tests/fuzz/fuzz_gguf.py --minutes 30 [--first N] [--keep DIR]
    python tests/fuzz/fuzz_gguf.py --cases 3000

A worker process makes case after case: a tiny sound file, damaged by `mutate.py` as the case's number says, loaded and,
where it loads, run for one prefill, step, Fast-AR frame and codec frame. The case's file lies on disk before it is
loaded. When the worker dies, hangs, grows or meets an error of another kind than the documented ones, the parent keeps
that file, notes the case and goes on behind it. The last line is a JSON object of counts; exit code 1 for any find.

With sanitizers: build with -DDUALAR_SANITIZE=ON and run with LD_PRELOAD="$(gcc -print-file-name=libasan.so)
$(gcc -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

BATCH = 2000  # cases of one worker: a fresh process now and then
HANG_S = 20.0
GROWTH_KB = 100_000  # what the largest case may add to the process


def seed_files(folder: Path) -> list[tuple[bytes, int]]:
    """Sound files to damage, and a token id of each that may end speech."""
    from dualar import _core
    from fixtures.make_toy_model import write_toy_model
    from fixtures.s2_geometry import TINY

    fast = replace(TINY.slow, width=16, head_dim=8, qkv_bias=True, o_bias=True)
    other = replace(
        TINY,
        slow=replace(TINY.slow, qkv_bias=True, o_bias=True, layers=2, qk_norm=False),
        fast=fast,
        tie_word_embeddings=False,
        norm_fastlayer_input=False,
        write_key_length=False,
    )
    stack = replace(TINY.slow, width=256, heads=4, head_dim=64, feed_forward=256)
    wide = replace(TINY, slow=stack, fast=replace(stack, qk_norm=False))  # rows of a K type's block
    kinds = [(TINY, "F32", "F32"), (TINY, "Q8_0", "F16"), (other, "F16", "BF16"), (TINY, "Q4_0", "F32")]
    kinds += [(wide, name, "F16") for name in ("Q4_K", "Q5_K", "Q6_K")]
    files = []
    for i, (geometry, weights, codec) in enumerate(kinds):
        path = folder / f"seed-{i}.gguf"
        written = write_toy_model(
            path,
            geometry=geometry,
            weight_type=weights,
            codec_type=codec,
            quantize=_core.quantize,
            with_tokenizer_inside=False,
        )
        files.append((path.read_bytes(), written.semantic_begin_id - 1))
    return files


# ------------------------------------------------------------------ the worker
def run_case(path: Path, im_end_id: int, runtime: object) -> str:
    """Load the file and use what loads; how far it came, in a word. Any other error than the documented ones leaves."""
    import numpy as np
    from dualar import BackendError, ModelError, _core

    assert isinstance(runtime, _core.Runtime)
    try:
        file = _core.ModelFile(str(path))
        file.tensors()
    except ModelError:
        return "no file"
    with contextlib.suppress(ModelError):
        _ = file.metadata
    reached = []
    try:
        model = _core.DualAR(file, runtime, im_end_id=im_end_id)
    except ModelError:
        reached.append("no model")
    except ValueError as error:
        assert "im_end_id" in str(error)  # the one argument: the file may have few tokens
        reached.append("no model")
    else:
        positions = min(8, model.context_length)
        session = model.session(max_positions=positions)
        prompt = np.zeros((1 + model.num_codebooks, min(5, positions)), np.int32)
        prompt[0] = model.main_ids[0]
        out = session.prefill(prompt)
        frame = "frame"
        if model.has_fast_ar and model.num_codebooks > 1:
            try:
                session.fast_begin(out.hidden, 0)
                if model.num_codebooks > 2:
                    session.fast_step(model.codebook_size - 1)
                draw = _core.Sampler("fish", temperature=0.7, top_p=0.8, top_k=30), 1, 0
                _core.Batch(model).fast_frames([session], out.hidden[None], np.zeros(1, np.int32), [draw])
            except ModelError as error:
                assert "expected logits to draw from" in str(error)
                frame = "NaN"
            except ValueError as error:
                assert "finite" in str(error)  # the weights are damaged, and it is seen
                frame = "NaN"
        if session.position < positions:
            session.step(prompt[:, 0], full_vocab=True)
        reached.append(frame)
    try:
        codec = _core.Codec(file, runtime)
    except ModelError:
        reached.append("no codec")
    else:
        try:
            stream = codec.stream(max_frames=2)
            stream.push(np.zeros((codec.num_codebooks, 1), np.int32))
            stream.push(np.full((codec.num_codebooks, 2), 2**31 - 1, np.int32))
            if codec.can_encode:
                wave = np.sin(np.arange(2 * codec.samples_per_frame, dtype=np.float32))
                codec.encoder(max_frames=2).push(wave)
            reached.append("sound")
        except BackendError as error:
            assert "[memory]" in str(error)
            reached.append("no memory")
    return ", ".join(reached)


def work(folder: Path, first: int, count: int) -> None:
    """Cases first .. first + count - 1, a line on stdout for each."""
    import resource

    from dualar import _core
    from fuzz.mutate import mutate

    faulthandler.enable()
    seeds = seed_files(folder)
    runtime = _core.Runtime(threads=1)
    path = folder / "case.gguf"
    for case in range(first, first + count):
        data, im_end_id = seeds[case % len(seeds)]
        path.write_bytes(mutate(data, case))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(case, end=" ", flush=True)
        print(run_case(path, im_end_id, runtime), flush=True)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown > GROWTH_KB:
            raise MemoryError(f"case {case} took {grown} kB")


# ------------------------------------------------------------------ the parent
class Watch:
    """Runs workers and notes what they give."""

    def __init__(self, keep: Path) -> None:
        self.keep = keep
        self.counts: Counter[str] = Counter()
        self.finds: list[str] = []
        self.cases = 0

    def batch(self, folder: Path, first: int, count: int, until: float) -> int:
        """One worker; the case to go on with."""
        command = [sys.executable, __file__, "--worker", str(folder), "--first", str(first), "--cases", str(count)]
        errors = folder / "stderr.txt"
        with errors.open("wb") as stderr, (folder / "stdout.txt").open("wb") as stdout:
            worker = subprocess.Popen(command, stdout=stdout, stderr=stderr)
            try:
                what = self._wait(worker, folder / "stdout.txt", until)
            finally:
                worker.kill()
                worker.wait()
        lines = (folder / "stdout.txt").read_text().splitlines()
        done = [line.split(" ", 1) for line in lines if " " in line and line.split(" ", 1)[1]]
        self.counts.update(outcome for _, outcome in done)
        self.cases += len(done)
        after = int(done[-1][0]) + 1 if done else first
        if what is None:
            return after
        self.keep.mkdir(parents=True, exist_ok=True)
        if (folder / "case.gguf").exists():
            shutil.copy(folder / "case.gguf", self.keep / f"case-{after}.gguf")
        text = errors.read_text(errors="replace")
        (self.keep / f"case-{after}.txt").write_text(text)
        self.finds.append(f"case {after}: {what}; {text.strip().splitlines()[-1][:200] if text.strip() else ''}")
        print(f"FIND {self.finds[-1]}", flush=True)
        return after + 1

    def _wait(self, worker: subprocess.Popen[bytes], output: Path, until: float) -> str | None:
        """None where the worker ended well or time was up, else what went wrong."""
        size, since, before = -1, time.monotonic(), time.monotonic()
        while (code := worker.poll()) is None:
            time.sleep(0.05)
            now = time.monotonic()
            since += max(0.0, now - before - 1)  # this process was stopped for a while, or the machine slept
            before = now
            if (new := output.stat().st_size) != size or _is_stopped(worker.pid):
                size, since = new, now
            if now > until:
                return None
            if now - since > HANG_S + (60 if size <= 0 else 0):
                return f"no progress for {HANG_S:.0f} s"
        return None if code == 0 else f"exit code {code}"


def _is_stopped(pid: int) -> bool:
    """Does somebody hold the process (SIGSTOP)? That is no hang."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] == "T"
    except OSError:
        return False


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Fuzz dualar's loader with damaged GGUF files.")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--cases", type=int, default=1 << 62, help="stop after so many")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (default %(default)s)")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-finds"), help="where finds go (default %(default)s)")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.first, options.cases)
        return 0
    started = time.monotonic()
    until = started + options.minutes * 60
    watch, case, end = Watch(options.keep), options.first, options.first + options.cases
    while case < end and time.monotonic() < until:
        with tempfile.TemporaryDirectory() as folder:
            case = watch.batch(Path(folder), case, min(BATCH, end - case), until)
    seconds = time.monotonic() - started
    print(json.dumps({"cases": watch.cases, "seconds": round(seconds), "outcomes": watch.counts, "finds": watch.finds}))
    return 1 if watch.finds else 0


if __name__ == "__main__":
    sys.exit(main())
