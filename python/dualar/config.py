"""Options as frozen dataclasses, checked when they are made.

Owns every option's default, range and error text; nothing here computes. The samplers that read a `SamplingConfig`
are in `dualar.sampling`, the rules that read a `GenerationConfig` in `dualar.generation`. Each kind of sampler is a
class with only its own options, so that no option can be given that its sampler would ignore.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

DEFAULT_MAX_NEW_TOKENS = 1024
MOST_ROWS = 256  # of a batch; the core's Batch has the same limit

_INT_MAX = 2**31 - 1


def option(default: Any, low: float, high: float, text: str, *, optional: bool = False) -> Any:
    """A dataclass field with a range, both ends allowed. Where `low` is an int, only whole numbers; None if `optional`.

    The range and `text`, which describes the option, stay in the field's metadata.
    """
    return field(default=default, metadata={"low": low, "high": high, "optional": optional, "help": text})


class Validated:
    """Base of the option classes: checks each `option` field on creation and stores it as a plain int or float."""

    family: ClassVar[str]  # what the options belong to, in error texts; of a SamplingConfig, the sampler's name

    def __post_init__(self) -> None:
        for f in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            if "low" in f.metadata:
                value = check_option(f"{self.family}.{f.name}", getattr(self, f.name), f.metadata)
                object.__setattr__(self, f.name, value)


def check_option(where: str, value: Any, metadata: Any) -> int | float | None:
    """`value` as a plain int or float; ValueError with the range and the value if it is not allowed."""
    low, high = metadata["low"], metadata["high"]
    if value is None and metadata["optional"]:
        return None
    whole = isinstance(low, int)
    right_kind = isinstance(value, numbers.Integral if whole else numbers.Real) and not isinstance(value, bool)
    if right_kind:
        plain = int(value) if whole else float(value)
        if not math.isnan(plain) and low <= plain <= high:
            return plain
    name = "a whole number" if whole else "a number"
    none = " or None" if metadata["optional"] else ""
    raise ValueError(f"[{where}] expected {name} from {low:.10g} to {high:.10g}{none}, got {value!r}")


def whole_number(where: str, value: Any, low: int, high: int = _INT_MAX) -> int:
    """`value` as a plain int; ValueError if it is no whole number, or out of range."""
    return int(check_option(where, value, {"low": low, "high": high, "optional": False}) or 0)


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(Validated):
    """How a token is drawn from a row of logits: the options of one of three published samplers.

    Made by `SamplingConfig.fish(...)`, `.hf(...)` or `.cosyvoice(...)`, whose keyword options are the fields of
    `FishSampling`, `HFSampling` and `CosyVoiceSampling`. `temperature` 0 is greedy (lowest id on ties), `top_k` <= 0
    means all. ValueError if a value is out of range, TypeError for an option that the sampler does not have.
    """

    fish: ClassVar[type[FishSampling]]
    hf: ClassVar[type[HFSampling]]
    cosyvoice: ClassVar[type[CosyVoiceSampling]]

    temperature: float
    top_p: float
    top_k: int

    def __post_init__(self) -> None:
        if type(self) is SamplingConfig:
            raise TypeError("[sampling] expected SamplingConfig.fish(), .hf() or .cosyvoice(), got SamplingConfig()")
        super().__post_init__()

    @property
    def history_windows(self) -> tuple[int, int]:
        """How many earlier draws count as repeats: (of main tokens, of this frame's residual codes); -1 is all."""
        raise NotImplementedError

    @property
    def residual(self) -> SamplingConfig:
        """The config that the residual codes are drawn with."""
        return self

    @staticmethod
    def from_options(family: str, **options: Any) -> SamplingConfig:
        """The config of the sampler named `family`: "fish", "hf" or "cosyvoice".

        ValueError for an unknown name, an option that the sampler does not have, or a value out of range.
        """
        if family not in FAMILIES:
            raise ValueError(f"[sampling] expected a family among {', '.join(FAMILIES)}, got {family!r}")
        kind: Any = FAMILIES[family]  # whose options have defaults, unlike those of SamplingConfig itself
        defaults: SamplingConfig = kind()
        return defaults.with_options(**options)

    def with_options(self, **options: Any) -> SamplingConfig:
        """The same with other values. ValueError for an option that the sampler does not have, or one out of range."""
        known = [f.name for f in fields(self)]
        for name in options:
            if name not in known:
                raise ValueError(
                    f"[sampling] expected options of the {self.family} family ({', '.join(known)}), got {name}"
                )
        return replace(self, **options)


@dataclass(frozen=True, kw_only=True)
class FishSampling(SamplingConfig):
    """S2's sampler: top-k and top-p on the untempered softmax, then temperature, then a redraw on repeats (RAS)."""

    family: ClassVar[str] = "fish"

    temperature: float = option(0.8, 0.0, 100.0, "divides the logits; 0 is greedy")
    top_p: float = option(0.8, 0.0, 1.0, "cumulative mass to keep, the crossing token excluded; 1 is off")
    top_k: int = option(30, -_INT_MAX, _INT_MAX, "most likely tokens to keep; 0 or less is off")
    ras_window: int = option(10, 0, _INT_MAX, "redraw a main token that is among this many last ones; 0 is off")
    ras_temperature: float = option(1.0, 0.0, 100.0, "temperature of that redraw")
    ras_top_p: float = option(0.9, 0.0, 1.0, "top_p of that redraw")
    residual_temperature: float | None = option(None, 0.0, 100.0, "temperature of the residual codes", optional=True)

    @property
    def history_windows(self) -> tuple[int, int]:
        return self.ras_window, 0

    @property
    def residual(self) -> SamplingConfig:
        own = self.residual_temperature
        return self if own is None else replace(self, temperature=own)


@dataclass(frozen=True, kw_only=True)
class HFSampling(SamplingConfig):
    """The transformers library's with Qwen3-TTS's defaults: repetition penalty, temperature, top-k, top-p, in order."""

    family: ClassVar[str] = "hf"

    temperature: float = option(0.9, 0.0, 100.0, "divides the logits; 0 is greedy")
    top_p: float = option(1.0, 0.0, 1.0, "cumulative mass to keep, the crossing token included; 1 is off")
    top_k: int = option(50, -_INT_MAX, _INT_MAX, "most likely tokens to keep; 0 or less is off")
    repetition_penalty: float = option(1.05, 0.01, 100.0, "divides positive, multiplies other logits of the history")
    history_window: int = option(-1, -1, _INT_MAX, "last main tokens that are penalised; -1 is all, 0 none")
    residual_history_window: int = option(0, -1, _INT_MAX, "the same for this frame's own residual codes")
    residual_temperature: float | None = option(None, 0.0, 100.0, "temperature of the residual codes", optional=True)
    residual_top_p: float | None = option(None, 0.0, 1.0, "top_p of the residual codes", optional=True)
    residual_top_k: int | None = option(None, -_INT_MAX, _INT_MAX, "top_k of the residual codes", optional=True)

    @property
    def history_windows(self) -> tuple[int, int]:
        return self.history_window, self.residual_history_window

    @property
    def residual(self) -> SamplingConfig:
        names = ("temperature", "top_p", "top_k")
        own = {name: value for name in names if (value := getattr(self, f"residual_{name}")) is not None}
        return replace(self, **own) if own else self


@dataclass(frozen=True, kw_only=True)
class CosyVoiceSampling(SamplingConfig):
    """CosyVoice's repetition-aware sampling: a nucleus draw, and one from the whole distribution if it repeats."""

    family: ClassVar[str] = "cosyvoice"

    temperature: float = option(1.0, 0.0, 100.0, "divides the logits; 0 is greedy, and never redraws")
    top_p: float = option(0.8, 0.0, 1.0, "take tokens while the mass before them is under this; 1 is off")
    top_k: int = option(25, -_INT_MAX, _INT_MAX, "most tokens to take; 0 or less is off")
    window: int = option(10, 0, _INT_MAX, "last main tokens among which repeats are counted; 0 is off")
    tau: float = option(0.1, 0.0, 100.0, "share of the window that makes a repeat; 0 is off")

    @property
    def history_windows(self) -> tuple[int, int]:
        return (self.window if self.tau > 0 else 0), 0

    @property
    def repeat_threshold(self) -> float:
        """A drawn id that occurs at least this often in the window is masked and drawn again; <= 0 is never."""
        return self.window * self.tau


FAMILIES: dict[str, type[SamplingConfig]] = {c.family: c for c in (FishSampling, HFSampling, CosyVoiceSampling)}

SamplingConfig.fish = FishSampling
SamplingConfig.hf = HFSampling
SamplingConfig.cosyvoice = CosyVoiceSampling


@dataclass(frozen=True, kw_only=True)
class StallGuard(Validated):
    """When a generation counts as a runaway and ends with finish_reason "stalled".

    The defaults are several times what normal speech reaches: 120 frames are 5.6 s at S2's 21.5 frames/s (9.6 s at
    12.5), and a text token of English lasts about 6 frames.
    """

    family: ClassVar[str] = "stall_guard"

    repeat_frames: int = option(120, 0, _INT_MAX, "most frames that the main code may repeat; 0 is off")
    max_period: int = option(4, 1, 64, "longest cycle of main codes that counts as repeating; 1 is the same code")
    frames_per_text_token: float = option(40.0, 0.0, 1e6, "most frames for each token of the text; 0 is off")
    min_frames: int = option(256, 1, _INT_MAX, "frames that even a very short text may take")

    def frame_limit(self, text_tokens: int) -> int | None:
        """Most frames for a text of `text_tokens` tokens; None where frames_per_text_token is 0."""
        if self.frames_per_text_token == 0:
            return None
        return max(self.min_frames, math.ceil(self.frames_per_text_token * text_tokens))


DEFAULT_STALL_GUARD = StallGuard()


@dataclass(frozen=True, kw_only=True)
class GenerationConfig(Validated):
    """The checked options of a request for codes. `max_new_tokens` None is 1024, or what the context leaves if less."""

    family: ClassVar[str] = "generate"

    max_new_tokens: int | None = option(None, 1, _INT_MAX, "most frames to generate", optional=True)
    min_tokens_before_end: int = option(0, 0, _INT_MAX, "frames before the end of speech may come")
    sampling: SamplingConfig = field(default_factory=FishSampling)
    stall_guard: StallGuard | None = DEFAULT_STALL_GUARD

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.sampling, SamplingConfig):
            raise ValueError(f"[generate.sampling] expected a SamplingConfig, got {self.sampling!r}")
        if self.stall_guard is not None and not isinstance(self.stall_guard, StallGuard):
            raise ValueError(f"[generate.stall_guard] expected a StallGuard or None, got {self.stall_guard!r}")
        if self.max_new_tokens is not None and self.min_tokens_before_end > self.max_new_tokens:
            raise ValueError(
                f"[generate.min_tokens_before_end] expected at most max_new_tokens ({self.max_new_tokens}), "
                f"got {self.min_tokens_before_end}"
            )
