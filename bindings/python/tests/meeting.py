"""Two ranks that are threads of one process: one waits in a call of the library for the other, while a third thread runs."""

import ctypes
import threading
from pathlib import Path

import gangway as gw
from gangway import _low
from gangway.level import LIBRARY


class Meeting:
    """Rank 0 calls while rank 1 is held until a third thread has advanced. The body runs as both, with a gang and with
    meet(call)."""

    PATIENCE = 120  # seconds until a call is given up

    def __init__(self, name, body):
        self.name, self.body, self.asked, self.armed, self.done = name, body, 0, False, False
        self.inside = []  # the low-level calls of rank 0, innermost last
        self.advanced, self.failures = threading.Event(), []
        self.hook = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self.ask)

    def ask(self, _):
        """The library's interrupt hook: rank 0 waits inside of a call."""
        self.asked += self.armed and self.inside[-1:] == [self.name]
        return 0

    def _told(self, name, function):
        def call(*arguments):
            if threading.current_thread().name != "rank 0":
                return function(*arguments)
            self.inside.append(name)
            try:
                return function(*arguments)
            finally:
                self.inside.pop()

        return call

    def rank0(self, gang):
        library = ctypes.CDLL(str(Path(gw.__file__).with_name(LIBRARY)))
        library.gw_interrupt_set(self.hook, None, None)

        def meet(call):
            self.armed = True
            result = call()
            self.armed, self.done = False, True
            return result

        self.body(gang, meet)
        library.gw_interrupt_set(None, None, None)

    def rank1(self, gang):
        self.body(gang, lambda call: (self.advanced.wait(), call())[1])

    def run(self, watched):
        """`watched`: the low-level calls to tell apart; which did what, line by line."""
        whole = {n: getattr(_low, n) for n in watched}
        for name, function in whole.items():
            setattr(_low, name, self._told(name, function))
        try:
            gangs = gw.Gang.create_threads(2, timeout=self.PATIENCE)
            ranks = [threading.Thread(target=self.guard, args=(body, gang), name=f"rank {gang.rank}")
                     for body, gang in zip((self.rank0, self.rank1), gangs)]
            for rank in ranks:
                rank.start()
            self.advance()
            for rank in ranks:
                rank.join()
        finally:
            for name, function in whole.items():
                setattr(_low, name, function)
        for failure in self.failures:
            print(f"{self.name}: {failure!r}", flush=True)
        if not self.failures and self.asked < 2:
            print(f"{self.name}: returned without waiting", flush=True)

    def guard(self, body, gang):
        try:
            body(gang)
        except BaseException as error:
            self.failures.append(error)
            self.advanced.set()
            gang.abort(repr(error))

    def advance(self):
        """The lock is never taken from a thread that keeps it: this one runs only when the others let go."""
        while self.asked < 2 and not self.done and not self.failures:
            self.advanced.wait(0.001)
        if not self.done and not self.failures:
            print(f"{self.name}: other threads advanced", flush=True)
        self.advanced.set()
