"""Life times: counted memory, releases in every order, collections during collectives, exports that outlive owners."""

import gc
import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from counted import growth, sanitized
from ranks import ALL, over, together

import gangway as gw
from gangway import _low
from gangway.arrays import borrow


# Multiples of 7, the entries in a block of the library's rings, which the first rounds fill.
FIRST_ROUNDS, ROUNDS = 1008, 10080 if ALL else 2520


class Doubling:
    def shapes(self, x):
        return [x]

    def forward(self, call):
        np.multiply(call.inputs[0], 2, out=call.outputs[0])
        call.state = [call.microbatch]

    def backward_input(self, call):
        np.multiply(call.output_grads[0], 2, out=call.input_grads[0])


def make_gang():
    gang = gw.Gang.create_fake(0, 2, threads=2)
    gang.empty((4,))


FAKE, ONES = gw.Gang.create_fake(0, 2), np.ones(16)


def make_work():
    references = sys.getrefcount(ONES)
    FAKE.all_reduce_async(ONES).wait()
    assert FAKE.broadcast_flag_async(True).wait()
    FAKE.all_gather(ONES, counts=[16, 16])
    assert sys.getrefcount(ONES) == references


def make_model():
    gw.Linear(3, 2).materialize()["weight"].value()


def make_custom():
    gw.Custom(Doubling(), parameters={"w": np.ones(3, np.float32)})


def make_group():
    group = gw.ShardGroup(None, "g", {"w": np.ones(3, np.float32)})
    with group.unsharded() as full:
        full["w"].sum()


def make_export():
    tensor = _low.gw_tensor_copy(borrow(np.ones(3), "x"))
    np.from_dlpack(gw.Tensor(tensor)).sum()
    np.from_dlpack(gw.Tensor(tensor), copy=True).sum()
    _low.gw_tensor_to_dlpack(tensor)  # a capsule that nobody takes


def make_store():
    gw.Store()


def make_optimizer():
    gangs = gw.Gangs.create_fake()
    gw.AdamW(gw.Linear(3, 2).parallelize(gangs))
    gangs["dp"]


def make_refusal():
    with pytest.raises(gw.InvalidArgument):
        gw.Llama(dim=-1)
    with pytest.raises(gw.InvalidArgument, match="ndim is 9, not 0 to 8"):
        FAKE.empty((1000,) + (1,) * 8)
    with pytest.raises(gw.InvalidArgument, match="zero byte"):
        gw.ShardGroup(None, "a\0b", {"w": np.ones(3, np.float32)})


MAKERS = [make_gang, make_work, make_model, make_custom, make_group, make_export, make_store, make_optimizer, make_refusal]


@pytest.fixture(scope="module")
def counter(tmp_path_factory):
    """What counts every malloc and free of a process, as its environment; a gang that lives has no thread that allocates for
    itself when it first runs."""
    if sanitized():
        return {"GANGWAY_NUM_THREADS": "1"}
    library = tmp_path_factory.mktemp("counter") / "libcount_malloc.so"
    source = Path(__file__).resolve().parents[3] / "tests" / "bindings" / "count_malloc.c"
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_PRELOAD": str(library), "GANGWAY_NUM_THREADS": "1"}


@pytest.mark.parametrize("action", MAKERS, ids=lambda v: v.__name__)
def test_thousands_of_creates_and_releases_leave_nothing(action, counter):
    """In a process of its own: what other frameworks have left in this one makes the count a guess."""
    done = subprocess.run([sys.executable, __file__, action.__name__], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env={**os.environ, **counter})
    assert done.returncode == 0, done.stdout
    left = json.loads(done.stdout.splitlines()[-1])
    print(f"{action.__name__}: after {ROUNDS} rounds {left}")
    assert left["tensors"] == left["tensor_bytes"] == left["files"] == left["descriptors"] == 0
    # A list keeps the room for the most that there ever was: less than a byte for each round. Python keeps some objects for
    # itself, less than one for each of the first rounds, and maps its memory by the megabyte. With a sanitizer they are
    # among the bytes.
    assert left["blocks"] == 0 and left["bytes"] < (8 if sanitized() else 1) * ROUNDS
    assert left["objects"] < FIRST_ROUNDS and left["mapped"] < 4096 * FIRST_ROUNDS


def test_handles_are_released_in_every_order():
    for order in itertools.permutations(range(6)):
        gangs = gw.Gangs.create(gw.Gang.create())
        model = gw.Linear(4, 3).parallelize(gangs)
        handles = [gangs, gangs["dp"], model, gw.AdamW(model), model["weight"], gw.Frame(model)]
        del gangs, model
        for i in order:
            handles[i] = None
            gc.collect(0)


def test_group_handles_are_released_in_every_order():
    for order in itertools.permutations(range(5)):
        gangs = gw.Gangs.create(gw.Gang.create())
        group = gw.ShardGroup(gangs, "g", {"w": np.full(5, 3, np.float32)})
        optimizer = gw.AdamW(group)
        handles = [gangs, group, optimizer, optimizer.model, group.unshard()["w"]]
        kept = handles[4]
        del gangs, group, optimizer
        for i in order:
            handles[i] = None
            gc.collect(0)
        assert (kept == 3).all()


def test_explicit_releases_are_harmless_twice():
    gang = gw.Gang.create()
    gang.release()
    gang.release()
    gangs = gw.Gangs.create_fake()
    assert gangs["dp"].size == 1
    gangs.release()
    gangs.release()
    with pytest.raises(gw.InvalidState, match="released"):
        gangs["dp"]
    handle = _low.gw_gang_create_fake(0, 1, None)
    _low.gw_gang_release(handle)
    _low.gw_gang_release(handle)
    with pytest.raises(gw.InvalidState, match="released"):
        _low.gw_gang_rank(handle)
    with pytest.raises(TypeError, match="not a gw_gangs handle"):
        _low.gw_gangs_release(gw.Gang.create()._h)


@together(1, 2, 4)
def test_exports_outlive_reshard_and_owner(gangs):
    group = gw.ShardGroup(gangs, "g", {"w": np.arange(10, dtype=np.float32)})
    with group.unsharded() as full:
        w = full["w"]
    assert not w.flags.writeable
    shard = group.values()["w"]
    gangs.root.barrier()
    del group, full
    gc.collect()
    assert w.tolist() == list(range(10)) and set(shard.ravel()) <= set(range(10))
    model = gw.Linear(4, 4).parallelize(gangs, seed=1)
    whole, mine = model["weight"].gather(), model["weight"].value()
    copy = whole.copy()
    gangs.root.barrier()
    del model
    gc.collect()
    first = 4 * gangs.rank // gangs.size
    assert (whole == copy).all() and (mine == copy[first : first + len(mine)]).all()
    gangs.root.barrier()


@together(2, 4)
def test_collections_during_collectives(gangs):
    gang = gangs.root
    stop = threading.Event()

    def storm():
        while not stop.is_set():
            cycle = [gw.Gang.create_fake(0, 2), gw.Linear(2, 2)]
            cycle.append(cycle)
            del cycle
            gc.collect()

    storms = [threading.Thread(target=storm) for _ in range(2)]
    for thread in storms:
        thread.start()
    works = []
    for i in range(300 if ALL or gang.size == 2 else 100):
        x = np.full(257, i + gang.rank, np.float64)
        works.append((i, gang.all_reduce_async_(x)))
        y = gang.all_reduce(x[:0] if i % 2 else np.ones(3))
        assert i % 2 or (y == gang.size).all()
        if len(works) == 8:
            for j, work in works:
                assert (work.wait(60) == j * gang.size + sum(range(gang.size))).all()
            works.clear()
    stop.set()
    for thread in storms:
        thread.join()


@over(1)
def test_ranks_that_are_threads_do_not_block_each_other(gangs):
    ranks = gw.Gang.create_threads(4)
    results = [None] * 4

    def run(i):
        mine = gw.Gangs.create(ranks[i])
        model = gw.Linear(8, 8).parallelize(mine, seed=3)
        for _ in range(20):
            ranks[i].all_reduce_(np.ones(1000))
        results[i] = model["weight"].gather()
        del model

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((r == results[0]).all() for r in results)


if __name__ == "__main__":
    print(json.dumps(growth(globals()[sys.argv[1]], FIRST_ROUNDS, ROUNDS)))
