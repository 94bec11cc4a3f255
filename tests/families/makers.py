"""A tiny model of each family, for the tests that every family has to pass.

Owns the list of makers. A family that is in `dualar.families.registry` and not here fails the suite.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from dualar.engine import Engine
from dualar.families.csm import CsmFamily
from dualar.families.qwen3_tts import Qwen3Family
from dualar.families.s2 import S2Family
from dualar.speech.request import StyleOptions
from dualar.voices.voice import Voice


@dataclass(frozen=True)
class Maker:
    """One kind of model of a family. write: makes its file in an empty folder, and gives its path. style: what every
    request to it must say. has_voices: whether a request may have a cloned voice; needs_voice: whether it must."""

    architecture: str
    write: Callable[[Path], Path]
    style: StyleOptions = field(default_factory=StyleOptions)
    has_voices: bool = True
    needs_voice: bool = False

    def options(self, engine: Engine) -> StyleOptions:
        """The options of a request that the model takes."""
        return {**self.style, "voice": self.voice(engine)} if self.needs_voice else self.style

    def voice(self, engine: Engine, seed: int = 0) -> Voice:
        """A voice cloned from a third of a second of noise."""
        rate = engine.codec.sample_rate
        return engine.clone(np.random.default_rng(seed).normal(0, 0.1, rate // 3).astype(np.float32), "so it is")


def _s2(folder: Path) -> Path:
    from fixtures.make_toy_model import write_toy_model

    write_toy_model(folder / "s2.gguf", seed=0)
    return folder / "s2.gguf"


def _qwen3(checkpoint: str, kind: str) -> Callable[[Path], Path]:
    """A tiny checkpoint of Qwen3-TTS, described as of that kind."""

    def write(folder: Path) -> Path:
        from dualar.convert.model_file import convert
        from fixtures import qwen3

        published = qwen3.checkpoint_folder(checkpoint, folder / checkpoint)
        config = json.loads((published / "config.json").read_text())
        (published / "config.json").write_text(json.dumps({**config, "tts_model_type": kind}))
        if kind != "base":  # the only kind with a speaker encoder
            tensors = qwen3.read_f32(published / "model.safetensors")
            kept = {name: tensors[name] for name in tensors if not name.startswith("speaker_encoder.")}
            qwen3.write_safetensors(published / "model.safetensors", kept)
        convert(published, folder / "qwen3.gguf", weight_type="f32")
        return folder / "qwen3.gguf"

    return write


def _csm(folder: Path) -> Path:
    from dualar.convert.model_file import convert
    from fixtures import csm

    convert(csm.checkpoint_folder("csm-tiny", folder / "checkpoint"), folder / "csm.gguf", weight_type="f32")
    return folder / "csm.gguf"


MAKERS: dict[str, Maker] = {
    "s2": Maker(S2Family.architecture, _s2),
    "qwen3-tts base": Maker(Qwen3Family.architecture, _qwen3("tiny", "base"), needs_voice=True),
    "qwen3-tts custom_voice": Maker(
        Qwen3Family.architecture, _qwen3("tiny-eq", "custom_voice"), {"speaker": "ryan"}, has_voices=False
    ),
    "csm": Maker(CsmFamily.architecture, _csm),
}
"""Name of a case -> how its model is made; at least one for each family."""
