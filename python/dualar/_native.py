"""Imports the compiled core for the rest of the package.

Owns the import of `dualar._core` (no other module imports it), the error texts where it was not built or may not be
loaded, and the passing of ggml's log lines to Python's logging. Leaves what the core offers to `_core.pyi`, and ending
its computations when the program ends to the core (csrc/runtime/program_exit.h).
"""

from __future__ import annotations

import atexit
import importlib
import logging
from typing import TYPE_CHECKING, Any

_GGML_LOGGER = "dualar.ggml"


def _check_interpreter() -> None:
    """ImportError in a subinterpreter: the core belongs to the process, and a second interpreter would wait for the
    lock of the first one without end. (Asked of Python's C functions: its modules for this differ by version.)"""
    try:
        import ctypes
    except ImportError:  # Python was built without it; numpy does not need it either
        return
    current, main = ctypes.pythonapi.PyInterpreterState_Get, ctypes.pythonapi.PyInterpreterState_Main
    current.restype = main.restype = ctypes.c_void_p
    if current() != main():
        raise ImportError(
            "[dualar] expected Python's main interpreter, got a subinterpreter: use a thread, or a process of its own "
            "(multiprocessing, concurrent.futures.ProcessPoolExecutor)",
            name="dualar._core",
        )


def _load() -> Any:
    """The compiled module; ImportError with advice where it was not built."""
    try:
        return importlib.import_module("dualar._core")
    except ModuleNotFoundError as error:
        if error.name != "dualar._core":
            raise
        raise ImportError(
            "[dualar] expected the compiled module dualar._core beside the package, found none: install the package "
            "(`pip install .` in the source folder) instead of importing it from the source tree",
            name="dualar._core",
        ) from error


def _route_ggml_log(core: Any) -> None:
    """Send ggml's log lines to the logger "dualar.ggml"."""
    logger = logging.getLogger(_GGML_LOGGER)

    def sink(level: int, text: str) -> None:
        if line := text.rstrip():
            logger.log(level, "%s", line)

    core.set_log_sink(sink)
    atexit.register(core.set_log_sink, None)  # ggml may still log while the interpreter shuts down


if TYPE_CHECKING:
    from dualar import _core as _core
    from dualar._core import BackendError as BackendError
    from dualar._core import ModelError as ModelError
    from dualar._core import ModelFile as ModelFile
    from dualar._core import Prefix as Prefix
    from dualar._core import WaveNetState as WaveNetState
else:
    _check_interpreter()
    _core = _load()
    _route_ggml_log(_core)
    BackendError = _core.BackendError
    ModelError = _core.ModelError
    ModelFile = _core.ModelFile
    Prefix = _core.Prefix
    WaveNetState = _core.WaveNetState
