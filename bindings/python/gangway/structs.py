"""Option structs from keywords, texts from buffers: what every class needs of the low-level layer."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Union

from . import _low as c
from . import low
from .errors import InvalidArgument

PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
"""Any path of the system, also one with bytes that are no UTF-8."""


def path_of(path: PathLike, argument: str) -> bytes:
    """A path for C."""
    try:
        made = os.fsencode(path)
    except TypeError:
        raise TypeError(f"{argument} is a {type(path).__name__}, not a path") from None
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{argument} is no path of the system: {error}") from None
    if b"\0" in made:
        raise InvalidArgument(f"{argument} has a zero byte at {made.index(0)}")
    return made


def shown(path: PathLike) -> str:
    """A path to be printed: bytes that are no UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def path_or_none(path: PathLike | None, argument: str) -> bytes | None:
    """Likewise; None: none."""
    return None if path is None else path_of(path, argument)


def fields_of(made: Any) -> list[str]:
    """What a struct holds for its users, by name."""
    return [name for name, value in vars(type(made)).items()
            if isinstance(value, property) and name not in ("thisown", "struct_size", "reserved", "next")]


def struct(kind: str, /, **fields: Any) -> Any:
    """A struct with its defaults and the given fields; None leaves a default. Keeps what it points at."""
    return fill(getattr(low, kind)(), **fields)


def fill(made: Any, /, **fields: Any) -> Any:
    """The struct with the given fields written into it; None leaves a field as it is. Keeps what it points at."""
    made._keep = fields
    for name, value in fields.items():
        if value is not None:
            setattr(made, name, value)
    return made


def handle_of(thing: Any, kind: type, argument: str) -> Any:
    """The handle of an argument, which must be of this class."""
    if not isinstance(thing, kind):
        raise TypeError(f"{argument} is a {type(thing).__name__}, not a {kind.__name__}")
    return getattr(thing, "_h")


def block(kind: str, items: Iterable[Any]) -> Any:
    """An array for C: v views, s structs, gw_... handles of this kind, t texts, a addresses, i int32, l int64;
    None when empty."""
    return c.block(kind, items)


def told(error: BaseException) -> str:
    """An exception as a text that C takes: its own may fail, or have no UTF-8, or a zero byte."""
    try:
        said = str(error)
    except Exception:
        said = "no text"
    return f"{type(error).__name__}: {said}".encode("utf-8", "replace").decode().replace("\0", "?")


def text(function: Callable[..., Any], *arguments: Any) -> str:
    """What a function writes into a buffer."""
    size = function(*arguments, None, 0)
    buffer = bytearray(size + 1)
    size = min(size, function(*arguments, buffer, len(buffer)))
    return buffer[:size].decode("utf-8", "replace")
