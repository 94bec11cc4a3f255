"""A request with a voice to its first frame: the voice computed, and kept; and what earlier turns add to it.

    python benchmarks/bench_prefix.py [MODEL] [--voice FRAMES] [--text TOKENS] [--context POSITIONS]

Owns the prompts, which are random numbers in the right places, and the comparison, whose frames must be equal; the
model comes from models.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import models
import numpy as np
import numpy.typing as npt
import report
from dualar import _core
from dualar.generation.batch import Batch
from dualar.generation.prefix_cache import PrefixCache
from dualar.generation.requests import GenerationRequest

HEAD, FRAMES = 30, 500  # tokens before the recording; room for the answer


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="mini", help="a preset of models.py or a GGUF file (%(default)s)")
    parser.add_argument("--voice", type=int, default=215, help="frames of the recording (%(default)s: 10 s)")
    parser.add_argument("--text", type=int, default=60, help="tokens of the text and the template (%(default)s)")
    parser.add_argument("--context", type=int, default=550, help="positions of an earlier turn (%(default)s)")
    models.add_folder_option(parser)
    report.add_timing_options(parser, rounds=5)
    options = parser.parse_args()
    report.use_threads(options.threads)
    path = models.resolve(options.model, folder=options.folder)
    runtime = _core.Runtime(threads=options.threads)
    model = _core.DualAR(_core.ModelFile(str(path)), runtime, im_end_id=models.IM_END_ID)
    model.load()
    cache = PrefixCache(2**34)
    short = _prompt(model, options.voice, options.text)
    long = _prompt(model, options.voice, options.text + options.context)

    def run(prompt: npt.NDArray[np.int32], kept: PrefixCache | None) -> Callable[[], npt.NDArray[np.int32]]:
        request = GenerationRequest(prompt=prompt, seed=1, max_new_tokens=FRAMES, min_tokens_before_end=1)

        def once() -> npt.NDArray[np.int32]:
            batch = Batch(model, max_rows=1, prefix_cache=kept)
            row = batch.join(request)
            while not row.frames:
                batch.step()
            batch.close()
            return row.result().codes

        return once

    runs = {
        "computed": run(short, None),
        "the voice kept": run(short, cache),
        "the voice kept, an earlier turn": run(long, cache),
    }
    if not np.array_equal(runs["computed"](), runs["the voice kept"]()):
        raise SystemExit("what was computed and what was kept differ: there is nothing to compare")
    extra = {"model": path.name, "positions": f"{HEAD + options.voice + 1} of the voice, {options.text} of the text"}
    print(report.describe(threads=options.threads, warmups=options.warmups, extra=extra))
    taken = report.interleave(runs, rounds=options.rounds, warmups=options.warmups, rest=options.rest)
    report.section("Milliseconds to the first frame")
    print(report.table(report.TIMING_HEADER, [report.timing_row(name, times) for name, times in taken.items()]))
    print("computed / kept:", report.ratio_text(report.ratio(taken["computed"], taken["the voice kept"])))
    print(f"kept: {cache.nbytes / 1e6:.1f} MB")


def _prompt(model: _core.DualAR, voice: int, text: int) -> npt.NDArray[np.int32]:
    """A recording between tokens, the end of its message, and a text; the same numbers each time."""
    rng = np.random.default_rng(0)
    prompt = np.zeros((1 + model.num_codebooks, HEAD + voice + 1 + text), np.int32)
    prompt[1:, HEAD : HEAD + voice] = rng.integers(0, model.codebook_size, (model.num_codebooks, voice))
    prompt[0, :HEAD] = rng.integers(0, 1000, HEAD)
    prompt[0, HEAD : HEAD + voice] = model.semantic_begin_id + prompt[1, HEAD : HEAD + voice]
    prompt[0, HEAD + voice] = models.IM_END_ID
    prompt[0, HEAD + voice + 1 :] = rng.integers(0, 1000, text)
    return prompt


if __name__ == "__main__":
    main()
