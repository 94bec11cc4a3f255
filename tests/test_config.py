"""Options: their published defaults, and that a wrong one is refused on creation with its range and value."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from dualar.config import (
    CosyVoiceSampling,
    FishSampling,
    GenerationConfig,
    HFSampling,
    SamplingConfig,
    StallGuard,
)


def test_published_defaults() -> None:
    fish = SamplingConfig.fish()
    assert (fish.temperature, fish.top_p, fish.top_k) == (0.8, 0.8, 30)
    assert (fish.ras_window, fish.ras_temperature, fish.ras_top_p) == (10, 1.0, 0.9)
    hf = SamplingConfig.hf()
    assert (hf.temperature, hf.top_p, hf.top_k, hf.repetition_penalty) == (0.9, 1.0, 50, 1.05)
    assert (hf.history_window, hf.residual_history_window) == (-1, 0)
    cosyvoice = SamplingConfig.cosyvoice()
    assert (cosyvoice.temperature, cosyvoice.top_p, cosyvoice.top_k) == (1.0, 0.8, 25)
    assert (cosyvoice.window, cosyvoice.tau, cosyvoice.repeat_threshold) == (10, 0.1, 1.0)


def test_windows_of_each_family() -> None:
    assert SamplingConfig.fish(ras_window=7).history_windows == (7, 0)
    assert SamplingConfig.hf(history_window=64, residual_history_window=16).history_windows == (64, 16)
    assert SamplingConfig.cosyvoice(window=3).history_windows == (3, 0)


WRONG: list[tuple[Any, str, Any, str]] = [
    (SamplingConfig.fish, "temperature", -0.1, "from 0 to 100"),
    (SamplingConfig.fish, "temperature", float("nan"), "from 0 to 100"),
    (SamplingConfig.fish, "temperature", float("inf"), "from 0 to 100"),
    (SamplingConfig.fish, "temperature", "hot", "from 0 to 100"),
    (SamplingConfig.fish, "temperature", None, "from 0 to 100"),
    (SamplingConfig.fish, "temperature", True, "from 0 to 100"),
    (SamplingConfig.fish, "top_p", 1.5, "from 0 to 1"),
    (SamplingConfig.fish, "top_p", -1e-9, "from 0 to 1"),
    (SamplingConfig.fish, "top_k", 2.5, "whole number"),
    (SamplingConfig.fish, "top_k", 2**31, "to 2147483647"),
    (SamplingConfig.fish, "ras_window", -1, "from 0 to"),
    (SamplingConfig.fish, "ras_temperature", 101, "from 0 to 100"),
    (SamplingConfig.fish, "ras_top_p", 2, "from 0 to 1"),
    (SamplingConfig.hf, "repetition_penalty", 0, "from 0.01 to 100"),
    (SamplingConfig.hf, "repetition_penalty", -1.05, "from 0.01 to 100"),
    (SamplingConfig.hf, "history_window", -2, "from -1 to"),
    (SamplingConfig.hf, "residual_history_window", -2, "from -1 to"),
    (SamplingConfig.cosyvoice, "window", -1, "from 0 to"),
    (SamplingConfig.cosyvoice, "tau", -0.1, "from 0 to 100"),
    (StallGuard, "repeat_frames", -1, "from 0 to"),
    (StallGuard, "max_period", 0, "from 1 to 64"),
    (StallGuard, "frames_per_text_token", -1, "from 0 to"),
    (StallGuard, "min_frames", 0, "from 1 to"),
    (GenerationConfig, "max_new_tokens", 0, "from 1 to"),
    (GenerationConfig, "max_new_tokens", 1.0, "whole number"),
    (GenerationConfig, "min_tokens_before_end", -1, "from 0 to"),
    (GenerationConfig, "min_tokens_before_end", None, "from 0 to"),
    (GenerationConfig, "sampling", "fish", "SamplingConfig"),
    (GenerationConfig, "stall_guard", True, "StallGuard or None"),
]


@pytest.mark.parametrize(("make", "name", "value", "expected"), WRONG)
def test_wrong_value_is_refused_with_range_and_value(make: Any, name: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError) as error:
        make(**{name: value})
    text = str(error.value)
    assert name in text and expected in text and f"got {value!r}" in text


def test_ends_of_ranges_are_allowed() -> None:
    SamplingConfig.fish(temperature=0, top_p=0, top_k=-1, ras_window=0)
    SamplingConfig.fish(temperature=100, top_p=1, top_k=2**31 - 1)
    SamplingConfig.hf(repetition_penalty=0.01, history_window=0)
    SamplingConfig.cosyvoice(tau=0, window=0)
    assert GenerationConfig(max_new_tokens=None).max_new_tokens is None


def test_numpy_numbers_become_plain_ones() -> None:
    config = SamplingConfig.fish(temperature=np.float32(0.5), top_k=np.int64(7), top_p=1)  # type: ignore[arg-type]
    assert type(config.temperature) is float and config.temperature == 0.5
    assert type(config.top_k) is int and config.top_k == 7
    assert type(config.top_p) is float


def test_an_option_of_another_family_is_refused() -> None:
    for make, option in (
        (SamplingConfig.fish, {"repetition_penalty": 1.05}),
        (SamplingConfig.fish, {"tau": 0.1}),
        (SamplingConfig.hf, {"ras_window": 10}),
        (SamplingConfig.hf, {"window": 10}),
        (SamplingConfig.cosyvoice, {"repetition_penalty": 1.05}),
        (SamplingConfig.cosyvoice, {"ras_top_p": 0.9}),
    ):
        with pytest.raises(TypeError, match=next(iter(option))):
            make(**option)


def test_from_options() -> None:
    assert SamplingConfig.from_options("fish") == FishSampling()
    assert SamplingConfig.from_options("hf", top_k=5) == HFSampling(top_k=5)
    assert SamplingConfig.from_options("cosyvoice", tau=0.2) == CosyVoiceSampling(tau=0.2)
    with pytest.raises(ValueError, match=r"fish, hf, cosyvoice.*got 'mirostat'"):
        SamplingConfig.from_options("mirostat")
    with pytest.raises(ValueError, match=r"the fish family \(temperature, .*got tau"):
        SamplingConfig.from_options("fish", tau=0.1)
    with pytest.raises(ValueError, match="top_p"):
        SamplingConfig.from_options("hf", top_p=3)


def test_configs_are_frozen_values() -> None:
    config = SamplingConfig.hf()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.temperature = 2.0  # type: ignore[misc]
    assert config == SamplingConfig.hf() and hash(config) == hash(SamplingConfig.hf())
    assert dataclasses.replace(config, top_k=3) == SamplingConfig.hf(top_k=3)
    with pytest.raises(ValueError, match="top_p"):
        dataclasses.replace(config, top_p=2)
    with pytest.raises(TypeError, match=r"SamplingConfig\.fish"):
        SamplingConfig(temperature=1.0, top_p=1.0, top_k=1)


def test_every_option_says_what_it_is_for() -> None:
    for config in (FishSampling, HFSampling, CosyVoiceSampling, StallGuard):
        for f in dataclasses.fields(config):
            assert f.metadata["help"], f.name
            if not (f.metadata["optional"] and f.default is None):
                assert f.metadata["low"] <= f.default <= f.metadata["high"], f.name


def test_stall_guard_frame_limit() -> None:
    guard = StallGuard(frames_per_text_token=2.5, min_frames=20)
    assert [guard.frame_limit(n) for n in (0, 8, 9, 100)] == [20, 20, 23, 250]
    assert StallGuard(frames_per_text_token=0).frame_limit(5) is None


def test_min_tokens_above_max_new_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at most max_new_tokens \(5\), got 6"):
        GenerationConfig(max_new_tokens=5, min_tokens_before_end=6)
    GenerationConfig(max_new_tokens=5, min_tokens_before_end=5)
