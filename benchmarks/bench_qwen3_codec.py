"""Qwen3-TTS's codec at its published size, random weights: decoding whole and streamed, encoding, a speaker's vector.

    python benchmarks/bench_qwen3_codec.py [MODEL] [--threads N] [--push 1 2 4 8]

MODEL is a GGUF file; without one a file with random weights is made on first use. All runs are timed in turns. Owns the
file and what is measured; leaves names and shapes to `dualar.convert`, timing and printing to `report.py`.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable
from pathlib import Path

import models
import numpy as np
import numpy.typing as npt
import report
from bench_codec import Pushes, random_codes
from dualar import _core
from dualar.codec.codec import Codec
from dualar.convert.gguf_writer import Tensor, write_gguf
from dualar.convert.plan import Planned
from dualar.convert.quantize import to_bytes, type_of
from dualar.convert.qwen3_codec import codec_plan, speaker_part
from dualar.convert.settings import Settings
from dualar.gguf import names, qwen3_names
from dualar.voices.speaker_encoder import SpeakerEncoder

CODEC = {
    "model_type": "qwen3_tts_tokenizer_12hz",
    "encoder_valid_num_quantizers": 16,
    "input_sample_rate": 24000,
    "output_sample_rate": 24000,
    "decode_upsample_rate": 1920,
    "encode_downsample_rate": 1920,
    "decoder_config": {
        "latent_dim": 1024,
        "codebook_dim": 512,
        "codebook_size": 2048,
        "decoder_dim": 1536,
        "hidden_size": 512,
        "intermediate_size": 1024,
        "head_dim": 64,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "num_hidden_layers": 8,
        "num_quantizers": 16,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000,
        "sliding_window": 72,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
    },
    "encoder_config": {
        "codebook_dim": 256,
        "codebook_size": 2048,
        "hidden_size": 512,
        "intermediate_size": 2048,
        "head_dim": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "num_hidden_layers": 8,
        "num_filters": 64,
        "num_quantizers": 32,
        "norm_eps": 1e-5,
        "rope_theta": 10000,
        "upsampling_ratios": [8, 6, 5, 4],
    },
}
SPEAKER = {
    "sample_rate": 24000,
    "mel_dim": 128,
    "enc_dim": 1024,
    "enc_channels": [512, 512, 512, 512, 1536],
    "enc_kernel_sizes": [5, 3, 3, 3, 1],
    "enc_dilations": [1, 2, 3, 4, 1],
    "enc_attention_channels": 128,
    "enc_res2net_scale": 8,
    "enc_se_channels": 128,
}


def values(planned: Planned) -> npt.NDArray[np.float32]:
    """Random weights that keep activations finite: the same for one name each time."""
    rng = np.random.default_rng(zlib.crc32(planned.target.encode()))
    noise = rng.standard_normal(planned.shape, dtype=np.float32)
    if planned.target.endswith((".alpha", ".beta", "norm.weight")):
        return np.float32(1) + np.float32(0.1) * np.abs(noise)
    if planned.target.endswith("gamma"):
        return 0.1 + 0.01 * noise
    if len(planned.shape) == 1:
        return 0.01 * noise
    return noise / np.float32(np.sqrt(np.prod(planned.shape[1:])))


def make_model(path: Path, weight_type: str) -> None:
    """The codec and the speaker encoder at the published size."""
    config = Settings(CODEC, source="the benchmark")
    metadata, plan, _ = codec_plan(config, codebooks=16, codebook_size=2048)
    speaker = Settings(SPEAKER, source="the benchmark")
    speaker_metadata, speaker_plan = speaker_part(speaker, dim=1024)
    config.require()
    speaker.require()

    def tensor(planned: Planned) -> Tensor:
        kind = type_of(planned.storage, planned.shape, weight_type)
        return Tensor(
            planned.target, planned.shape, kind, lambda: [to_bytes(values(planned), kind, name=planned.target)]
        )

    write_gguf(
        path,
        {names.ARCHITECTURE_KEY: qwen3_names.ARCHITECTURE, **metadata, **speaker_metadata},
        [tensor(planned) for planned in plan + speaker_plan],
    )


def print_profile(core: _core.Codec, *, k: int) -> None:
    """Where the time of one push goes, node by node; the median of five."""
    stream, codes = core.stream(max_frames=k), random_codes(core, k)
    stream.push(codes)
    runs = [stream._profile(codes) for _ in range(5)]
    taken = {kind: report.Summary.of(run.get(kind, 0.0) for run in runs).median / k for kind in runs[0]}
    total = sum(taken.values())
    rows = [
        [kind, report.number(seconds * 1e3), f"{seconds / total:.1%}"]
        for kind, seconds in sorted(taken.items(), key=lambda item: -item[1])
        if seconds > total / 200
    ]
    report.section(f"Where the time goes, {k} frames a push, each node waited for")
    print(report.table(("", "ms a frame", "share"), [*rows, ["all", report.number(total * 1e3), "100%"]]))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, help="a GGUF file (one with random weights)")
    parser.add_argument("--type", default="f16", choices=("f16", "f32"), help="of the random weights (%(default)s)")
    parser.add_argument("--push", type=int, nargs="*", default=[1, 2, 4, 8], help="frames a push (%(default)s)")
    parser.add_argument("--frames", type=int, default=16, help="frames that make up a turn (%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of sound to encode (%(default)s)")
    models.add_folder_option(parser)
    report.add_timing_options(parser, rounds=5)
    o = parser.parse_args()
    report.use_threads(o.threads)
    path = o.model
    if path is None:
        path = Path(o.folder) / f"qwen3-codec-{o.type}.gguf"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            make_model(path, o.type)
    file = _core.ModelFile(str(path))
    runtime = _core.Runtime(threads=o.threads)
    core = _core.Codec(file, runtime)
    codec, speaker = Codec(core), SpeakerEncoder(_core.SpeakerEncoder(file, runtime))
    codes = random_codes(core, o.frames)
    clip = (np.random.default_rng(0).standard_normal(round(o.seconds * codec.sample_rate)) * 0.1).astype(np.float32)
    extra = {"model": f"{path.name}, {codec.samples_per_frame} samples a frame at {codec.sample_rate} Hz"}
    print(report.describe(threads=o.threads, warmups=o.warmups, extra=extra), flush=True)

    pushes = {f"stream, {k} a push": Pushes(core, k=k, frames=o.frames) for k in o.push}
    decoding: dict[str, Callable[[], object]] = {"whole decode": lambda: codec.decode(codes), **pushes}
    others: dict[str, Callable[[], object]] = {
        "encode": lambda: codec.encode(clip),
        "speaker's vector": lambda: speaker.embed(clip),
    }
    seconds = report.interleave(decoding | others, rounds=o.rounds, warmups=o.warmups, rest=o.rest)
    frames = {name: pushes[name].frames if name in pushes else o.frames for name in decoding}
    report.section("Milliseconds a frame")
    rows = [report.timing_row(name, seconds[name], scale=1 / n) for name, n in frames.items()]
    print(report.table(report.TIMING_HEADER, rows))
    report.section(f"Milliseconds per second of sound ({o.seconds:g} s)")
    rows = [report.timing_row(name, seconds[name], scale=1 / o.seconds) for name in others]
    print(report.table(report.TIMING_HEADER, rows))
    for k in o.push:
        if k in (1, max(o.push)):
            print_profile(core, k=k)
    print(f"\nresident at most: {report.peak_memory() / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
