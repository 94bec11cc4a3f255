"""Put what was trained into the published S2 layout, and that into a model file, as `dualar convert` would.

    python -m training.export --run RUN --checkpoint FOLDER --output voice.gguf --type q8_0

FOLDER gets config.json (model_type dual_ar), tokenizer.json, model.pth and codec.pth. voice.words, beside the model
file, lists the words that the voice knows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from dualar.convert.model_file import convert
from torch import Tensor

from training.codec import Codec
from training.domain import words
from training.dual_ar import DualAR, DualARConfig
from training.text import same_word
from training.train_codec import load_codec

# Layer and head, in turn: those that train_lm.py guides to look at what is spoken, the first of its GUIDED_LAYERS.
ALIGNMENT_HEADS = [2, 0, 3, 0]
PIECE_SIZE = 72  # letters: the domain's sentences have at most 14 words


def config_json(language: DualARConfig, codec: Codec) -> dict[str, Any]:
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
        "alignment_heads": ALIGNMENT_HEADS,
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


def write_checkpoint(
    folder: Path, *, language: DualARConfig, model: dict[str, Tensor], codec: Codec, tokenizer_json: str
) -> None:
    """The published layout. model: the dual-AR's state_dict, whose tokens of one word still share a row."""
    folder.mkdir(parents=True, exist_ok=True)
    table = same_word(tokenizer_json)
    rows = torch.tensor(table + list(range(len(table), language.vocab_size)))
    model = {**model, "embeddings.weight": model["embeddings.weight"][rows]}
    (folder / "config.json").write_text(json.dumps(config_json(language, codec), indent=2))
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    torch.save(model, folder / "model.pth")
    torch.save({f"generator.{name}": value for name, value in codec.state_dict().items()}, folder / "codec.pth")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--type", default="q8_0")
    options = parser.parse_args()
    stages = [stage for stage in ("decoder", "encoder") if (options.run / f"{stage}.pt").exists()]
    codec, _ = load_codec(options.run, *stages)
    language = DualARConfig(**json.loads((options.run / "lm.json").read_text()))
    model = torch.load(options.run / "lm.pt", weights_only=True)["model"]
    tokenizer_json = (options.run / "tokenizer.json").read_text(encoding="utf-8")
    DualAR(language).load_state_dict(model)  # all of its tensors, no others
    write_checkpoint(options.checkpoint, language=language, model=model, codec=codec, tokenizer_json=tokenizer_json)
    done = convert(options.checkpoint, options.output, weight_type=options.type)
    options.output.with_suffix(".words").write_text("\n".join(words()) + "\n")
    print(f"{options.output}: {len(done.tensors)} tensors, {done.nbytes} bytes")


if __name__ == "__main__":
    main()
