"""Speak with the voice of a recording, and keep the voice for the next time.

    python examples/clone_voice.py MODEL.gguf RECORDING.wav "What is said in it." "What to say." OUT.wav

The model must be one that was made for it, such as S2 Pro: the voice in the package has one voice only.
"""

import sys
from pathlib import Path

import dualar

model, recording, transcript, text, out = sys.argv[1:]
kept = Path(recording).with_suffix(".voice")
with dualar.load(model) as engine:
    if kept.exists():
        voice = dualar.Voice.load(kept)
    else:
        voice = engine.clone(recording, transcript)
        voice.save(kept)
    audio = engine.synthesize(text, voice=voice, seed=7)
    audio.save(out)
    print(f"{out}: {audio.duration:.1f} s with the voice in {kept}")
