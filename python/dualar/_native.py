"""The compiled core, as the rest of the package reaches it.

Owns the import of `dualar._core` (no other module imports it), the advice where it was not built, and the way of ggml's
log lines to Python's logging. Leaves everything that the core computes to the core.
"""

from __future__ import annotations

import atexit
import importlib
import logging
from typing import TYPE_CHECKING, Any

_GGML_LOGGER = "dualar.ggml"


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
    atexit.register(core.set_log_sink, None)  # ggml may still speak while the interpreter goes away


if TYPE_CHECKING:
    from dualar import _core as _core
    from dualar._core import BackendError as BackendError
    from dualar._core import ModelError as ModelError
    from dualar._core import ModelFile as ModelFile
    from dualar._core import Prefix as Prefix
    from dualar._core import WaveNetState as WaveNetState
else:
    _core = _load()
    _route_ggml_log(_core)
    BackendError = _core.BackendError
    ModelError = _core.ModelError
    ModelFile = _core.ModelFile
    Prefix = _core.Prefix
    WaveNetState = _core.WaveNetState
