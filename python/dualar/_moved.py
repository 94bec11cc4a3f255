"""Keeps the module names of earlier versions, so that pickles and imports with these names still work.

Owns the list of such modules, and the import hook that makes a stand-in for one on its first import: its names are
looked up in the modules that have them now. Nothing in the package imports by the old names.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED: dict[str, tuple[str, ...]] = {
    "audio_io": ("audio.read",),
    "batch": ("generation.batch",),
    "batch_engine": ("speech.request",),
    "batch_requests": ("generation.requests",),
    "family": ("families.base", "families.s2", "families.registry"),
    "frames": ("generation.frames",),
    "generate": ("generation.frames", "generation.generate", "model"),
    "long_text": ("text.split",),
    "loudness": ("audio.loudness",),
    "narrate": ("narration.plan", "narration.narrator"),
    "narration_config": ("narration.config",),
    "narration_job": ("narration.job",),
    "noise": ("sampling.noise",),
    "prompt": ("families.s2_prompt", "voices.voice", "families.base"),
    "qwen3_prompt": ("families.qwen3_prompt", "families.qwen3_layout"),
    "request": ("generation.checks", "generation.prompts"),
    "speaker": ("voices.speaker_encoder",),
    "stream": ("speech.stream",),
    "tokenizer": ("text.tokenizer",),
    "voice_files": ("voices.formats",),
    "voice_store": ("voices.store", "voices.name"),
}
"""Module of an earlier version -> the modules that have its names now, all below `dualar`."""


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        return ModuleSpec(fullname, self) if package == "dualar" and name in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        homes = MOVED[module.__name__.partition(".")[2]]

        def look_up(name: str) -> Any:
            for home in homes if not name.startswith("__") else ():
                found = getattr(importlib.import_module(f"dualar.{home}"), name, None)
                if found is not None:
                    return found
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}; see {', '.join(homes)}")

        vars(module)["__getattr__"] = look_up


def install() -> None:
    """Make the modules of the list importable; a second call does nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
