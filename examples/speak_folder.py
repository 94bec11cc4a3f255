"""Speak a folder of texts into a folder of sound files, several at once as rows of a batch.

    python examples/speak_folder.py TEXTS SOUNDS [--model MODEL.gguf] [--rows 8]

Texts that are there already as sound are left out, so the same command goes on after an interruption.
"""

import argparse
import sys
from pathlib import Path

import dualar

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("texts", type=Path)
parser.add_argument("sounds", type=Path)
parser.add_argument("--model")
parser.add_argument("--rows", type=int, default=8)
options = parser.parse_args()
options.sounds.mkdir(exist_ok=True)
wanted = {path: options.sounds / f"{path.stem}.wav" for path in sorted(options.texts.glob("*.txt"))}
left = [path for path, sound in wanted.items() if not sound.exists()]
failed = 0
with dualar.load(options.model) as engine:
    short, long = [], []
    for path in left:
        text = path.read_text(encoding="utf-8")
        (long if engine.plan(text).is_long else short).append((path, text))
    requests = [dualar.SpeechRequest(text=text, seed=7) for _, text in short]
    for result in engine.synthesize_batch(requests, max_rows=options.rows):
        path = short[result.index][0]
        try:
            result.get().save(wanted[path])
            print(wanted[path])
        except (ValueError, dualar.ModelError) as error:
            failed += 1
            print(f"{path}: {error}", file=sys.stderr)
    for path, text in long:  # cut into pieces, which are the rows
        config = dualar.NarrationConfig(rows=options.rows)
        engine.narrate(text, seed=7, config=config).save(wanted[path])
        print(wanted[path])
sys.exit(1 if failed else 0)
