"""Reads a checkpoint's config.json, and reports all faults of it in one error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dualar._native import _core
from dualar.convert.published import shown

_MAX_SIZE = 2**31 - 1


class Settings:
    """An object of a config. A getter notes what is wrong and returns some value of the right type, so that all faults
    are found in one pass.

    `require` raises one ModelError for all that was noted, here and in the objects inside.
    """

    def __init__(self, values: Mapping[str, Any], *, source: str, path: str = "", problems: list[str] | None = None):
        self._values = values
        self._source = source
        self._path = path
        self._problems: list[str] = [] if problems is None else problems

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def is_null(self, key: str) -> bool:
        """Whether the key is absent, or null."""
        return self._values.get(key) is None

    def names(self) -> list[str]:
        """The names that are there, as the file has them."""
        return list(self._values)

    def integer(self, key: str, low: int = 1, high: int = _MAX_SIZE, *, default: int | None = None) -> int:
        """A whole number from low to high, both included; the default where the key is absent or null."""
        if default is not None and self.is_null(key):
            return default
        value = self._values.get(key)
        if type(value) is not int or not low <= value <= high:
            self.note(key, f"a whole number from {low} to {high}", self._got(key))
            return low
        return value

    def real(self, key: str, low: float, high: float, *, default: float | None = None) -> float:
        """A number from low to high, both included; the default where the key is absent or null."""
        if default is not None and self.is_null(key):
            return default
        value = self._values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            self.note(key, f"a number from {low:g} to {high:g}", self._got(key))
            return low
        return float(value) if math.isfinite(value) else low

    def boolean(self, key: str, *, default: bool | None = None) -> bool:
        """true or false; the default where the key is absent or null."""
        if default is not None and self.is_null(key):
            return default
        value = self._values.get(key)
        if not isinstance(value, bool):
            self.note(key, "true or false", self._got(key))
            return False
        return value

    def text(self, key: str, among: tuple[str, ...] = ()) -> str:
        """A string, one of `among` where that is given."""
        value = self._values.get(key)
        if not isinstance(value, str) or (among and value not in among):
            self.note(key, " or ".join(among) if among else "a string", self._got(key))
            return among[0] if among else ""
        return value

    def text_or_false(self, key: str) -> str:
        """A string, or "" for false or null."""
        return "" if self._values.get(key) in (False, None, "") else self.text(key)

    def integers(self, key: str, low: int = 1, high: int = _MAX_SIZE) -> list[int]:
        """An array of whole numbers from low to high."""
        value = self._values.get(key)
        if not isinstance(value, list) or not all(type(v) is int and low <= v <= high for v in value):
            self.note(key, f"an array of whole numbers from {low} to {high}", self._got(key))
            return []
        return value

    def inside(self, key: str) -> Settings:
        """An object inside this one, which may be empty."""
        value = self._values.get(key)
        if not isinstance(value, dict):
            self.note(key, "an object", self._got(key))
            value = {}
        return Settings(value, source=self._source, path=f"{self._path}{key}.", problems=self._problems)

    def only(self, key: str, allowed: Any) -> None:
        """The key may be absent; where it is there, it must have this value, as nothing else is implemented."""
        value = self._values.get(key, allowed)
        if value is not allowed and value != allowed:
            self.note(key, f"{allowed!r} (nothing else is supported)", self._got(key))

    def note(self, key: str, expected: str, got: str) -> None:
        """Note a problem, once."""
        problem = f"[{self._path}{shown(key)}] expected {expected}, got {got}"
        if problem not in self._problems:  # a value may be read more than once
            self._problems.append(problem)

    def require(self) -> None:
        """ModelError where anything was noted."""
        if self._problems:
            raise _core.ModelError(
                f"[checkpoint] {self._source}: the config is not as expected:\n" + "\n".join(self._problems)
            )

    def _got(self, key: str) -> str:
        if key not in self._values:
            return "no such key"
        value = self._values[key]
        return "null" if value is None else repr(value)[:80]
