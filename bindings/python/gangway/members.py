"""Members of the library's enumerations by the names that callers give."""

from __future__ import annotations

from typing import Any, Type

from .enums import E
from .errors import InvalidArgument

_NAMED: dict[tuple[type, str], Any] = {}


def member(kind: Type[E], value: int | str, argument: str) -> E:
    """A member by itself, its number, or its name in any case."""
    if type(value) is kind:
        return value
    if not isinstance(value, str):
        return kind(value)
    found: E | None = _NAMED.get((kind, value))
    if found is None:
        found = kind.__members__.get(value.upper())
        if found is None:
            names = ", ".join(n.lower() for n in kind.__members__)
            raise InvalidArgument(f'{argument} is "{value}", not one of {names}')
        _NAMED[kind, value] = found  # collectives ask each time
    return found
