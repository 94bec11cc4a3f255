"""dualar: dual-autoregressive speech models on your own machine.

    import dualar
    with dualar.load("model.gguf") as engine:
        engine.synthesize("Hello there.", seed=7).save("hello.wav")

Owns the list of public names and loads what is behind each on first use, so that `import dualar` stays quick; leaves
everything else to the modules named below.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dualar._version import __version__

if TYPE_CHECKING:
    from dualar import sampling
    from dualar._core import (
        BackendError,
        DeviceInfo,
        DualAR,
        ModelError,
        Qwen3TTS,
        Session,
        StepOutput,
        default_threads,
        devices,
    )
    from dualar.audio import Audio
    from dualar.audio_io import read_audio
    from dualar.batch import Batch, BatchRow
    from dualar.batch_engine import SpeechRequest
    from dualar.batch_requests import BatchResult, GenerationRequest
    from dualar.codec import Codec, CodecStream
    from dualar.config import SamplingConfig, StallGuard
    from dualar.engine import Engine, load
    from dualar.generate import Frame, Generation, Timings
    from dualar.narrate import NarratedPiece, NarrationProgress
    from dualar.narration import Narration, NarrationResult, NarrationStream
    from dualar.narration_config import NarrationConfig
    from dualar.prompt import build_prompt
    from dualar.qwen3_prompt import TalkerPrompt
    from dualar.stream import AudioChunk, SpeechStream
    from dualar.text import plain_text
    from dualar.tokenizer import Tokenizer
    from dualar.voice_store import VoiceStore
    from dualar.voices import Voice
    from dualar.wavenet import WaveNet, WaveNetState

# Public name -> the module that has it. A name that is a module itself stands with "".
_HOMES = {
    "Audio": "audio",
    "AudioChunk": "stream",
    "BackendError": "_core",
    "Batch": "batch",
    "BatchResult": "batch_requests",
    "BatchRow": "batch",
    "Codec": "codec",
    "CodecStream": "codec",
    "DeviceInfo": "_core",
    "DualAR": "_core",
    "Engine": "engine",
    "Frame": "generate",
    "Generation": "generate",
    "GenerationRequest": "batch_requests",
    "ModelError": "_core",
    "NarratedPiece": "narrate",
    "Narration": "narration",
    "NarrationConfig": "narration_config",
    "NarrationProgress": "narrate",
    "NarrationResult": "narration",
    "NarrationStream": "narration",
    "Qwen3TTS": "_core",
    "SamplingConfig": "config",
    "Session": "_core",
    "SpeakerEncoder": "speaker",
    "SpeechRequest": "batch_engine",
    "SpeechStream": "stream",
    "StallGuard": "config",
    "StepOutput": "_core",
    "TalkerPrompt": "qwen3_prompt",
    "Timings": "generate",
    "Tokenizer": "tokenizer",
    "Voice": "voices",
    "VoiceStore": "voice_store",
    "WaveNet": "wavenet",
    "WaveNetState": "wavenet",
    "build_prompt": "prompt",
    "default_threads": "_core",
    "devices": "_core",
    "load": "engine",
    "plain_text": "text",
    "read_audio": "audio_io",
    "sampling": "",
}

__all__ = [
    "Audio",
    "AudioChunk",
    "BackendError",
    "Batch",
    "BatchResult",
    "BatchRow",
    "Codec",
    "CodecStream",
    "DeviceInfo",
    "DualAR",
    "Engine",
    "Frame",
    "Generation",
    "GenerationRequest",
    "ModelError",
    "NarratedPiece",
    "Narration",
    "NarrationConfig",
    "NarrationProgress",
    "NarrationResult",
    "NarrationStream",
    "Qwen3TTS",
    "SamplingConfig",
    "Session",
    "SpeakerEncoder",
    "SpeechRequest",
    "SpeechStream",
    "StallGuard",
    "StepOutput",
    "TalkerPrompt",
    "Timings",
    "Tokenizer",
    "Voice",
    "VoiceStore",
    "WaveNet",
    "WaveNetState",
    "__version__",
    "build_prompt",
    "default_threads",
    "devices",
    "load",
    "plain_text",
    "read_audio",
    "sampling",
]

_log_is_routed = False


def __getattr__(name: str) -> Any:
    if name == "_core":  # reached by the first `from dualar import _core`, before it is an attribute
        return _load_core()
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dualar' has no attribute {name!r}")
    if home == "_core":
        value: Any = getattr(_load_core(), name)
    elif home == "":
        value = importlib.import_module(f"dualar.{name}")
    else:
        value = getattr(importlib.import_module(f"dualar.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _load_core() -> Any:
    """The compiled core, its log routed; ImportError with advice where it was not built."""
    try:
        core = importlib.import_module("dualar._core")
    except ModuleNotFoundError as error:
        if error.name != "dualar._core":
            raise
        raise ImportError(
            "[dualar] expected the compiled module dualar._core beside the package, found none: install the package "
            "(`pip install .` in the source folder) instead of importing it from the source tree",
            name="dualar._core",
        ) from error
    _route_ggml_log(core)
    return core


def _route_ggml_log(core: Any) -> None:
    """Send ggml's log lines to the logger "dualar.ggml", once."""
    global _log_is_routed
    if _log_is_routed:
        return
    import atexit
    import logging

    logger = logging.getLogger("dualar.ggml")

    def sink(level: int, text: str) -> None:
        if line := text.rstrip():
            logger.log(level, "%s", line)

    core.set_log_sink(sink)
    atexit.register(core.set_log_sink, None)  # ggml may still speak while the interpreter goes away
    _log_is_routed = True
