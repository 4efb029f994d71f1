"""The collectives of backend gangway against what each rank makes by itself, and against Gloo's in the same processes."""

import pytest
from torch_ranks import alone, group_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed; test.sh says from where it is borrowed")
dist = pytest.importorskip("torch.distributed")

REDUCED = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8)
MOVED = (*REDUCED, torch.bool, torch.int16, torch.complex64, torch.complex128)
SHAPES = ((), (1,), (0,), (7,), (3, 5), (1000, 33))


def values(rank, shape, dtype, salt=0):
    """Small whole numbers, other ones for every rank; each rank can make all of them."""
    generator = torch.Generator().manual_seed(100 * salt + rank)
    return torch.randint(1, 4, shape, generator=generator).to(dtype)


def every(world, shape, dtype, salt=0):
    """All ranks' values."""
    return [values(r, shape, dtype, salt) for r in range(world.size)]


def equal(got, wanted):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (got.dtype, got.shape, wanted.dtype, wanted.shape)
    assert torch.equal(got, wanted), (got, wanted)


def fold(op, tensors):
    result = tensors[0].clone()
    for t in tensors[1:]:
        result = op(result, t)
    return result


FOLDS = {dist.ReduceOp.SUM: torch.add, dist.ReduceOp.PRODUCT: torch.mul, dist.ReduceOp.MIN: torch.minimum,
         dist.ReduceOp.MAX: torch.maximum}


@group_of(1, 2, 3, 4)
def test_all_reduce_of_every_type_shape_and_operation(world):
    for dtype in REDUCED:
        for op, of_two in FOLDS.items():
            for shape in SHAPES:
                all_values = every(world, shape, dtype)
                got = all_values[world.rank].clone()
                dist.all_reduce(got, op)
                equal(got, fold(of_two, all_values))


@group_of(2)
def test_gloo_gives_the_same(world):
    for dtype in REDUCED:
        x = values(world.rank, (3, 4), dtype)
        for op in FOLDS:
            for call in (
                lambda g, t: dist.all_reduce(t, op, group=g),
                lambda g, t: dist.broadcast(t, 1, group=g),
            ):
                ours, theirs = x.clone(), x.clone()
                call(None, ours)
                call(world.gloo, theirs)
                equal(ours, theirs)
        lists = [[torch.zeros_like(x) for _ in range(2)] for _ in range(2)]
        dist.all_gather(lists[0], x)
        dist.all_gather(lists[1], x, group=world.gloo)
        flat = [torch.zeros(2, 4, dtype=dtype) for _ in range(2)]
        wide = torch.cat([x[:2], x[1:]])
        dist.reduce_scatter_tensor(flat[0], wide)
        dist.reduce_scatter_tensor(flat[1], wide, group=world.gloo)
        for a, b in zip((*lists[0], flat[0]), (*lists[1], flat[1])):
            equal(a, b)


@group_of(1, 3)
def test_bitwise_reductions_are_folded_in_the_order_of_ranks(world):
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        for op, of_two in ((dist.ReduceOp.BAND, torch.bitwise_and), (dist.ReduceOp.BOR, torch.bitwise_or),
                           (dist.ReduceOp.BXOR, torch.bitwise_xor)):
            all_values = [torch.arange(1, 9, dtype=dtype) * (r + 3) for r in range(world.size)]
            wanted = fold(of_two, all_values)
            got = all_values[world.rank].clone()
            dist.all_reduce(got, op)
            equal(got, wanted)
            kept = all_values[world.rank].clone()
            dist.reduce(kept, world.size - 1, op)
            equal(kept, wanted if world.rank == world.size - 1 else all_values[world.rank])
            flat, out = torch.cat([all_values[world.rank]] * world.size), torch.empty(8, dtype=dtype)
            dist.reduce_scatter_tensor(out, flat, op)
            equal(out, wanted)


@group_of(1, 2)
def test_means_and_scaled_sums_equal_the_folds(world):
    all_values = every(world, (5,), torch.float32)
    whole = fold(torch.add, all_values)
    mean = all_values[world.rank].clone()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    torch.testing.assert_close(mean, whole / world.size)
    scaled = all_values[world.rank].clone()
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
    torch.testing.assert_close(scaled, whole * 0.5)
    with pytest.raises(NotImplementedError, match="AVG of torch.int32"):
        dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.AVG)
    with pytest.raises(NotImplementedError, match="bitwise"):
        dist.all_reduce(torch.ones(2), dist.ReduceOp.BXOR)


@group_of(1, 2, 4)
def test_reduce_broadcast_gather_and_scatter(world):
    for dtype in MOVED:
        for shape in SHAPES:
            for root in {0, world.size - 1}:
                all_values, mine = every(world, shape, dtype), values(world.rank, shape, dtype)
                dist.broadcast(mine, root)
                equal(mine, all_values[root])
                outs = [torch.zeros_like(mine) for _ in range(world.size)] if world.rank == root else None
                dist.gather(all_values[world.rank], outs, root)
                for got, wanted in zip(outs or [], all_values):
                    equal(got, wanted)
                dist.scatter(mine, [t + t for t in all_values] if world.rank == root else None, root)
                equal(mine, all_values[world.rank] + all_values[world.rank])
    for dtype in REDUCED:
        all_values = every(world, (3, 5), dtype)
        got = all_values[world.rank].clone()
        dist.reduce(got, world.size - 1)
        equal(got, fold(torch.add, all_values) if world.rank == world.size - 1 else all_values[world.rank])


@group_of(1, 2, 4)
def test_all_gather_in_all_its_forms(world):
    for dtype in MOVED:
        for shape in SHAPES:
            all_values = every(world, shape, dtype)
            outs = [torch.zeros_like(t) for t in all_values]
            dist.all_gather(outs, all_values[world.rank])
            for got, wanted in zip(outs, all_values):
                equal(got, wanted)
            out = torch.zeros((world.size, *shape), dtype=dtype)
            dist.all_gather_into_tensor(out, all_values[world.rank])
            equal(out, torch.stack(all_values))
    x = [every(world, (3,), torch.float32), every(world, (2, 2), torch.float32)]
    lists = [[torch.zeros(3), torch.zeros(2, 2)] for _ in range(world.size)]
    dist.all_gather_coalesced(lists, [t[world.rank] for t in x])
    for r in range(world.size):
        equal(lists[r][0], x[0][r])
        equal(lists[r][1], x[1][r])


@group_of(1, 2, 3)
def test_parts_may_differ_in_size(world):
    rows = [2 * r + 1 for r in range(world.size)]
    parts = [torch.full((n, 3), float(r)) for r, n in enumerate(rows)]
    got = [torch.empty(n, 3) for n in rows]
    dist.all_gather(got, parts[world.rank])
    for a, b in zip(got, parts):
        equal(a, b)
    out = torch.empty(rows[world.rank], 3)
    dist.reduce_scatter(out, [t + world.rank for t in parts])
    equal(out, parts[world.rank] * world.size + sum(range(world.size)))
    sent = [torch.full((rows[r] * (world.rank + 1),), float(10 * world.rank + r)) for r in range(world.size)]
    taken = [torch.empty(rows[world.rank] * (r + 1)) for r in range(world.size)]
    dist.all_to_all(taken, sent)
    for r, t in enumerate(taken):
        equal(t, torch.full((rows[world.rank] * (r + 1),), float(10 * r + world.rank)))
    flat = torch.empty(sum(t.numel() for t in taken))
    dist.all_to_all_single(flat, torch.cat(sent), [t.numel() for t in taken], [t.numel() for t in sent])
    equal(flat, torch.cat(taken))


@group_of(1, 2, 4)
def test_reduce_scatter_and_all_to_all(world):
    for dtype in REDUCED:
        parts = [every(world, (3, 2), dtype, salt=i) for i in range(world.size)]  # [for whom][from whom]
        wanted = fold(torch.add, parts[world.rank])
        out = torch.zeros(3, 2, dtype=dtype)
        dist.reduce_scatter(out, [p[world.rank] for p in parts])
        equal(out, wanted)
        dist.reduce_scatter_tensor(out.zero_(), torch.cat([p[world.rank] for p in parts]))
        equal(out, wanted)
    for dtype in (torch.float32, torch.int16, torch.bool):
        parts = [every(world, (2, 3), dtype, salt=i) for i in range(world.size)]
        got = torch.zeros(2 * world.size, 3, dtype=dtype)
        dist.all_to_all_single(got, torch.cat([p[world.rank] for p in parts]))
        equal(got, torch.cat(parts[world.rank]))


@group_of(2)
def test_tensors_need_not_be_contiguous(world):
    bases = every(world, (6, 8), torch.float32)
    for view in (lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:4, 3]):
        whole = bases[world.rank].clone()
        work = dist.all_reduce(view(whole), async_op=True)
        work.wait()
        equal(view(whole).contiguous(), view(bases[0] + bases[1]).contiguous())
        outside = torch.ones_like(whole, dtype=torch.bool)
        view(outside).fill_(False)
        equal(whole[outside], bases[world.rank][outside])
        got = [view(torch.zeros(6, 8)) for _ in range(2)]
        dist.all_gather(got, view(bases[world.rank]))
        for r in range(2):
            equal(got[r].contiguous(), view(bases[r]).contiguous())


@group_of(2, 3)
def test_sparse_sums_are_gloos(world):
    x = torch.sparse_coo_tensor([[world.rank, world.rank + 1, 5]], [1.0, 2.0, float(world.rank)], (7,))
    ours, theirs = x.clone(), x.clone()
    dist.all_reduce(ours)
    dist.all_reduce(theirs, group=world.gloo)
    equal(ours.to_dense(), theirs.to_dense())


@group_of(2)
def test_coalesced_collectives_give_each_result(world):
    tensors = [values(world.rank, (n,), torch.float32, salt=n) for n in (1, 5, 70000)]
    wanted = [fold(torch.add, every(world, (n,), torch.float32, salt=n)) for n in (1, 5, 70000)]
    with dist._coalescing_manager(async_ops=True) as several:
        for t in tensors:
            dist.all_reduce(t)
    several.wait()
    for a, b in zip(tensors, wanted):
        equal(a, b)
    x = values(world.rank, (4,), torch.float32)
    outs = [torch.empty(8), torch.empty(8)]
    with dist._coalescing_manager():
        for o in outs:
            dist.all_gather_into_tensor(o, x)
    equal(outs[0], outs[1])
    small = [torch.empty(4), torch.empty(4)]
    with dist._coalescing_manager():
        for s, o in zip(small, outs):
            dist.reduce_scatter_tensor(s, o)
    equal(small[0], small[1])


@group_of(2, 3)
def test_objects_travel_as_pytorch_pickles_them(world):
    every = [None] * world.size
    dist.all_gather_object(every, {"rank": world.rank})
    assert every == [{"rank": r} for r in range(world.size)]
    mine = [f"root {world.rank}", world.rank]
    dist.broadcast_object_list(mine, 1)
    assert mine == ["root 1", 1]
    got = [None]
    dist.scatter_object_list(got, [10 * r for r in range(world.size)] if world.rank == 0 else None, 0)
    assert got == [10 * world.rank]
    found = [None] * world.size if world.rank == 0 else None
    dist.gather_object(world.rank ** 2, found, 0)
    assert world.rank != 0 or found == [r ** 2 for r in range(world.size)]


@group_of(2)
def test_wrong_arguments_are_refused_and_harm_nothing(world):
    refused = [
        (lambda: dist.all_gather([torch.empty(2)], torch.ones(2)), "2 are needed"),
        (lambda: dist.all_gather_into_tensor(torch.empty(3), torch.ones(2)), "output has 3 elements"),
        (lambda: dist.reduce_scatter_tensor(torch.empty(2), torch.ones(3)), "3 elements"),
        (lambda: dist.all_to_all_single(torch.empty(3), torch.ones(3)), "not a multiple"),
        (lambda: dist.all_to_all_single(torch.empty(3), torch.ones(3), [1, 1], [2, 1]), "split sizes"),
        (lambda: dist.all_to_all_single(torch.empty(2), torch.ones(4)), "output 2; without split sizes they must be alike"),
        (lambda: dist.all_to_all_single(torch.empty(4), torch.ones(4, 3)), "must be alike"),
        (lambda: dist.all_reduce(torch.ones(2, device="meta")), "is on meta"),
    ]
    for call, says in refused:
        with pytest.raises((ValueError, RuntimeError), match=says):
            call()
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == 2


@alone(2)
def test_a_broken_call_is_pytorchs_error_with_the_librarys_text(world):
    with pytest.raises(dist.DistBackendError, match="different collectives") as caught:
        if world.rank == 0:
            dist.all_reduce(torch.ones(2))
        else:
            dist.broadcast(torch.ones(2), 0)
            dist.barrier()
    assert "all_reduce #" in str(caught.value) and type(caught.value.__cause__).__name__ == "Mismatch"
    with pytest.raises(dist.DistBackendError, match="different collectives"):
        dist.barrier()
