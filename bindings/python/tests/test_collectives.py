"""Every collective against the plain formula, over 1, 2 and 4 ranks."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from ranks import over, together

import gangway as gw

TYPES = [np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8]


def values(rank, dtype, shape=(3, 5)):
    return (np.arange(np.prod(shape)).reshape(shape) % 7 + rank + 1).astype(dtype)


def sum_of(gang, dtype):
    return sum(values(r, np.float64) for r in range(gang.size)).astype(dtype)


@together(1, 2, 4)
def test_all_reduce_in_place_writes_the_callers_own_memory(gangs):
    gang = gangs.root
    for dtype in TYPES:
        x = values(gang.rank, dtype)
        address = x.ctypes.data
        assert gang.all_reduce_(x) is x
        assert x.ctypes.data == address
        np.testing.assert_array_equal(x, sum_of(gang, dtype))


@together(1, 2, 4)
def test_all_reduce_out_of_place_leaves_its_input(gangs):
    gang = gangs.root
    for dtype in TYPES:
        x = values(gang.rank, dtype)
        y = gang.all_reduce(x)
        assert y.dtype == x.dtype and y.shape == x.shape
        np.testing.assert_array_equal(x, values(gang.rank, dtype))
        np.testing.assert_array_equal(y, sum_of(gang, dtype))


@together(1, 2, 4)
def test_every_reduction_has_its_formula(gangs):
    gang = gangs.root
    every = np.stack([values(r, np.float64) for r in range(gang.size)])
    wanted = {"sum": every.sum(0), "mean": every.mean(0), "product": every.prod(0), "min": every.min(0), "max": every.max(0)}
    for op, right in wanted.items():
        np.testing.assert_allclose(gang.all_reduce(values(gang.rank, np.float64), op), right, rtol=1e-15)
        np.testing.assert_allclose(gang.all_reduce(values(gang.rank, np.float64), gw.Reduce[op.upper()]), right, rtol=1e-15)
    flags = np.array([gang.rank == 0, True])
    np.testing.assert_array_equal(gang.all_reduce(flags, "min"), [gang.size == 1, True])


@together(1, 2, 4)
def test_moving_collectives_give_every_ranks_values(gangs):
    gang = gangs.root
    rank, size = gang.rank, gang.size
    for dtype in (*TYPES, np.complex64, np.bool_):
        x = values(rank, dtype)
        every = np.stack([values(r, dtype) for r in range(size)])
        np.testing.assert_array_equal(gang.all_gather(x), every)
        np.testing.assert_array_equal(gang.broadcast(x, size - 1), every[-1])
        outputs = [np.empty_like(x) for _ in range(size)]
        gang.all_gather_list_(outputs, x)
        np.testing.assert_array_equal(np.stack(outputs), every)
        gathered = gang.gather(x, size - 1)
        assert (gathered is None) == (rank != size - 1)
        if gathered is not None:
            np.testing.assert_array_equal(gathered, every)
        output = np.empty_like(x)
        assert gang.scatter_(output, every if rank == 0 else None) is output
        np.testing.assert_array_equal(output, x)
        rows = np.stack([values(10 * rank + r, dtype) for r in range(size)])
        np.testing.assert_array_equal(gang.all_to_all(rows), np.stack([values(10 * r + rank, dtype) for r in range(size)]))


@together(1, 2, 4)
def test_reductions_to_one_rank(gangs):
    gang = gangs.root
    rows = np.stack([values(r, np.float32) for r in range(gang.size)])
    np.testing.assert_array_equal(gang.reduce_scatter(rows), gang.size * values(gang.rank, np.float32))
    reduced = gang.reduce(values(gang.rank, np.float32), root=gang.size - 1)
    assert (reduced is None) == (gang.rank != gang.size - 1)
    if reduced is not None:
        np.testing.assert_array_equal(reduced, sum_of(gang, np.float32))


@together(1, 2, 4)
def test_async_forms_give_what_the_plain_forms_give(gangs):
    gang = gangs.root
    x = values(gang.rank, np.float32)
    rows = np.stack([x] * gang.size)
    works = [gang.all_reduce_async(x), gang.all_gather_async(x), gang.reduce_scatter_async(rows), gang.broadcast_async(x),
             gang.all_to_all_async(rows), gang.all_reduce_async_(x.copy(), "max"), gang.broadcast_async_(x.copy()),
             gang.reduce_async(x), gang.gather_async(x), gang.scatter_async_(np.empty_like(x), rows), gang.barrier_async(),
             gang.all_gather_list_async_(np.empty_like(rows), x), gang.broadcast_flag_async(gang.rank == 0),
             gang.all_sum_async(gang.rank + 0.5)]
    results = gw.wait_all(works, 60)
    plain = [gang.all_reduce(x), gang.all_gather(x), gang.reduce_scatter(rows), gang.broadcast(x), gang.all_to_all(rows),
             gang.all_reduce(x, "max"), gang.broadcast(x), gang.reduce(x), gang.gather(x),
             gang.scatter_(np.empty_like(x), rows), None, gang.all_gather_list_(np.empty_like(rows), x),
             gang.broadcast_flag(gang.rank == 0), gang.all_sum(gang.rank + 0.5)]
    for got, right in zip(results, plain, strict=True):
        assert (got is None) == (right is None)
        if right is not None:
            np.testing.assert_array_equal(got, right)
    assert all(work.done() for work in works)


@together(2, 4)
def test_a_message_is_seen_before_it_is_asked_for(gangs):
    gang = gangs.root
    right, left = (gang.rank + 1) % gang.size, (gang.rank - 1) % gang.size
    assert gang.probe(left) is None
    gang.barrier()
    work = gang.send_async(np.arange(5, dtype=np.int32), right)
    while gang.probe(left) is None:
        pass
    assert gang.probe(left) == (5, gw.DType.I32)
    gang.recv_(np.empty(5, np.int32), left)
    assert gang.probe(left) is None
    gang.barrier()  # before any rank sends again
    work.wait(60)
    with pytest.raises(gw.NotSupported, match="fake"):
        gw.Gang.create_fake(0, 2).probe(1)


@together(2, 4)
def test_sends_meet_receives(gangs):
    gang = gangs.root
    right, left = (gang.rank + 1) % gang.size, (gang.rank - 1) % gang.size
    got, also = np.empty((3, 5)), np.empty(2, np.int64)
    gang.exchange_([(values(gang.rank, np.float64), right), (np.array([gang.rank, 7]), left)], [(got, left), (also, right)])
    np.testing.assert_array_equal(got, values(left, np.float64))
    np.testing.assert_array_equal(also, [right, 7])
    if gang.rank == 0:
        gang.send(got, 1)
        gang.send_async(also, 1).wait(60)
    if gang.rank == 1:
        gang.recv_(got, 0)
        gang.recv_async_(also, 0).wait(60)
        np.testing.assert_array_equal(got, values(gang.size - 1, np.float64))


@together(1, 2, 4)
def test_empty_arrays_are_legal(gangs):
    gang = gangs.root
    assert gang.all_reduce(np.empty((0, 3))).shape == (0, 3)
    assert gang.all_gather(np.empty(0, np.int32)).shape == (gang.size, 0)


@together(1, 2, 4)
def test_gangs_of_gangs(gangs):
    gang = gangs.root
    half = gang.split(gang.rank % 2, -gang.rank)
    members = [r for r in reversed(range(gang.size)) if r % 2 == gang.rank % 2]
    assert half.size == len(members) and members[half.rank] == gang.rank
    last = gang.create_gang([gang.size - 1])
    assert (last is None) == (gang.rank != gang.size - 1)
    twin = gang.duplicate()
    assert twin.all_sum(1.0) == gang.size
    assert gang.broadcast_flag(gang.rank == 0) and "barrier" not in twin.flight_record()
    assert gang.traffic()["calls"] > 0 and gang.engine in ("self", "host") and gang.device == "cpu"


@together(1, 2)
def test_a_trace_lasts_as_long_as_its_block(gangs):
    gang = gangs.root
    folder = gang.broadcast_object(tempfile.mkdtemp() if gang.rank == 0 else None)
    with gang.trace(folder):
        gang.all_reduce(np.ones(4, np.float32))
    gang.all_reduce(np.ones(4, np.float32))
    events = json.loads((Path(folder) / f"rank-{gang.rank}.json").read_text())
    calls = [e for e in events if e["name"] == "all_reduce" and e.get("args", {}).get("channel") == "user"]
    assert [e["args"]["bytes"] for e in calls] == [16] and calls[0]["pid"] == gang.rank
    with pytest.raises(gw.FileFailed, match="/dev/null/x"):
        with gang.trace("/dev/null/x"):
            raise AssertionError("not reached")
    gang.barrier()
    if gang.rank == 0:
        shutil.rmtree(folder)


@together(1, 2, 4)
def test_objects_reach_every_rank(gangs):
    gang = gangs.root
    for thing in (b"\0raw", {"a": [1, 2.5, None, "ü"]}, b"", [], "text", 7):
        assert gang.broadcast_object(thing if gang.rank == 0 else None) == thing
    assert gang.all_gather_objects({"rank": gang.rank}) == [{"rank": r} for r in range(gang.size)]
    assert gang.all_gather_objects(b"x" * gang.rank) == [b"x" * r for r in range(gang.size)]
    with pytest.raises(gw.InvalidArgument, match="allow_pickle"):
        gang.broadcast_object((1, 2) if gang.rank == 0 else None)  # JSON would make a list of it
    with pytest.raises(gw.InvalidArgument, match="rank 0.*allow_pickle"):
        gang.all_gather_objects({1, 2} if gang.rank == 0 else "fine")
    assert gang.broadcast_object((1, {2}) if gang.rank == 0 else None, allow_pickle=True) == (1, {2})
    with pytest.raises(gw.InvalidArgument, match="cannot be pickled"):
        gang.all_gather_objects(lambda: 0, allow_pickle=True)

    class Odd:
        def __reduce__(self):
            raise ValueError("\ud800")

    with pytest.raises(gw.InvalidArgument, match=r"an? Odd cannot be pickled: ValueError: \?"):
        gang.all_gather_objects(Odd(), allow_pickle=True)


@together(1, 2, 4)
def test_lists_of_objects_are_broadcast_in_place(gangs):
    gang = gangs.root
    wanted = [b"", {"a": 1}, "ü", None]
    for root in range(gang.size):
        things = list(wanted) if gang.rank == root else [0] * 4
        same = things
        assert gang.broadcast_objects(things, root) is None and things is same and things == wanted
    shorter = [1, 2, 3] if gang.rank == 0 else []
    gang.broadcast_objects(shorter)
    assert shorter == [1, 2, 3]
    gang.broadcast_objects(shorter if gang.rank else [])
    assert shorter == ([] if gang.rank else [1, 2, 3])
    with pytest.raises(gw.InvalidArgument, match="allow_pickle"):
        gang.broadcast_objects([1, {2}] if gang.rank == 0 else [0, 0])
    with pytest.raises(TypeError, match="things is a tuple, not a list"):
        gang.broadcast_objects((1,))


@together(1, 2, 4)
def test_sums_of_ints_are_ints_and_sums_of_floats_floats(gangs):
    gang = gangs.root
    total = sum(range(gang.size))
    for value, kind in ((gang.rank, int), (np.int32(gang.rank), int), (float(gang.rank), float), (np.float32(gang.rank), float)):
        for found in (gang.all_sum(value), gang.all_sum_async(value).wait()):
            assert type(found) is kind and found == total
    assert type(gang.all_sum(True)) is int and gang.all_sum(-3) == -3 * gang.size
    largest = 2**53 // gang.size
    assert gang.all_sum(largest) == largest * gang.size
    with pytest.raises(gw.InvalidArgument, match="too large for an exact sum"):  # one rank's is, and all are told
        gang.all_sum(largest + 1 if gang.rank == 0 else 0)
    assert gang.all_sum(1 if gang.rank == 0 else 0.5) == 1 + (gang.size - 1) / 2
    with pytest.raises(TypeError, match="value is a str, not a number"):
        gang.all_sum("one")


@together(1, 2, 4)
def test_all_gather_writes_into_an_output_and_into_a_list(gangs):
    gang = gangs.root
    x = values(gang.rank, np.float32)
    wanted = np.stack([values(r, np.float32) for r in range(gang.size)])
    output = np.zeros_like(wanted)
    assert gang.all_gather_into_(output, x) is output
    np.testing.assert_array_equal(output, wanted)
    output[...] = 0
    assert gang.all_gather_into_async_(output, x).wait() is output
    np.testing.assert_array_equal(output, wanted)
    made = gang.all_gather_list(x)
    assert isinstance(made, list) and len(made) == gang.size
    np.testing.assert_array_equal(np.stack(made), wanted)
    counts = [r + 1 for r in range(gang.size)]
    flat = np.zeros((sum(counts), 5), np.float32)
    gang.all_gather_into_(flat, np.full((gang.rank + 1, 5), gang.rank, np.float32), counts=counts)
    assert flat[:, 0].tolist() == [r for r in range(gang.size) for _ in range(r + 1)]
    with pytest.raises(gw.InvalidArgument, match="output is too small"):
        gang.all_gather_into_(np.zeros(3, np.float32), x)


@together(1, 2, 4)
def test_memory_of_the_gang_is_seen_by_every_framework_without_a_copy(gangs):
    gang = gangs.root
    view = gang.empty((4, 2), "f64")
    x = np.from_dlpack(view)
    assert x.ctypes.data == view.address and x.shape == (4, 2) and view.address % 64 == 0
    x[...] = gang.rank
    gang.all_reduce_(x)
    assert (x == sum(range(gang.size))).all()
    shared = np.from_dlpack(gang.empty((gang.size,), "i64", shared=True))
    shared[gang.rank] = gang.rank + 1
    gang.barrier()
    assert shared.tolist() == list(range(1, gang.size + 1))
    gang.barrier()


@together(1, 2, 4)
def test_a_mesh_knows_its_gangs_coordinates_and_data_shards(gangs):
    assert gangs["dp"].size == gangs.size and gangs["tp"].size == 1
    assert gangs.data_shard == (gangs.rank, gangs.size) and gangs.coordinate("dp_shard") == (gangs.rank, gangs.size)
    assert gw.current_gangs() is None
    with gangs.as_current():
        assert gw.current_gangs().size == gangs.size
    assert gw.mesh_preset("hsdp", 4) == dict(pp=1, dp_replicate=-1, dp_shard=4, cp=1, tp=1)
    with pytest.raises(gw.InvalidArgument, match="single, ddp"):
        gw.mesh_preset("zero")
    places = {place: gangs[place] for place in ("root", "dp", "rdp", "sdp", "tp", "pp", "cp")}
    assert gw.Gangs.of(**places).data_shard == gangs.data_shard
    if gangs.size % 2 == 0:
        two = gw.Gangs.create_parallel(gangs.root, tp=2)
        assert two["tp"].size == 2 and two.coordinate("tp") == (gangs.rank % 2, 2)
    with pytest.raises(gw.InvalidArgument, match=f"but the root gang has {gangs.size} ranks"):
        gw.Gangs.create(gangs.root, dp_shard=3)


def test_a_mesh_of_fake_gangs_records_what_a_rank_calls():
    gangs = gw.Gangs.create(gw.Gang.create_fake(5, 8), tp=2, pp=2)
    assert [gangs.coordinate(axis) for axis in ("pp", "dp_shard", "tp")] == [(1, 2), (0, 2), (1, 2)]
    gangs["tp"].all_reduce_(np.ones(3, np.float32))
    assert "all_reduce" in gangs["tp"].flight_record() and "all_reduce" not in gangs["pp"].flight_record()
    model = gw.Llama(vocab=32, dim=16, layers=2, heads=2).parallelize(gangs, microbatches=2)
    assert model.num_parameters() == gw.Llama(vocab=32, dim=16, layers=2, heads=2).num_parameters()


@over(2, needs="torch")
def test_torch_tensors_are_used_in_place(gangs):
    import torch

    gang = gangs.root
    x = torch.full((3,), gang.rank + 1.0)
    address = x.data_ptr()
    gang.all_reduce_(x)
    assert x.tolist() == [3.0] * 3 and x.data_ptr() == address
    y = gang.all_gather(torch.full((2,), gang.rank, dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16 and y.tolist() == [[0, 0], [1, 1]]
    view = gang.empty((4,))
    assert torch.from_dlpack(view).data_ptr() == view.address
    with pytest.raises(gw.InvalidArgument, match="array cannot be borrowed.*require gradient"):
        gang.all_reduce_(torch.nn.Parameter(x))
    with pytest.raises(gw.InvalidArgument, match="array cannot be borrowed.*meta"):
        gang.all_reduce_(torch.empty(3, device="meta"))
    gang.barrier()


@over(2, needs="jax")
def test_jax_arrays_get_a_new_result(gangs):
    import jax
    import jax.numpy as jnp

    gang = gangs.root
    x = jnp.full(3, gang.rank + 1.0)
    with pytest.raises(gw.InvalidArgument, match="array is a JAX array, which is immutable"):
        gang.all_reduce_(x)
    y = gang.all_reduce(x)
    assert type(y) is type(x) and y.tolist() == [3.0] * 3 and x.tolist() == [gang.rank + 1.0] * 3
    assert gang.all_gather(x.astype(jnp.bfloat16)).dtype == jnp.bfloat16
    for transformed in (jax.jit(gang.all_reduce), jax.grad(lambda v: gang.all_reduce(v).sum())):
        with pytest.raises(gw.NotSupported, match="arrays inside of jax.jit, jax.grad, jax.vmap .* do not have"):
            transformed(x)
    gang.barrier()


@over(1, 2, needs="mlx")
def test_mlx_arrays_get_a_new_result_and_stay_as_they_are(gangs):
    import mlx.core as mx

    gang = gangs.root
    x = mx.full(3, gang.rank + 1.0)
    later = x + 1  # reads x when it is asked for
    for call in (lambda: gang.all_reduce_(x), lambda: gang.all_reduce_into_(x, x)):
        with pytest.raises(gw.InvalidArgument, match="is an MLX array, whose memory other arrays share"):
            call()
    for dtype in (mx.float32, mx.bfloat16, mx.float16, mx.int32):
        y = gang.all_reduce(x.astype(dtype))
        assert type(y) is type(x) and y.dtype == dtype and y.tolist() == [gang.size * (gang.size + 1) / 2] * 3
    assert later.tolist() == [gang.rank + 2.0] * 3
    gang.barrier()
