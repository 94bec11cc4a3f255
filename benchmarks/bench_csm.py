"""Speed of Sesame CSM's autoregression: the backbone's step, the depth decoder's 31 codes, and the whole frame, beside
transformers in float32.

    python benchmarks/bench_csm.py [--type q8_0 q4_k f32] [--context 128] [--transformers]

The models have random weights at the published 1B geometry, made on first use and then kept. With --transformers (pip
install "transformers>=4.52" torch) the published code runs a network of the same geometry in the same turns. Owns that
geometry and what is measured; leaves timing and printing to `report.py`, the file's layout to `dualar.convert`.
"""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import limits
import models
import numpy as np
import report
from bench_qwen3 import frame_calls, random_tensors
from dualar import _core
from dualar.convert import csm
from dualar.convert.gguf_writer import write_gguf
from dualar.convert.quantize import BLOCKS
from dualar.convert.settings import Settings
from dualar.families.base import CoreModel
from dualar.families.csm import CsmFamily

_ROPE = {"factor": 32.0, "rope_type": "llama3"}
CONFIG: dict[str, Any] = {
    "model_type": "csm",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": _ROPE
    | {"low_freq_factor": 0.125, "high_freq_factor": 0.5, "original_max_position_embeddings": 1024},
    "max_position_embeddings": 2048,
    "text_vocab_size": 128256,
    "vocab_size": 2051,
    "num_codebooks": 32,
    "tie_codebooks_embeddings": True,
    "codec_config": {"model_type": "mimi", "codebook_size": 2048},
    "depth_decoder_config": {
        "hidden_size": 1024,
        "backbone_hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": _ROPE
        | {"low_freq_factor": 0.001953125, "high_freq_factor": 0.0078125, "original_max_position_embeddings": 16},
        "max_position_embeddings": 33,
        "vocab_size": 2051,
        "num_codebooks": 32,
    },
}
FRAME_MS = 80.0


def ensure(weight_type: str, *, folder: Path) -> Path:
    """The path of the model, made if it is not there."""
    path = folder / f"csm-1b-{weight_type}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        settings = Settings(CONFIG, source="the published geometry")
        metadata, plan = csm.describe(settings, (), pairs_apart=True)
        settings.require()
        print(f"making {path}", flush=True)
        partial = folder / f"{path.name}.{os.getpid()}.partial"
        try:
            write_gguf(partial, metadata, random_tensors(plan, weight_type))
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def frame_bytes(file: _core.ModelFile) -> tuple[int, int]:
    """Bytes of weights that a frame reads in the backbone and in the depth decoder: the layers at each pass, and each
    codebook's head once."""
    read = {"backbone": 0, "depth": 0}
    for name, kind, shape in file.tensors():
        values, size = BLOCKS[kind]
        part = "depth" if CsmFamily.part_of(name) == CsmFamily.model_parts[0] else "backbone"
        passes = 31 if part == "depth" and "layers." in name else 1
        if "embeddings" not in name:
            read[part] += prod(shape) * size // values * passes
    return read["backbone"], read["depth"]


def parts(family: CsmFamily, model: CoreModel, context: int) -> dict[str, Callable[[], object]]:
    """The parts of a frame behind so many positions, and the frame with its codes drawn."""
    session = model.session(max_positions=context + 1)
    codes = np.random.default_rng(1).integers(1, model.codebook_size, size=model.num_codebooks).astype(np.int32)
    backbone, depth, _ = frame_calls(session, family.blank_prompt(model, context), codes)

    def frame() -> None:
        depth()
        backbone()

    return {"backbone": backbone, "depth decoder": depth, "frame": frame}


def published(context: int) -> Callable[[], object]:
    """A frame of the published code: a step of the backbone and 31 of the depth decoder, both with their caches."""
    import torch
    from transformers import CsmConfig, CsmForConditionalGeneration
    from transformers.cache_utils import DynamicCache
    from transformers.modeling_utils import no_init_weights

    settings = copy.deepcopy(CONFIG)
    del settings["codec_config"]
    with no_init_weights():
        net = CsmForConditionalGeneration(CsmConfig(**settings)).float().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0, 0.02)
    cache = DynamicCache()
    ids = torch.randint(1, 2048, (1, context, 32))

    def step(columns: Any) -> Any:
        with torch.no_grad():
            return net(input_ids=columns, past_key_values=cache, use_cache=True, output_hidden_states=True)

    step(ids)

    def frame() -> None:
        out = step(ids[:, -1:])
        cache.crop(context)
        hidden, inner = out.hidden_states[-1][:, -1], DynamicCache()
        code = torch.zeros((1, 1), dtype=torch.long)
        with torch.no_grad():
            first = torch.cat([code, code], dim=1)  # a place for the backbone's hidden state, and code 0
            given: dict[str, Any] = {"input_ids": first, "backbone_last_hidden_state": hidden}
            for _ in range(31):
                made = net.depth_decoder(**given, past_key_values=inner, use_cache=True, logits_to_keep=1)
                given = {"input_ids": made.logits[:, -1].argmax(-1, keepdim=True)}

    return frame


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    p = argparse.ArgumentParser(description="Measure CSM's backbone and depth decoder.")
    p.add_argument("--type", nargs="+", default=["q8_0"], help="weight types (%(default)s)")
    p.add_argument("--context", type=int, default=128, help="positions before a step (%(default)s)")
    p.add_argument("--transformers", action="store_true", help="the published code in float32 beside them")
    report.add_timing_options(p, rounds=7)
    models.add_folder_option(p)
    o = p.parse_args(arguments)
    report.use_threads(o.threads)
    runs: dict[str, Callable[[], object]] = {}
    read: dict[str, tuple[int, int]] = {}
    probe = limits.ReadProbe(threads=o.threads)
    for kind in o.type:
        file = _core.ModelFile(str(ensure(kind, folder=o.folder)))
        family = CsmFamily(file)
        model = family.load_model(file, _core.Runtime(threads=o.threads), None, None)
        assert not isinstance(model, str)
        model.load()
        read[kind] = frame_bytes(file)
        runs |= {f"{kind}: {name}": run for name, run in parts(family, model, o.context).items()}
    runs["memory read"] = probe
    if o.transformers:
        import torch

        torch.set_num_threads(o.threads)
        runs["transformers, float32: frame"] = published(o.context)
    print(report.describe(threads=o.threads, warmups=o.warmups), flush=True)
    seconds = report.interleave(runs, rounds=o.rounds, warmups=o.warmups, rest=o.rest)
    report.section(f"One frame (it sounds for {FRAME_MS:g} ms), behind {o.context} positions, ms")
    print(report.table(report.TIMING_HEADER, [report.timing_row(n, v) for n, v in seconds.items()]))
    rate = probe.rate(float(np.median(seconds["memory read"])))
    for kind in o.type:
        both = sum(read[kind])
        took = float(np.median(seconds[f"{kind}: frame"]))
        backbone, depth = (part / 1e9 for part in read[kind])
        print(f"{kind}: a frame reads {backbone:.2f} + {depth:.2f} GB, at {both / took / 1e9:.1f} GB/s where memory "
              f"gives {rate / 1e9:.1f}; real-time factor without the codec {took * 1e3 / FRAME_MS:.2f}")  # fmt: skip
        if o.transformers:
            ratios = np.array(seconds["transformers, float32: frame"]) / np.array(seconds[f"{kind}: frame"])
            low, mid, high = np.quantile(ratios, (0.25, 0.5, 0.75))
            print(f"{kind}: transformers takes {mid:.2f} times as long ({low:.2f}-{high:.2f})")


if __name__ == "__main__":
    main()
