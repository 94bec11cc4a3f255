"""Modules of earlier versions: imports and pickles that name them still work."""

from __future__ import annotations

import importlib
import pickle

import dualar
import numpy as np
import pytest
from dualar._moved import MOVED

# `pickle.dumps(Timings(prefill_ms=1.0, loop_ms=2.0, ms_per_frame=3.0))` of a version whose modules lay flat.
OLD_PICKLE = (
    b"\x80\x02cdualar.frames\nTimings\nq\x00)\x81q\x01}q\x02(X\n\x00\x00\x00prefill_msq\x03G?\xf0\x00\x00\x00\x00\x00\x00"
    b"X\x07\x00\x00\x00loop_msq\x04G@\x00\x00\x00\x00\x00\x00\x00X\x0c\x00\x00\x00ms_per_frameq\x05G@\x08\x00\x00\x00\x00"
    b"\x00\x00X\t\x00\x00\x00decode_msq\x06NX\x10\x00\x00\x00real_time_factorq\x07NX\x0e\x00\x00\x00first_audio_msq\x08N"
    b"ub."
)


@pytest.mark.parametrize("name", MOVED)
def test_a_module_that_moved_is_found_and_so_is_each_new_place(name: str) -> None:
    stand_in = importlib.import_module(f"dualar.{name}")
    for home in MOVED[name]:
        module = importlib.import_module(f"dualar.{home}")
        public = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        assert public
        assert all(getattr(stand_in, key) is getattr(module, key) for key in public)
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'; see "):
        stand_in.nonsense  # noqa: B018


def test_a_module_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("dualar.nonsense")


def test_a_pickle_of_an_earlier_version_loads() -> None:
    found = pickle.loads(OLD_PICKLE)
    assert found == dualar.Timings(prefill_ms=1.0, loop_ms=2.0, ms_per_frame=3.0)


def test_classes_whose_module_became_a_package_are_found_by_their_old_path() -> None:
    for module, name in (("audio", "Audio"), ("voices", "Voice"), ("narration", "Narration"), ("codec", "Codec")):
        assert getattr(importlib.import_module(f"dualar.{module}"), name) is getattr(dualar, name)


def test_results_survive_a_pickle() -> None:
    timings = dualar.Timings(prefill_ms=1.0, loop_ms=2.0, ms_per_frame=3.0)
    made = dualar.Generation(
        codes=np.zeros((2, 3), np.int32), finish_reason="end", seed=1, padded_frames=0, timings=timings
    )
    again = pickle.loads(pickle.dumps(made))
    assert (again.codes == made.codes).all() and again.timings == timings
