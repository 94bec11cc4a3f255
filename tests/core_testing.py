"""`dualar._core.testing`: kernels and layers of the core by themselves, which no wheel carries.

Only a build with DUALAR_TESTING=ON has it. Where it is missing, the test modules that need it are skipped whole, and
the reason says what to install; the project's own checks refuse such a build.
"""

from __future__ import annotations

from typing import Any

import pytest
from dualar import _core

testing: Any = getattr(_core, "testing", None)
if testing is None:
    pytest.skip(
        "the package was built without its test bindings: CMAKE_ARGS=-DDUALAR_TESTING=ON pip install '.[test]'",
        allow_module_level=True,
    )
