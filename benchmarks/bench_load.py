"""What a program waits for before its first sound: loading a model, and its first request beside the next ones.

    python benchmarks/bench_load.py MODEL [MODEL ...] [--runs N] [--threads N] [--frames N]

MODEL is a GGUF file, or "voice" for the package's. Each run is a process of its own, which imports dualar, loads the
file and makes the same short request three times: codes for a blank prompt, and their sound where the file has a codec.
The file is in the page cache, as it is from the second start on. Owns what is measured; leaves printing to `report.py`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import report

WORKER = r"""
import json, sys, time
path, threads, frames = sys.argv[1], int(sys.argv[2]) or None, int(sys.argv[3])
began = time.perf_counter()
import dualar
imported = time.perf_counter() - began
options = {}
if path != "voice":  # random weights may have no tokenizer
    from dualar.families.registry import kind_of
    from dualar.runtime import open_file
    file = open_file(path)
    options["im_end_id"] = kind_of(file.architecture).some_end(file)
    del file
began = time.perf_counter()
engine = dualar.load(None if path == "voice" else path, threads=threads, **options)
took = [imported, time.perf_counter() - began]
model = engine.model
try:
    codec = engine.codec
except dualar.ModelError:
    codec = None
prompt = engine.parts.family.blank_prompt(model, 8)
for _ in range(3):
    began = time.perf_counter()
    made = engine.generate(prompt, seed=1, max_new_tokens=frames, min_tokens_before_end=frames, stall_guard=None)
    if codec is not None:
        codec.decode(made.codes)
    took.append(time.perf_counter() - began)
print(json.dumps(took))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help='GGUF files, or "voice"')
    parser.add_argument("--runs", type=int, default=5, help="processes for each file (%(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="(default: what the machine allows)")
    parser.add_argument("--frames", type=int, default=2, help="of a request (%(default)s)")
    options = parser.parse_args()
    print(report.describe(threads=options.threads, warmups=1))
    for path in options.models:
        given = [str(number) for number in (options.threads, options.frames)]
        taken: list[list[float]] = []
        for _ in range(options.runs + 1):
            worker = [sys.executable, "-c", WORKER, path, *given]
            taken.append(json.loads(subprocess.run(worker, check=True, stdout=subprocess.PIPE, text=True).stdout))
        runs = taken[1:]  # the first brought the file into the page cache
        print(f"{path}, {options.runs} runs")
        columns = [
            ("import", [run[0] for run in runs]),
            ("load", [run[1] for run in runs]),
            ("first request", [run[2] for run in runs]),
            ("second", [run[3] for run in runs]),
            ("third", [run[4] for run in runs]),
            ("load + first", [run[1] + run[2] for run in runs]),
        ]
        for name, seconds in columns:
            s = report.Summary.of(1e3 * value for value in seconds)
            print(f"  {name:<14} {s.median:7.0f} ms ({s.q1:.0f}-{s.q3:.0f})")
        ratio = report.Summary.of(run[2] / run[3] for run in runs)
        print(f"  first / second {ratio.median:7.2f}    ({ratio.q1:.2f}-{ratio.q3:.2f})", flush=True)


if __name__ == "__main__":
    main()
