"""Ctrl-C: a real SIGINT from another process ends every wait of the main thread, and what breaks says so on every rank."""

import ctypes
import gc
import os
import signal
import sys
import threading
import time
import weakref
from contextlib import contextmanager
from functools import partial
from operator import methodcaller

import numpy as np
import pytest
from ranks import over

import gangway as gw
from gangway import _low, low

SAID = "ended by the caller's interrupt hook"
# Here and on each rank, which imports this: a job in a shell's background starts with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def told_inside(tell):
    """Calls `tell` on another thread when this one, the main one, is inside of a call of the library: from where it says
    so, by what this gives, only such a call, or a callback's end, gives up the interpreter's lock."""
    keeps = sys.getswitchinterval()
    begun = threading.Event()
    thread = threading.Thread(target=lambda: (_until(begun.is_set), tell()))
    thread.start()
    sys.setswitchinterval(1e6)
    try:
        yield begun.set
    finally:
        sys.setswitchinterval(keeps)
        begun.set()
        thread.join()


def _until(what):
    while not what():
        time.sleep(0.001)


class Striker:
    """Rank 1 interrupts rank 0, when that is known to be inside of its call."""

    def __init__(self, gangs):
        self.rank = gangs.rank
        self.clock = np.from_dlpack(gangs.root.empty((3,), "f64", shared=True))  # signal sent, inside, hit
        self.victim = int(gangs.root.all_gather(np.int64([os.getpid()]))[0, 0])

    def strike(self):
        _until(lambda: self.clock[1])
        self.clock[0] = time.monotonic()
        os.kill(self.victim, signal.SIGINT)

    def hit(self, what, wait):
        """On the victim; wait(begin) calls begin() where it is about to wait."""
        with pytest.raises(KeyboardInterrupt), told_inside(lambda: self.clock.__setitem__(1, 1)) as begin:
            wait(begin)
        print(f"{what}: ended {1e3 * (time.monotonic() - self.clock[0]):.1f} ms after the signal", flush=True)
        self.clock[2] = 1

    def await_hit(self):
        """On the other rank."""
        _until(lambda: self.clock[2])


@over(2)
def test_ctrl_c_ends_a_barrier_and_breaks_the_gang(gangs):
    gang, striker = gangs.root, Striker(gangs)
    if gangs.rank == 0:
        striker.hit("barrier", lambda begin: (begin(), gang.barrier()))
        with pytest.raises(gw.CallerFailed, match=SAID):
            gang.check()
        with pytest.raises(gw.CallerFailed, match=SAID):
            gang.all_sum(1)
    else:
        striker.strike()
        with pytest.raises(gw.Aborted, match=f"aborted by rank 0: .*{SAID}"):
            while True:
                gang.check()


class Stalling:
    """A loss whose forward ends on rank 1 on no other way than by its gang's end, so that rank 0 waits after its backward."""

    def __init__(self, gangs, striker):
        self.gangs, self.striker, self.begin = gangs, striker, None

    def shapes(self, x):
        return [((1,), "f64"), ((1,), "f64")]

    def forward(self, call):
        loss, weight = call.outputs
        loss[0] = weight[0] = 1
        if self.gangs.rank == 1:
            self.striker.strike()
            while True:
                self.gangs.root.check()

    def backward_input(self, call):
        self.begin()


@over(2)
def test_ctrl_c_ends_a_train_step_and_breaks_the_gangs(gangs):
    striker = Striker(gangs)
    loss = Stalling(gangs, striker)
    model = gw.Custom(loss, parameters={"w": (3,)}, outputs=2).parallelize(gangs)
    opt = gw.SGD(model)
    x = np.ones(3, np.float32)
    if gangs.rank == 0:
        def step(begin):
            loss.begin = begin
            gw.train_step(model, opt, x, weight=1)

        striker.hit("train step", step)
        with pytest.raises(gw.CallerFailed, match=f"train_step: rank 0: .*{SAID}"):
            gangs.root.check()
        with pytest.raises(gw.GangwayError, match=SAID):
            gw.train_step(model, opt, x, weight=1)
    else:
        with pytest.raises(gw.Aborted, match=f"aborted by rank 0: train_step: rank 0: .*{SAID}"):
            gw.train_step(model, opt, x, weight=1)


@over(2)
def test_ctrl_c_ends_an_unshard_and_breaks_the_groups_gang(gangs):
    striker = Striker(gangs)
    group = gw.ShardGroup(gangs, "layer", {"w": np.ones(10, np.float32)})
    _low.gw_shard_group_begin_update(group._h, None)
    if gangs.rank == 0:
        _low.gw_shard_group_end_update(group._h, None)
        striker.hit("unshard", lambda begin: (begin(), group.unshard()))  # waits for rank 1's new values
        with pytest.raises(gw.CallerFailed, match=SAID):
            group.unshard()
    else:
        striker.strike()
        striker.await_hit()
        with pytest.raises(gw.Aborted, match=f"aborted by rank 0: .*{SAID}"):
            _low.gw_shard_group_end_update(group._h, None)
            group.unshard()
    gangs.root.barrier()  # another gang: the group's traffic is its own


def test_ctrl_c_in_a_wait_for_a_work_leaves_the_work():
    first, second = gw.Gang.create_threads(2)
    x = np.ones(3)
    work = first.all_reduce_async_(x)
    with pytest.raises(KeyboardInterrupt), told_inside(lambda: os.kill(os.getpid(), signal.SIGINT)) as begin:
        begin()
        work.wait()
    peer = threading.Thread(target=lambda: second.all_reduce_(np.ones(3)))
    peer.start()
    work.wait(60)
    peer.join()
    assert (x == 2).all()


def test_ctrl_c_in_an_exchange_leaves_it_its_arrays():
    first, second = gw.Gang.create_threads(2)
    sent, received, answer = np.ones(3), np.zeros(3), np.full(3, 7.0)
    gone = weakref.ref(received)

    def peer():
        second.recv_(np.empty(3), 0)  # the exchange has begun
        os.kill(os.getpid(), signal.SIGINT)

    striker = threading.Thread(target=peer)
    striker.start()
    try:
        first.exchange_([(sent, 1)], [(received, 1)])
        raise AssertionError("nobody sends")
    except KeyboardInterrupt:
        pass
    striker.join()
    del sent, received
    gc.collect()
    assert gone() is not None and not gone().any()
    second.send(answer, 0)
    threading.Thread(target=second.barrier).start()
    first.barrier()


@pytest.mark.parametrize("succeeds", [True, False])
def test_ctrl_c_in_a_call_is_raised_after_it_whatever_its_end(succeeds):
    gang = gw.Gang.create()
    hook = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(int(low.py_interrupt))
    # Called from C, for Python itself looks for signals between two calls.
    asked = map(methodcaller("__call__"), [ctypes.pythonapi.PyErr_SetInterrupt, partial(hook, None)])
    assert list(asked)[1] == 1
    with pytest.raises(KeyboardInterrupt):
        gang.barrier() if succeeds else gw.Linear(-1, 2)
    gang.barrier()  # once


def test_a_handlers_own_exception_ends_a_wait_as_itself():
    class Stop(Exception):
        pass

    def handler(number, frame):
        raise Stop("enough")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        first, _second = gw.Gang.create_threads(2)
        with pytest.raises(Stop, match="enough"), told_inside(lambda: os.kill(os.getpid(), signal.SIGUSR1)) as begin:
            begin()
            first.barrier()
        with pytest.raises(gw.CallerFailed, match=SAID):
            first.check()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_returns_leaves_the_wait_alone():
    seen = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.set())
    try:
        first, second = gw.Gang.create_threads(2)
        peer = threading.Thread(target=lambda: (os.kill(os.getpid(), signal.SIGUSR1), seen.wait(60), second.barrier()))
        peer.start()
        first.barrier()
        peer.join()
        assert seen.is_set()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_ctrl_c_inside_of_a_callback_comes_out_of_the_call():
    class Busy:
        def shapes(self, x):
            return [x]

        def forward(self, call):
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                time.sleep(0.01)

        def backward_input(self, call):
            pass

    model = gw.Custom(Busy()).materialize()
    with pytest.raises(KeyboardInterrupt):
        model.forward(np.ones(3, np.float32))
