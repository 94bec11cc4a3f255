"""Put what was trained into the published S2 layout, and that into a model file, as `dualar convert` would.

    python -m training.english.export --run RUN --checkpoint FOLDER --output voice.gguf --type q8_0

FOLDER gets config.json (model_type dual_ar, text_frontend english), tokenizer.json, model.pth and codec.pth. An encoder
or a decoder that has not been trained yet goes in as it was made, so that the rest can be listened to.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from dualar.convert.model_file import convert

from training.dual_ar import DualAR, DualARConfig
from training.english.train_codec import load_codec
from training.export import config_json

PIECE_SIZE = 150  # letters: the sentences have at most 25 words


def write_checkpoint(run: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    codec = load_codec(run, *(stage for stage in ("decoder", "encoder") if (run / f"{stage}.pt").exists()))
    language = DualARConfig(**json.loads((run / "lm.json").read_text()))
    model = torch.load(run / "lm.pt", weights_only=True)["model"]
    DualAR(language).load_state_dict(model)  # all of its tensors, no others
    config = {**config_json(language, codec), "piece_size": PIECE_SIZE, "text_frontend": "english"}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
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
