"""Put what was trained into the published S2 layout, and that into a model file, as `dualar convert` would.

    python -m training.export --run RUN --checkpoint FOLDER --output voice.gguf --type q8_0

FOLDER gets config.json (model_type dual_ar, text_frontend english), tokenizer.json, model.pth and codec.pth. An encoder
or a decoder that has not been trained yet goes in as it was made, so that the rest can be listened to.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from dualar.convert.model_file import convert

from training.codec import Codec
from training.dual_ar import GUIDED_LAYERS, DualAR, DualARConfig
from training.shards import Quantization
from training.train_codec import load_codec

PIECE_SIZE = 150  # letters: the sentences have at most 25 words
SAMPLING = {"temperature": 0.4, "residual_temperature": 0.2, "ras_window": 0}  # had the fewest word errors


def config_json(language: DualARConfig, codec: Codec, silent_codes: list[int]) -> dict[str, Any]:
    """The flat config of model_type dual_ar, with what the codec's tensors do not tell."""
    c, sound = language, codec.config
    return {
        "model_type": "dual_ar",
        "vocab_size": c.vocab_size,
        "n_layer": c.layers,
        "n_head": c.heads,
        "n_local_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "dim": c.dim,
        "intermediate_size": c.feed_forward,
        "rope_base": c.rope_base,
        "norm_eps": c.eps,
        "max_seq_len": c.context_length,
        "tie_word_embeddings": True,
        "attention_qk_norm": c.qk_norm,
        "codebook_size": c.codebook_size,
        "num_codebooks": c.num_codebooks,
        "scale_codebook_embeddings": True,
        "norm_fastlayer_input": True,
        "single_turn": True,
        "piece_size": PIECE_SIZE,
        # Layer and head, in turn: those that train_lm.py guides to look at what is spoken.
        "alignment_heads": [number for layer in GUIDED_LAYERS if layer < c.layers for number in (layer, 0)],
        "silent_codes": silent_codes,
        "text_frontend": "english",
        **SAMPLING,
        "n_fast_layer": c.fast_layers,
        "fast_dim": c.fast_dim,
        "fast_n_head": c.fast_heads,
        "fast_n_local_heads": c.fast_kv_heads,
        "fast_head_dim": c.fast_head_dim,
        "fast_intermediate_size": c.fast_feed_forward,
        "fast_attention_qk_norm": False,
        "codec_config": {
            "sample_rate": sound.sample_rate,
            "head_dim": sound.head_dim,
            "encoder_head_dim": sound.head_dim,
            "window_size": sound.window,
            "rope_base": sound.rope_base,
            "norm_eps": sound.eps,
        },
    }


def write_checkpoint(run: Path, folder: Path) -> None:
    silent_codes = Quantization.load(run / "quantizer.pt").silent_codes()
    folder.mkdir(parents=True, exist_ok=True)
    codec = load_codec(run, *(stage for stage in ("decoder", "encoder") if (run / f"{stage}.pt").exists()))
    language = DualARConfig(**json.loads((run / "lm.json").read_text()))
    model = torch.load(run / "lm.pt", weights_only=True)["model"]
    DualAR(language).load_state_dict(model)  # all of its tensors, no others
    (folder / "config.json").write_text(json.dumps(config_json(language, codec, silent_codes), indent=2))
    (folder / "tokenizer.json").write_text((run / "tokenizer.json").read_text("utf-8"), encoding="utf-8")
    torch.save(model, folder / "model.pth")
    torch.save({f"generator.{name}": value for name, value in codec.state_dict().items()}, folder / "codec.pth")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--type", default="q8_0")
    options = parser.parse_args()
    write_checkpoint(options.run, options.checkpoint)
    done = convert(options.checkpoint, options.output, weight_type=options.type)
    print(f"{options.output}: {len(done.tensors)} tensors, {done.nbytes} bytes")


if __name__ == "__main__":
    main()
