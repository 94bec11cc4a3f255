"""Makes the README's picture and sound: a sentence as the voice in the package speaks it.

    python docs/assets/make.py

Owns hello.mp3 and hello.png beside it: the waveform above, the spectrogram below (0 to half the sample rate, 70 dB).
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import dualar
import numpy as np
import soundfile

TEXT = "The birch canoe slid on the smooth planks at 9:45."
SEED = 7
HERE = Path(__file__).parent
WIDTH, WAVE, SPECTRUM = 880, 110, 160  # pixels
PAPER, INK = (255, 255, 255), (38, 70, 140)


def waveform(samples: np.ndarray) -> np.ndarray:
    """The span of the samples in each column: bool [WAVE, WIDTH]."""
    columns = np.array_split(samples / np.abs(samples).max(), WIDTH)
    low, high = (np.array([f(part) for part in columns]) for f in (np.min, np.max))
    rows = np.linspace(1, -1, WAVE)[:, None]
    thin = 1 / WAVE  # at least a line, in silence too
    return (rows >= low - thin) & (rows <= high + thin)


def spectrogram(samples: np.ndarray) -> np.ndarray:
    """Loudness by frequency and time: [SPECTRUM, WIDTH] from 0 (70 dB under the loudest) to 1."""
    size = 2 * SPECTRUM
    starts = np.linspace(0, len(samples) - size, WIDTH).astype(int)
    frames = samples[starts[:, None] + np.arange(size)] * np.hanning(size)
    power = np.abs(np.fft.rfft(frames)[:, :SPECTRUM]) ** 2
    decibels = 10 * np.log10(power / power.max() + 1e-12)
    return np.clip(decibels.T[::-1] / 70 + 1, 0, 1)


def write_png(path: Path, pixels: np.ndarray) -> None:
    """uint8 [height, width, 3] as a PNG."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def main() -> None:
    with dualar.load() as engine:
        audio = engine.synthesize(TEXT, seed=SEED)
    soundfile.write(HERE / "hello.mp3", audio.samples, audio.sample_rate, format="MP3")
    gap = np.zeros((12, WIDTH))
    shade = np.concatenate([waveform(audio.samples), gap, np.round(spectrogram(audio.samples) * 31) / 31])[..., None]
    write_png(HERE / "hello.png", (np.array(PAPER) * (1 - shade) + np.array(INK) * shade).astype(np.uint8))


if __name__ == "__main__":
    main()
