"""Reads pickles as data: containers, numbers and texts, and calls of the few functions that the caller allows.

Python's own `pickle` calls whatever function a file names. Here a pickle is a list of instructions, which `pickletools`
takes apart, for a machine that knows only those below: a file may name any function, but only allowed ones are called.
Owns that machine. Leaves what PyTorch's functions mean to `torch_file.py`.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from typing import IO, Any, Protocol, cast

from dualar.convert.published import shown

Call = Callable[..., Any]

_MARK = object()
_CONSTANTS: dict[str, object] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES"),
}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}


class Readable(Protocol):
    """What a pickle is read from: an open file, or a mapped one."""

    def read(self, size: int, /) -> bytes: ...
    def readline(self) -> bytes: ...
    def tell(self) -> int: ...


class PickleError(ValueError):
    """A pickle that is damaged, or asks for what is not allowed."""


class UnlistedError(PickleError):
    """A pickle that names a class or function that is not allowed. `name` is which."""

    def __init__(self, name: str) -> None:
        super().__init__(f"an object of {name}")
        self.name = name


def read_pickle(file: Readable, *, allowed: Mapping[tuple[str, str], Call], persistent: Call) -> Any:
    """The object of the pickle that begins where `file` stands; the file stands behind it then.

    allowed: (module, name) -> what is called in its place. persistent: is given each persistent id. PickleError, of
    which `UnlistedError` is one kind, for anything else, what the called functions raise included.
    """
    machine = _Machine(allowed, persistent)
    try:
        for opcode, argument, _ in pickletools.genops(cast("IO[bytes]", file)):
            if opcode.name == "STOP":
                return machine.pop()
            machine.do(opcode.name, argument)
    except PickleError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise PickleError(f"{type(error).__name__}: {str(error)[:200]}") from error
    raise PickleError("no end")


class _Machine:
    """A stack, on which a mark stands before the items of a container, and a memo of objects that are used again."""

    def __init__(self, allowed: Mapping[tuple[str, str], Call], persistent: Call) -> None:
        self._allowed = allowed
        self._persistent = persistent
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise PickleError("a mark where a value belongs")
        return value

    def do(self, name: str, argument: Any) -> None:
        """One instruction."""
        stack = self._stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._memo[int(argument)] = self._last()
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self._last()
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._memo[int(argument)])
        elif name in ("TUPLE", "LIST", "DICT", "TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(self._built(name))
        elif name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS"):
            self._fill(name)
        elif name in ("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "BINPERSID", "PERSID"):
            self._call(name, argument)
        elif name not in ("PROTO", "FRAME"):
            raise PickleError(f"the instruction {name}")

    def _last(self) -> Any:
        value = self.pop()
        self._stack.append(value)
        return value

    def _items(self) -> list[Any]:
        """Take the objects above the last mark, and the mark, off the stack."""
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise PickleError("items without a mark")
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items

    def _built(self, name: str) -> Any:
        if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            return tuple(reversed([self.pop() for _ in range(int(name[-1]))]))
        items = self._items()
        if name == "DICT":
            return dict(zip(items[::2], items[1::2], strict=True))
        return tuple(items) if name == "TUPLE" else items

    def _fill(self, name: str) -> None:
        if name == "SETITEM":
            items = [self.pop(), self.pop()][::-1]
        else:
            items = [self.pop()] if name == "APPEND" else self._items()
        container = self._last()
        if name.startswith("SETITEM"):
            _of(dict, container).update(zip(items[::2], items[1::2], strict=True))
        elif name.startswith("APPEND"):
            _of(list, container).extend(items)
        else:
            _of(set, container).update(items)

    def _call(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in ("BINPERSID", "PERSID"):
            stack.append(self._persistent(self.pop() if name == "BINPERSID" else argument))
        elif name == "BUILD":  # sets an object's state, which no object here needs
            self.pop()
        elif name == "REDUCE":
            arguments, function = self.pop(), self.pop()
            if not isinstance(function, _Function):
                raise PickleError(f"a call of {type(function).__name__}")
            stack.append(function.call(*_of(tuple, arguments)))
        else:
            if name == "GLOBAL":
                module, function_name = argument.split(" ", 1)
            else:
                function_name, module = self.pop(), self.pop()
            key = (module, function_name)
            if key not in self._allowed:
                raise UnlistedError(shown(f"{module}.{function_name}"))
            stack.append(_Function(self._allowed[key]))


class _Function:
    """A function that a pickle has named and may call."""

    def __init__(self, call: Call) -> None:
        self.call = call


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise PickleError(f"{type(value).__name__} where {kind.__name__} belongs")
    return value
