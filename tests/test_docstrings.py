"""Every public name says what it is, and what it takes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import dualar
import pytest

SELF_EVIDENT = {"self", "cls", "path", "text"}
# A docstring that points at another one may leave its arguments to it.
REFERENCE = re.compile(r"(?i)\bas (for |in |of |the )?`|\bthose of `|errors? as ")


def public() -> Iterator[tuple[str, Any, str]]:
    """(name, member, docstring of its class) of the names in `__all__` and of the public members of its classes."""
    for name in dualar.__all__:
        found = getattr(dualar, name)
        if inspect.isclass(found):
            about = found.__doc__ or ""
            yield name, found, about
            for inner, member in vars(found).items():
                if not inner.startswith("_"):
                    unbound = member.__func__ if isinstance(member, classmethod | staticmethod) else member
                    yield f"{name}.{inner}", unbound, about
        elif callable(found) and found.__module__.startswith("dualar"):
            yield name, found, ""


MEMBERS = [
    (name, member, about)
    for name, member, about in public()
    if inspect.isclass(member) or inspect.isroutine(member) or isinstance(member, property)
]


@pytest.mark.parametrize(("name", "member"), [each[:2] for each in MEMBERS], ids=[each[0] for each in MEMBERS])
def test_it_has_a_docstring(name: str, member: Any) -> None:
    assert inspect.getdoc(member) if inspect.isclass(member) else member.__doc__, name


def test_its_arguments_are_named() -> None:
    functions = [(name, member, about) for name, member, about in MEMBERS if inspect.isfunction(member)]
    assert len(functions) > 70
    missing = [
        f"{name}({argument})"
        for name, function, about in functions
        if not REFERENCE.search(function.__doc__ or "")
        for argument in arguments(function)
        if not re.search(rf"(?i)\b{argument}\b", f"{function.__doc__} {about}")
    ]
    assert not missing


def arguments(function: Callable[..., object]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in SELF_EVIDENT]
