"""A reader for a screen: each line of standard input is spoken at once, and cuts off what is spoken before it.

    some-program | python examples/screen_reader.py [PLAYER ...]

The player takes raw samples: 16 bits, one channel, 16 kHz for the package's voice. By default it is aplay.
"""

import contextlib
import subprocess
import sys
import threading
from queue import Empty, Queue

import dualar
import numpy as np

lines: Queue[str | None] = Queue()


def read() -> None:
    for line in sys.stdin:
        if line.strip():
            lines.put(line.strip())
    lines.put(None)


def latest() -> str | None:
    """The newest line, waiting for one; None at the end. A reader for a screen has no use for older ones."""
    line = lines.get()
    try:
        while line is not None and (newer := lines.get_nowait()) is not None:
            line = newer
        if line is not None:
            lines.put(None)  # the end, to be found again
    except Empty:
        pass
    return line


threading.Thread(target=read, daemon=True).start()
with dualar.load() as engine:
    rate = engine.codec.sample_rate
    command = sys.argv[1:] or ["aplay", "-q", "-f", "S16_LE", "-r", str(rate)]
    while (line := latest()) is not None:
        player = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert player.stdin is not None
        with engine.stream(line, frames_per_chunk=(1, 2, 4), min_tokens_before_end=1) as stream:
            for chunk in stream:
                player.stdin.write((chunk.samples.clip(-1, 1) * 32767).astype(np.int16).tobytes())
                if not lines.empty() and lines.queue[0] is not None:
                    player.terminate()  # something newer: what is left of this line is not heard
                    break
        with contextlib.suppress(BrokenPipeError):  # of a player that was ended
            player.stdin.close()
        player.wait()
