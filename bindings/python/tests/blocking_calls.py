"""What each blocking call of gangs, works, gangs of a mesh and pipelines needs as rank 0 or 1 (test_gil.py). Those of models are in
blocking_model_calls.py."""

import shutil
import tempfile

import numpy as np
import pytest

import gangway as gw

ENTRIES = {}
FOLDERS = []  # the last one is this run's


def entry(body):
    """A body that runs as both ranks; what it gives to `meet` is the call."""
    ENTRIES[body.__name__] = body
    return body


class Memory(gw.Store):
    def __init__(self):
        self.values = {}
        super().__init__()

    def put(self, key, value):
        self.values[key] = value

    def get(self, key):
        return self.values.get(key)

    def remove(self, key):
        self.values.pop(key, None)


STORE, KEPT = Memory(), []


def folder():
    return FOLDERS[-1]


def of_gang(name, call):
    def body(gang, meet):
        meet(lambda: call(gang))

    body.__name__ = f"gw_gang_{name}"
    entry(body)


X, ROWS = np.ones(3), np.ones((2, 3))
of_gang("barrier", lambda g: g.barrier())
of_gang("all_reduce", lambda g: g.all_reduce(X))
of_gang("all_gather", lambda g: g.all_gather(X))
of_gang("all_gather_list", lambda g: g.all_gather_list_([np.empty(3), np.empty(3)], X))
of_gang("reduce_scatter", lambda g: g.reduce_scatter(ROWS))
of_gang("broadcast", lambda g: g.broadcast(X, 1))
of_gang("reduce", lambda g: g.reduce(X, 0))
of_gang("gather", lambda g: g.gather(X, 0))
of_gang("scatter", lambda g: g.scatter_(np.empty(3), ROWS, 1))
of_gang("all_to_all", lambda g: g.all_to_all(ROWS))
of_gang("send", lambda g: g.recv_(np.empty(1 << 20), 0) if g.rank else g.send(np.ones(1 << 20), 1))
of_gang("recv", lambda g: g.send(X, 0) if g.rank else g.recv_(np.empty(3), 1))
of_gang("broadcast_bytes", lambda g: g.broadcast_object(b"bytes", 1))
of_gang("all_gather_bytes", lambda g: g.all_gather_objects(b"bytes"))
of_gang("broadcast_flag", lambda g: g.broadcast_flag(True, 1))
of_gang("all_sum", lambda g: g.all_sum(1))
of_gang("create_gang", lambda g: g.create_gang([1, 0]))
of_gang("split", lambda g: g.split(0))
of_gang("duplicate", lambda g: g.duplicate())
of_gang("alloc_shared", lambda g: g.empty((3,), shared=True))
of_gang("shutdown", lambda g: g.shutdown())


@entry
def gw_gang_create(gang, meet):
    # The new gang is kept, because a rank that is ready must not leave while the other rank is not.
    meet(lambda: KEPT.append(gw.Gang.create(store=STORE, rank=gang.rank, size=2, timeout=60)))


@entry
def gw_gang_shrink(gang, meet):
    if gang.rank == 1:
        gang.abort("to be shrunk")
    with pytest.raises(gw.Aborted):
        gang.barrier()
    meet(lambda: gang.shrink([0, 1]))


@entry
def gw_gang_begin_trace(gang, meet):
    folder = gang.broadcast_object(tempfile.mkdtemp() if gang.rank == 0 else None)
    meet(lambda: gang.trace(folder).__enter__())
    if gang.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)


@entry
def gw_work_wait(gang, meet):
    meet(lambda: gang.barrier_async().wait())


@entry
def gw_work_wait_many(gang, meet):
    meet(lambda: gw.wait_all([gang.barrier_async(), gang.all_reduce_async(X)]))


@entry
def gw_work_order(gang, meet):
    meet(lambda: gang.barrier_async().order())


@entry
def gw_gangs_create(gang, meet):
    meet(lambda: gw.Gangs.create(gang))


@entry
def gw_gangs_create_parallel(gang, meet):
    meet(lambda: gw.Gangs.create_parallel(gang, tp=2))


@entry
def gw_gangs_create_fsdp(gang, meet):
    gangs = gw.Gangs.create(gang)
    meet(lambda: gangs.create_fsdp(2))


@entry
def gw_gangs_create_of(gang, meet):
    gangs = gw.Gangs.create(gang)
    places = {place: gangs[place] for place in ("root", "dp", "rdp", "sdp", "tp", "pp", "cp")}
    meet(lambda: gw.Gangs.of(**places))


@entry
def gw_gangs_shutdown(gang, meet):
    gangs = gw.Gangs.create(gang)
    meet(gangs.shutdown)


@entry
def gw_pipeline_create(gang, meet):
    meet(lambda: gw.Pipeline(gang, microbatches=1))


@entry
def gw_pipeline_next(gang, meet):
    pipe = gw.Pipeline(gang, microbatches=1)
    if gang.rank == 0:
        pipe.next()
        pipe.done(X)
    assert meet(pipe.next).last_stage == (gang.rank == 1)  # rank 0 waits for the gradient
    pipe.done()
    if gang.rank == 1:
        pipe.next()
        pipe.done(X)
    assert pipe.next() is None
