"""Works: collectives in flight as torch.distributed sees them, and the thread that completes their futures."""

from __future__ import annotations

import queue
import threading
import time
from datetime import timedelta
from typing import Any, Iterator, Sequence

import torch
import torch.distributed as dist

from .. import _low as c
from ..errors import NotReady
from .failures import told
from .tensors import Finish

Steps = Iterator[Any]
"""A call of several parts: gives the handle of each part that has begun, or None while it must ask again later."""

_SLICE_MS = 20  # of the completing thread, for one work; fewer where it has several
_SHORT_SLICE_MS = 2
_PAUSES = (0.0,) * 200 + (0.00005,) * 200 + (0.001,)  # seconds between questions: soon, then seldom


class Work(dist.Work):
    """A call in flight. Nothing but a wait, a poll or the completing thread ends it; any thread may do so, once."""

    def __init__(self, steps: Steps, result: Sequence[Any], finish: Finish | None = None) -> None:
        super().__init__()
        self._steps = steps
        self._handle: Any = None  # of the part in flight
        self._result = list(result)
        self._finish = finish
        self._lock = threading.RLock()
        self._ended = False
        self._error: BaseException | None = None
        self._ending: torch.futures.Future[None] | None = None
        self._future: torch.futures.Future[Any] | None = None
        self._waiting = "a receive: nothing has come"
        self._limit: tuple[float, Any] | None = None  # how long its parts may take, and the group
        self._since = 0.0  # when the completing thread began to wait for this part
        self._sender = -1
        self._senders: list[int] = []  # of a receive from any rank

    # --- what torch.distributed asks

    def wait(self, timeout: timedelta | None = None) -> bool:
        """True when it is done. After `timeout` DistBackendError, which is harmless; 0 or None: until the group's time-out."""
        if not self._ended:
            seconds = timeout.total_seconds() if timeout else 0.0
            self._wait(time.monotonic() + seconds if seconds > 0 else None)
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether it is over, also by a failure. Asking drives the call forward."""
        return self._ended or self._advance()

    def is_success(self) -> bool:
        """Whether it is over and has not failed."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """Its failure."""
        return self._error

    def synchronize(self) -> None:
        """On a CPU the same as wait()."""
        self.wait()

    def block_current_stream(self) -> None:
        """On a CPU the same as wait()."""
        self.wait()

    def result(self) -> list[Any]:
        """The outputs."""
        return self._result

    def source_rank(self) -> int:
        """Who sent what a receive from any rank got; -1 before it is done."""
        return self._senders[0] if self._senders else self._sender

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """Done when this is; its value is the list of the outputs. A thread of this process waits for it."""
        with self._lock:
            if self._future is None:
                # An error that a callback raises is one for C++, too; Future.set_exception() is known to Python alone, and
                # DDP would take the exception for its tensors.
                self._ending = torch.futures.Future()
                self._future = self._ending.then(self._outcome)
                if self._ended:
                    self._ending.set_result(None)
                else:
                    COMPLETER.add(self)
            return self._future

    def get_future_result(self) -> torch.futures.Future[Any]:
        """The same as get_future()."""
        return self.get_future()

    def limit(self, seconds: float, group: Any) -> None:
        """The group's time-out, for a work that nobody but the completing thread waits for."""
        self._limit = (seconds, group)

    # --- what moves it on

    def _advance(self) -> bool:
        """Takes all steps that can be taken now. True: over."""
        with self._lock:
            while not self._ended:
                try:
                    if self._handle is not None and not c.gw_work_poll(self._handle):
                        return False
                    self._handle = next(self._steps)
                    self._since = 0.0
                    if self._handle is None:
                        return False
                except StopIteration:
                    self._end(None)
                except BaseException as error:
                    self._end(error)
        return True

    def _wait(self, deadline: float | None) -> None:
        asked = 0
        while not self._advance():
            handle = self._handle
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise dist.DistBackendError(f"{self._waiting}: the timeout of this wait has passed")
            if handle is None:
                time.sleep(_PAUSES[min(asked, len(_PAUSES) - 1)])
                asked += 1
                continue
            self._nap(handle, -1 if left is None else max(1, int(left * 1000)))

    def _nap(self, handle: Any, milliseconds: int) -> None:
        """Sleeps for the part in flight; what has failed is found by the next step."""
        try:
            c.gw_work_wait(handle, milliseconds)
        except NotReady as error:
            self._waiting = error.text
        except Exception as error:
            with self._lock:
                if not self._ended:
                    self._end(error)

    def _give_up(self) -> None:
        """Ends it, and its group, where it has taken longer than the group's time-out."""
        limit, handle = self._limit, self._handle
        if limit is None:
            return
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since < limit[0]:
            return
        if handle is not None:
            self._nap(handle, _SLICE_MS)  # says whom it waits for
        what, _, who = self._waiting.partition(": not ready; waiting for ")
        text = f"{what}: {who or 'it'} did not come within {limit[0] * 1000:.0f} ms"
        with self._lock:
            if not self._advance():
                if limit[1]._h is not c.RELEASED:
                    c.gw_gang_abort(limit[1]._h, text)  # so that the peers hear of it
                self._end(dist.DistBackendError(f"{text}: the timeout has passed"))

    def _end(self, error: BaseException | None) -> None:
        """Under the lock, once."""
        if error is None and self._finish is not None:
            try:
                self._finish()
            except Exception as failed:
                error = failed
        self._error = None if error is None else told(error)
        self._steps, self._handle, self._finish, self._limit = iter(()), None, None, None
        self._ended = True
        if self._ending is not None:
            self._ending.set_result(None)

    def _outcome(self, _: Any) -> list[Any]:
        if self._error is not None:
            raise self._error
        return self._result


def parts(handles: Sequence[Any]) -> Steps:
    """Calls that have begun, in any number."""
    yield from handles


class Completer:
    """A thread that waits for works whose futures someone holds: nothing else would complete them. It starts with the
    first such work, and holds the interpreter's lock only between waits."""

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, work: Work) -> None:
        """Completes this one, too."""
        self._works.put(work)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # a forked child has none
                self._thread = threading.Thread(target=self._run, name="gangway futures", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        open_works: list[Work] = []
        work = handle = None
        while True:
            if not open_works:
                work = handle = None  # a work that is over keeps nothing of its group alive
                open_works.append(self._works.get())
            while not self._works.empty():
                open_works.append(self._works.get())
            for work in open_works:
                work._give_up()
            open_works = [w for w in open_works if not w._advance()]
            if not open_works:
                continue
            handle = open_works[0]._handle
            if handle is None:
                time.sleep(0.001)
            else:
                open_works[0]._nap(handle, _SLICE_MS if len(open_works) == 1 else _SHORT_SLICE_MS)


COMPLETER = Completer()
