"""What every call of c10d needs here: the library's call is run, or started as a Work."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Callable, Sequence

import torch

from .. import _low as c
from .. import low
from ..errors import GangwayError, InvalidArgument
from ..structs import block, struct
from .failures import told
from .messages import Messages
from .tensors import Finish
from .works import Work

_profiled: Callable[[], bool] = torch._C._autograd._profiler_enabled
_NAMES = ("barrier", "all_reduce", "all_gather", "all_gather_list", "reduce_scatter", "broadcast", "reduce", "gather",
          "scatter", "all_to_all")
_NOW: dict[str, Callable[..., Any]] = {n: getattr(c, f"gw_gang_{n}") for n in _NAMES}
_LATER: dict[str, Callable[..., Any]] = {n: getattr(c, f"gw_gang_{n}_async") for n in _NAMES}


class Running:
    """The calls of one group."""

    _h: Any
    _rank: int
    _size: int
    _messages: Messages
    _timeout: timedelta  # of the gang
    _patience: timedelta | None  # of each call, where it differs from the gang's own
    _calls = 0

    def _run(self, name: str, arguments: tuple[Any, ...], opts: Any, result: Sequence[Any], finish: Finish | None,
             *keep: Any) -> Work | None:
        """Runs it where the caller waits, else starts it. `keep` lives until it is done."""
        if _profiled():
            with torch.profiler.record_function(f"gangway:{name}"):
                return self._call(name, arguments, opts, result, finish, *keep)
        return self._call(name, arguments, opts, result, finish, *keep)

    def _call(self, name: str, arguments: tuple[Any, ...], opts: Any, result: Sequence[Any], finish: Finish | None,
              *keep: Any) -> Work | None:
        self._calls += 1
        if opts.asyncOp or self._patience is not None:
            try:
                handle = _LATER[name](self._h, *arguments, None)
                c.gw_work_attach(handle, (result, keep), low.py_free)
            except GangwayError as error:
                raise told(error)
            return self._given(Work(iter((handle,)), result, finish), opts)
        try:
            _NOW[name](self._h, *arguments, None)
        except GangwayError as error:
            raise told(error)
        if finish is not None:
            finish()
        return None

    def _record(self, opts: Any, result: Sequence[Any], finish: Finish | None, *keep: Any, counts: Sequence[int],
                **fields: Any) -> Work | None:
        """A call with counts for each rank."""
        self._calls += 1
        record = struct("gw_collective", counts=block("l", counts), **fields)
        try:
            handle = c.gw_gang_run(self._h, record, None)
            c.gw_work_attach(handle, (result, keep), low.py_free)
        except GangwayError as error:
            raise told(error)
        return self._given(Work(iter((handle,)), result, finish), opts)

    def _limited(self, work: Work) -> Work:
        work.limit((self._patience or self._timeout).total_seconds(), self)
        return work

    def _given(self, work: Work, opts: Any) -> Work | None:
        if opts.asyncOp:
            return self._limited(work)
        work.wait(self._patience)
        return None

    def _several(self, calls: Sequence[Work | None], opts: Any, result: Sequence[Any]) -> Work | None:
        """Calls that were started one after the other, as one work."""
        works = [w for w in calls if w is not None]
        if not works:
            return Work(iter(()), result) if opts.asyncOp else None
        return self._limited(Work(handles_of(works), result))

    def _one_each(self, tensors: Sequence[Any], name: str) -> None:
        if len(tensors) != self._size:
            raise InvalidArgument(f"{name}: {len(tensors)} were given, {self._size} are needed, one for each rank")


def handles_of(works: Sequence[Work]) -> Any:
    """The steps of works that began one after the other, then their ends."""
    for work in works:
        while not work._advance():
            yield work._handle
        if work._error is not None:
            raise work._error


class Options:
    """c10d's options of a call, as far as they are asked here."""

    def __init__(self, async_op: bool) -> None:
        self.asyncOp = async_op
        self.timeout = timedelta(0)


SYNC, ASYNC = Options(False), Options(True)
