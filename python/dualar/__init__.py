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

from dualar import _moved
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
    from dualar.audio.clip import Audio
    from dualar.audio.read import read_audio
    from dualar.codec.codec import Codec, CodecStream
    from dualar.config import SamplingConfig, StallGuard
    from dualar.engine import Engine, load
    from dualar.families.qwen3_prompt import TalkerPrompt
    from dualar.families.s2_prompt import build_prompt
    from dualar.generation.batch import Batch, BatchRow
    from dualar.generation.frames import Frame, Generation, Timings
    from dualar.generation.requests import BatchResult, GenerationRequest
    from dualar.narration.config import NarrationConfig
    from dualar.narration.plan import NarratedPiece, NarrationProgress
    from dualar.narration.result import Narration, NarrationResult
    from dualar.narration.speak import NarrationStream
    from dualar.narration.timed import TimedPiece, TimedSentence
    from dualar.narration.timeline import Timeline
    from dualar.speech.request import SpeechRequest
    from dualar.speech.stream import AudioChunk, SpeechStream
    from dualar.text.places import TimedWord
    from dualar.text.plain import plain_text
    from dualar.text.tokenizer import Tokenizer
    from dualar.voices.speaker_encoder import SpeakerEncoder
    from dualar.voices.store import VoiceStore
    from dualar.voices.voice import Voice
    from dualar.wavenet import WaveNet, WaveNetState

# Public name -> the module that has it; "" where the name is itself a module.
_HOMES = {
    "Audio": "audio.clip",
    "AudioChunk": "speech.stream",
    "BackendError": "_core",
    "Batch": "generation.batch",
    "BatchResult": "generation.requests",
    "BatchRow": "generation.batch",
    "Codec": "codec.codec",
    "CodecStream": "codec.codec",
    "DeviceInfo": "_core",
    "DualAR": "_core",
    "Engine": "engine",
    "Frame": "generation.frames",
    "Generation": "generation.frames",
    "GenerationRequest": "generation.requests",
    "ModelError": "_core",
    "NarratedPiece": "narration.plan",
    "Narration": "narration.result",
    "NarrationConfig": "narration.config",
    "NarrationProgress": "narration.plan",
    "NarrationResult": "narration.result",
    "NarrationStream": "narration.speak",
    "Qwen3TTS": "_core",
    "SamplingConfig": "config",
    "Session": "_core",
    "SpeakerEncoder": "voices.speaker_encoder",
    "SpeechRequest": "speech.request",
    "SpeechStream": "speech.stream",
    "StallGuard": "config",
    "StepOutput": "_core",
    "TalkerPrompt": "families.qwen3_prompt",
    "TimedPiece": "narration.timed",
    "TimedSentence": "narration.timed",
    "TimedWord": "text.places",
    "Timeline": "narration.timeline",
    "Timings": "generation.frames",
    "Tokenizer": "text.tokenizer",
    "Voice": "voices.voice",
    "VoiceStore": "voices.store",
    "WaveNet": "wavenet",
    "WaveNetState": "wavenet",
    "build_prompt": "families.s2_prompt",
    "default_threads": "_core",
    "devices": "_core",
    "load": "engine",
    "plain_text": "text.plain",
    "read_audio": "audio.read",
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
    "TimedPiece",
    "TimedSentence",
    "TimedWord",
    "Timeline",
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

_moved.install()


def __getattr__(name: str) -> Any:
    home = "_native" if name == "_core" else _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dualar' has no attribute {name!r}")
    if home == "":
        value: Any = importlib.import_module(f"dualar.{name}")
    elif home == "_core":
        value = getattr(importlib.import_module("dualar._native")._core, name)
    else:
        value = getattr(importlib.import_module(f"dualar.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
