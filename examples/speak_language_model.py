"""Speak what a language model writes, word by word: each sentence is spoken as soon as it is whole.

    python examples/speak_language_model.py OUT.wav [MODEL.gguf]

The "language model" here is a list of words. Put your own generator of text in place of `written`.
"""

import re
import sys
import threading
from collections.abc import Iterator
from queue import Queue

import dualar
import numpy as np
import soundfile


def written() -> Iterator[str]:
    """Pieces of text, as a language model gives them."""
    yield from re.findall(r"\S+\s*", "Good morning. It is seven thirty. Turn on the kitchen light.")


def sentences(pieces: Iterator[str]) -> Iterator[str]:
    """Whole sentences, each as soon as it has ended; at last what is left."""
    text = ""
    for piece in pieces:
        text += piece
        while end := re.search(r"[.!?]\s+", text):
            yield text[: end.end()].strip()
            text = text[end.end() :]
    if text.strip():
        yield text.strip()


waiting: Queue[str | None] = Queue()


def write() -> None:
    for sentence in sentences(written()):
        waiting.put(sentence)
    waiting.put(None)


threading.Thread(target=write, daemon=True).start()  # it writes on while a sentence is spoken
with dualar.load(sys.argv[2] if len(sys.argv) > 2 else None) as engine:
    rate = engine.codec.sample_rate
    with soundfile.SoundFile(sys.argv[1], "w", rate, 1) as out:  # a player takes the same chunks
        while (sentence := waiting.get()) is not None:
            with engine.stream(sentence, seed=7, frames_per_chunk=(1, 2, 4)) as stream:
                for chunk in stream:
                    out.write(chunk.samples)
            out.write(np.zeros(rate // 5, np.float32))  # a pause
            print("spoken:", sentence)
