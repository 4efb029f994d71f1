"""Collectives on arrays in a GPU's memory, on the software GPU."""

import numpy as np
import pytest
from foreign import Foreign, Gpu, Old
from ranks import together

import gangway as gw
from gangway import _low as c
from gangway.arrays import LEGACY_STREAM, borrow

SHAPE = (3, 5)


def values(rank, shape=SHAPE, dtype=np.float32):
    return (np.arange(np.prod(shape)).reshape(shape) % 7 + rank + 1).astype(dtype)


def rows(rank, size):
    return np.stack([values(rank) * 10 + r for r in range(size)])


def every(size):
    return [values(r) for r in range(size)]


def all_ranks_rows(size):
    return [rows(r, size) for r in range(size)]


@together(1, 2, gpus=True)
def test_collectives_in_place_write_the_gpus_own_memory(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    x = gpu.array(values(gang.rank))
    assert gang.all_reduce_(x) is x
    gpu.check(x, sum(every(gang.size)))
    x = gpu.array(values(gang.rank))
    assert gang.all_reduce_async_(x, "max").wait() is x
    gpu.check(x, values(gang.size - 1))
    x = gpu.array(values(gang.rank))
    gang.broadcast_(x, root=gang.size - 1)
    gpu.check(x, values(gang.size - 1))
    x, lists = gpu.array(values(gang.rank)), [gpu.empty(SHAPE) for _ in range(gang.size)]
    gang.all_gather_list_(lists, x)
    for got, wanted in zip(lists, every(gang.size)):
        gpu.check(got, wanted)
    out = gpu.empty(SHAPE)
    gang.scatter_(out, gpu.array(rows(0, gang.size)) if gang.rank == 0 else None)
    gpu.check(out, rows(0, gang.size)[gang.rank])
    gang.barrier()


@together(1, 2, gpus=True)
def test_reductions_into_an_array_of_the_gpu_write_it_or_add_to_it(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    total = sum(every(gang.size))
    for accumulate in (False, True):
        out = gpu.empty(SHAPE)
        gang.all_reduce_into_(out, gpu.array(values(gang.rank)), accumulate=accumulate)
        gpu.check(out, total + 77 * accumulate)
        out = gpu.empty(SHAPE)
        gang.reduce_scatter_into_(out, gpu.array(rows(gang.rank, gang.size)), accumulate=accumulate)
        gpu.check(out, sum(all_ranks_rows(gang.size))[gang.rank] + 77 * accumulate)
        out = gpu.empty(SHAPE) if gang.rank == 0 else None
        gang.reduce_into_(out, gpu.array(values(gang.rank)), accumulate=accumulate)
        if out is not None:
            gpu.check(out, total + 77 * accumulate)


@together(2, gpus=True)
def test_messages_go_between_the_gpus(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    peer = 1 - gang.rank
    x, out = gpu.array(values(gang.rank)), gpu.empty(SHAPE)
    if gang.rank == 0:
        gang.send(x, peer)
        gang.recv_(out, peer)
    else:
        gang.recv_(out, peer)
        gang.send(x, peer)
    gpu.check(out, values(peer))
    x, out = gpu.array(values(gang.rank) + 5), gpu.empty(SHAPE)
    gang.exchange_([(x, peer)], [(out, peer)])
    gpu.check(out, values(peer) + 5)


@together(1, 2, gpus=True)
def test_new_arrays_lie_on_the_gpu_of_their_input(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)

    def check(made, wanted):
        assert made.__dlpack_device__() == (2, gang.rank)
        gpu.check(made, wanted)

    def x():
        return gpu.array(values(gang.rank))

    def each():
        return gpu.array(rows(gang.rank, gang.size))

    size, last = gang.size, gang.size - 1
    check(gang.all_reduce(x()), sum(every(size)))
    check(gang.all_reduce_async(x(), "min").wait(), values(0))
    check(gang.all_gather(x()), np.stack(every(size)))
    check(gang.reduce_scatter(each()), sum(all_ranks_rows(size))[gang.rank])
    check(gang.broadcast(x(), root=last), values(last))
    check(gang.all_to_all(each()), np.stack([rows(r, size)[gang.rank] for r in range(size)]))
    for got, wanted in ((gang.reduce(x(), root=last), sum(every(size))), (gang.gather(x(), root=last), np.stack(every(size)))):
        assert (got is not None) == (gang.rank == last)
        if got is not None:
            check(got, wanted)
    counts = [r + 1 for r in range(size)]
    check(gang.all_gather(gpu.array(values(0, (gang.rank + 1, 5))), counts=counts),
          np.concatenate([values(0, (n, 5)) for n in counts]))


@together(1, gpus=True)
def test_the_owner_is_asked_on_cudas_legacy_stream_once(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    for kind in (Foreign, Old):
        x = gpu.array(values(0), kind)
        gang.all_reduce_(x)
        assert x.asked == [LEGACY_STREAM]
        gpu.check(x, values(0))
    view = gpu.array(values(0)).view
    assert borrow(view, "x") is view and view.device == "cuda:0" and view.stream == LEGACY_STREAM
    host = gang.all_sum(1.0)
    assert host == 1 and borrow(np.zeros(3), "x").stream is None


@together(1, gpus=True)
def test_an_array_of_another_device_is_refused_with_both(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    on_host, x = np.zeros(SHAPE, np.float32), gpu.array(values(0), busy=0)
    fake = gw.Gang.create_fake(0, 1)
    calls = {
        "array": lambda g, a: g.all_reduce_(a), "x": lambda g, a: g.all_gather(a), "sends": lambda g, a: g.exchange_([(a, 0)], []),
        "output": lambda g, a: g.scatter_(a, a),
    }
    for name, call in calls.items():
        with pytest.raises(gw.InvalidArgument, match=f"^{name} lies on cpu, the gang's device is cuda:0$"):
            call(gang, on_host)
        with pytest.raises(gw.InvalidArgument, match=f"^{name} lies on cuda:0, the gang's device is cpu$"):
            call(fake, x)
    with pytest.raises(gw.InvalidArgument, match="output lies on cpu, the gang's device is cuda:0"):
        gang.all_reduce_into_(on_host, x)
    second = gw.Gang.create_threads(2, device="cuda")[1]
    other = Foreign(second.empty(SHAPE))
    with pytest.raises(gw.InvalidArgument, match="^array lies on cuda:1, the gang's device is cuda:0$"):
        gang.all_reduce_(other)
    odd = Foreign(c.make_view(x.view.address, SHAPE, gw.DType.F32, x.view, (13, 0)))
    with pytest.raises(gw.InvalidArgument, match=r"array is on device 13:0 \(DLPack's numbers\): Python passes arrays on the CPU"):
        gang.all_reduce_(odd)
    gpu.check(x, values(0))


@together(1, gpus=True)
def test_a_new_jax_array_on_a_gpu_is_refused_with_the_way_out(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    x = gpu.array(values(0), type("Array", (Foreign,), {"__module__": "jaxlib"}), busy=0)
    with pytest.raises(gw.NotSupported, match="a new array of JAX cannot be made on a GPU; use the form in place"):
        gang.all_reduce(x)


@together(1, 2, gpus=True)
def test_memory_of_a_gang_of_gpus_is_the_gpus_and_outlives_its_gang(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    alone = gang.split(gang.rank)
    memory = alone.empty(SHAPE, "f64")
    assert memory.device == f"cuda:{gang.rank}" and memory.shape == SHAPE and memory.dtype == gw.DType.F64
    gpu.copy(memory, gpu.array(values(0, dtype=np.float64)))
    gang.all_reduce_(memory)
    gpu.check(memory, values(0) * gang.size)
    alone.release()
    gpu.check(memory, values(0) * gang.size)
    assert gang.empty(()).count == 1 and gang.empty((0, 3)).count == 0
    with pytest.raises(gw.NotSupported, match="share no memory"):
        gang.empty(SHAPE, shared=True)
