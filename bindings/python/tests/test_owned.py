"""What the library owns for its callers, behaviours, callbacks, states, attached objects, is freed exactly once."""

import gc
import sys
import threading
import weakref

import numpy as np
import pytest
from test_lifetime import Doubling

import gangway as gw
from gangway import _low, low
from gangway.gang import gang_options
from gangway.structs import struct


def test_free_functions_run_exactly_once():
    class Counted(Doubling):
        alive = 0

        def __init__(self):
            Counted.alive += 1

        def __del__(self):
            Counted.alive -= 1

    module = gw.Custom(Counted())
    parent = gw.Sequential(module)
    del module
    gc.collect()
    assert Counted.alive == 1
    del parent
    gc.collect()
    assert Counted.alive == 0
    with pytest.raises(gw.InvalidArgument):
        gw.Custom(Counted(), inputs=-1)  # refused: freed too
    gc.collect()
    assert Counted.alive == 0
    module = gw.Custom(Counted())
    module.materialize()
    frame = gw.Frame(module)
    module.forward(np.ones(3, np.float32), frame=frame)
    del module, frame
    gc.collect()
    assert Counted.alive == 0


class Kept(Doubling):
    def __call__(self, *_):
        raise AssertionError("nobody asks")


def group_of(kept, gangs=None, name="g", **options):
    gw.ShardGroup(gangs, name, {"v": gw.Spec((3,), init=kept), "w": gw.Spec((3,), init=kept)}, **options)


def released_gangs():
    gangs = gw.Gangs.create_fake()
    gangs.release()
    return gangs


REFUSED = {  # before the library has seen the object, and by the library itself
    "a parameter": lambda kept: gw.ShardGroup(None, "g", {"w": gw.Spec((3,), init=kept), "v": gw.Spec((3,), init="round")}),
    "a strategy": lambda kept: group_of(kept, strategy="none of them"),
    "released gangs": lambda kept: group_of(kept, released_gangs()),
    "gangs of a kind": lambda kept: group_of(kept, gw.Gang.create_fake(0, 2)),
    "no name": lambda kept: group_of(kept, name=3),
    "a name": lambda kept: group_of(kept, name="a\0b"),
    "a seed": lambda kept: group_of(kept, seed=-1),
    "dims": lambda kept: gw.ShardGroup(None, "g", {"w": gw.Spec((-3,), init=kept)}),
    "inputs": lambda kept: gw.Custom(kept, parameters={"w": gw.Spec((3,), init=kept)}, inputs="two"),
    "too few inputs": lambda kept: gw.Custom(kept, parameters={"w": gw.Spec((3,), init=kept)}, inputs=-1),
    "a child": lambda kept: gw.Custom(kept, children={"a\0b": gw.Linear(1, 1)}),
    "an option": lambda kept: gw.Gang.create(all_gather=kept, colour="green"),
    "a count": lambda kept: _low.gw_gang_create_threads("two", gang_options(all_gather=kept)),
    "threads that gather": lambda kept: _low.gw_gang_create_threads(2, gang_options(all_gather=kept)),
    "a size": lambda kept: _low.gw_gang_create_fake(0, 1 << 40, gang_options(all_gather=kept)),
    "a hook": lambda kept: _low.gw_interrupt_set("no function", kept, low.py_free),
    "an allocator": lambda kept: _low.gw_allocator_set(struct("gw_allocator", user=kept, free_user=low.py_free)),
    "a work": lambda kept: _low.gw_work_attach("no work", kept, low.py_free),
    "no work": lambda kept: _low.gw_work_attach(None, kept, low.py_free),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_what_a_refused_call_was_given_is_let_go_once(refused):
    kept = Kept()
    before = sys.getrefcount(kept)
    for _ in range(3):
        with pytest.raises((gw.GangwayError, TypeError, OverflowError)):
            refused(kept)
    gc.collect()
    assert sys.getrefcount(kept) == before


def test_options_may_be_given_to_several_calls():
    kept = Kept()
    before = sys.getrefcount(kept)
    options = gang_options(all_gather=kept, rank=0, size=1)
    for _ in range(3):
        with pytest.raises(gw.InvalidArgument, match="all_gather"):
            _low.gw_gang_create_threads(2, options)
    assert sys.getrefcount(kept) == before + 1
    del options
    assert sys.getrefcount(kept) == before


def test_a_started_unshard_needs_no_group():
    group = gw.ShardGroup(None, "g", {"w": np.ones(3, np.float32)})
    work = group.unshard_async()
    del group
    gc.collect()
    work.wait(60)


def test_a_call_is_refused_when_its_callback_has_ended():
    calls = []

    class Keeping(Doubling):
        def forward(self, call):
            calls.append(call)
            super().forward(call)
            if len(calls) == 2:
                raise ZeroDivisionError("enough")

    model = gw.Custom(Keeping()).materialize()
    x = np.ones(3, np.float32)
    model.forward(x)
    with pytest.raises(ZeroDivisionError, match="enough"):
        model.forward(x)
    for call in calls:
        for use in (lambda: call.inputs, lambda: call.state, lambda: setattr(call, "state", 1), lambda: call.forward(0, x)):
            with pytest.raises(gw.InvalidState, match="Keeping: forward has ended"):
                use()


def test_a_state_is_freed_exactly_once():
    freed = []

    class State:
        def __del__(self):
            freed.append(1)

    class Stateful(Doubling):
        def forward(self, call):
            super().forward(call)
            call.state = State()

    model = gw.Custom(Stateful()).materialize()
    x = np.ones(3, np.float32)
    for backward in (True, False):
        frame = gw.Frame(model)
        model.forward(x, frame=frame)
        assert not freed
        if backward:
            assert model.backward(x, frame=frame)[0].tolist() == [2, 2, 2]
        del frame
        gc.collect()
        assert freed == [1]
        freed.clear()
    model.forward(x)  # evaluation keeps nothing
    gc.collect()
    assert freed == [1]


def test_the_interrupt_hooks_object_is_freed_when_it_is_replaced():
    class Hook:
        pass

    hook = Hook()
    gone = weakref.ref(hook)
    _low.gw_interrupt_set(low.py_interrupt, hook, low.py_free)
    del hook
    assert gone() is not None
    gw.watch_signals()
    assert gone() is None


def test_an_attached_object_lives_until_its_work_is_done():
    first, second = gw.Gang.create_threads(2)
    x = np.ones(5)
    gone = weakref.ref(x)
    work = first.all_reduce_async_(x)
    y = np.ones(5)
    del work, x
    gc.collect()
    assert gone() is not None  # in flight, though nobody holds it
    later = first.barrier_async()
    peer = threading.Thread(target=lambda: (second.all_reduce_(y), second.barrier()))
    peer.start()
    later.wait(60)
    peer.join()
    first.barrier_async().done()
    del later
    gc.collect()
    assert (y == 2).all()


def test_while_a_handle_is_released_no_other_thread_gets_it():
    """The library frees the store's object inside of the release, where other threads run."""
    seen = []

    def use():
        try:
            seen.append(_low.block("gw_store", [handle]))
        except gw.InvalidState as error:
            seen.append(str(error))

    class Callbacks:
        def __del__(self):
            other = threading.Thread(target=use)
            other.start()
            other.join()

    handle = _low.gw_store_create_callbacks(struct(
        "gw_store_callbacks", put=low.py_put, get=low.py_get, remove=low.py_remove, user=Callbacks(),
        free_user=low.py_free))
    _low.gw_store_release(handle)
    assert seen == ["the object was released"]


@pytest.mark.parametrize("given", [0, 1, 3], ids="{} of 2 ranks".format)
def test_what_an_all_gather_gives_must_be_every_ranks_bytes(given):
    def gather(mine):
        gw.Gang.create()  # of another size
        return mine * given

    with pytest.raises(gw.InvalidArgument, match=r"all_gather gave \d+ bytes, \d+ are needed, \d+ of each rank"):
        _low.gw_gang_create(struct("gw_gang_options", all_gather=low.py_all_gather, user=gather, free_user=low.py_free,
                                   rank=0, size=2))


@pytest.mark.parametrize("output", [-1, 1])
def test_a_shape_of_an_output_that_the_module_lacks_is_refused(output):
    def answer(raw):
        _low.set_shape(raw, output, (1,), int(gw.DType.F32))

    module = gw.Module(_low.gw_custom_create(struct(
        "gw_custom_options", shapes=low.py_call, forward=low.py_call, backward_input=low.py_call, user=answer,
        free_user=low.py_free, input_count=1, output_count=1)))
    with pytest.raises(gw.InvalidArgument, match=f"output is {output}, the module has 1"):
        module.materialize().forward(np.ones(3, np.float32))
