"""Collectives in flight."""

from __future__ import annotations

import math
from typing import Any, Callable, Generic, Sequence, TypeVar

from . import _low as c
from .errors import GangwayError
from .structs import block

T = TypeVar("T")


def milliseconds(seconds: float | None) -> int:
    """None: forever. Rounded up, as 0 has meanings of its own."""
    return -1 if seconds is None else math.ceil(seconds * 1000)


class Work(Generic[T]):
    """A collective in flight. Arrays that it uses live until it is done, also when this object is dropped."""

    def __init__(self, handle: Any, finish: Callable[[], T], stream: int | None = None) -> None:
        self._h = handle
        self._finish = finish
        self._stream = stream

    def __repr__(self) -> str:
        try:
            return f"<Work: {'done' if self.done() else 'in flight'}>"
        except GangwayError as error:
            return f"<Work: failed, {error.code.name}>"

    def wait(self, timeout: float | None = None) -> T:
        """The result. NotReady after `timeout` seconds, which is harmless; None: until the gang's deadline."""
        c.gw_work_wait(self._h, milliseconds(timeout))
        return self._finish()

    def order(self, stream: int | None = None) -> T:
        """The result, for later work on `stream`, which waits for it; None: on that of the call, on a GPU CUDA's legacy default
        stream. It must live until the gang is released. On a CPU the host waits, until the gang's deadline."""
        c.gw_work_order(self._h, self._stream if stream is None else stream)
        return self._finish()

    def _now(self) -> T:
        """The result of a plain call, which on a GPU is ordered on a stream."""
        return self.wait() if self._stream is None else self.order()

    def done(self) -> bool:
        """Whether the result is there; raises when the work has failed."""
        return bool(c.gw_work_poll(self._h))

    def check(self) -> None:
        """Raises when the work has failed."""
        c.gw_work_error(self._h)


def wait_all(works: Sequence[Work[Any]], timeout: float | None = None) -> list[Any]:
    """The results of all works; the first failure is raised."""
    c.gw_work_wait_many(block("gw_work", [w._h for w in works]), len(works), milliseconds(timeout))
    return [w._finish() for w in works]
