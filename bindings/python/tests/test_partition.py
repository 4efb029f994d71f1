"""Partitions and their movements against NumPy, and each movement against its adjoint."""

import numpy as np
import pytest
from ranks import together

import gangway as gw


def piece(n, parts, i):
    """Rows of a balanced cut."""
    first = n // parts * i + min(i, n % parts)
    return slice(first, first + n // parts + (i < n % parts))


def cut(whole, partition):
    return whole[tuple(piece(n, p, i) for n, p, i in zip(whole.shape, partition.shape, partition.index))].copy()


def adjoint(gang, movement, x, y):
    """movement(x), after <F x, y> = <x, F* y>."""
    out = movement(x)
    y = np.random.default_rng(7 + gang.rank).normal(size=out.shape) if y is None else y
    back = movement.backward(y)
    left, right = gang.all_sum(float((out * y).sum())), gang.all_sum(0.0 if x is None else float((x * back).sum()))
    assert left == pytest.approx(right, rel=1e-12, abs=1e-12)
    return out


@together(6)
def test_a_grid_knows_indices_neighbors_and_subtopologies(gangs):
    gang = gangs.root
    workers = gw.Partition(gang)
    assert (workers.size, workers.rank, workers.shape, workers.index) == (6, gang.rank, (6,), (gang.rank,))
    grid = workers.cartesian(2, 3)
    assert grid.index == (gang.rank // 3, gang.rank % 3) and grid.active
    assert grid.neighbors(0) == (gang.rank - 3 if gang.rank > 2 else None, gang.rank + 3 if gang.rank < 3 else None)
    few = workers.inclusive([4, 1])
    assert few.rank == {4: 0, 1: 1}.get(gang.rank) and few.active == (gang.rank in (1, 4))
    assert repr(few) in ("<Partition [2]: inactive>", "<Partition [2]: worker 0 at [0]>", "<Partition [2]: worker 1 at [1]>")
    assert few.union(workers.inclusive([0, 1])).rank == {4: 0, 1: 1, 0: 2}.get(gang.rank)
    assert grid.subtopology(1).shape == (3,) and grid.subtopology(1).rank == gang.rank % 3
    with pytest.raises(gw.InvalidArgument, match="has 4 places, but the partition has 6 workers"):
        workers.cartesian(2, 2)
    with pytest.raises(gw.InvalidArgument, match="list of workers is empty"):
        workers.inclusive([])
    with pytest.raises(TypeError, match="gang is a int, not a Gang"):
        gw.Partition(3)


@together(6)
def test_movements_along_a_dim(gangs):
    gang = gangs.root
    grid = gw.Partition(gang).cartesian(2, 3)
    whole = np.random.default_rng(1).normal(size=(5, 7))
    own = cut(whole, grid)
    rows, columns = piece(5, 2, grid.index[0]), piece(7, 3, grid.index[1])
    np.testing.assert_array_equal(adjoint(gang, gw.AllGather(grid, 1), own, None), whole[rows])
    np.testing.assert_array_equal(adjoint(gang, gw.AllGather(grid, axes_keep=[1]), own, None), whole[:, columns])
    np.testing.assert_allclose(adjoint(gang, gw.ReduceScatter(grid, axes=(0,)), whole, None), 2 * whole[rows])
    for axes, count in (((), 1), ((0,), 2), ((0, 1), 6)):
        np.testing.assert_allclose(adjoint(gang, gw.AllSumReduce(grid, axes), whole, None), count * whole)
    for copies in (gw.AllGather(grid, ()), gw.AllGather(grid, axes_keep=(0, 1)), gw.ReduceScatter(grid, ())):
        out = adjoint(gang, copies, own, None)  # over no dims
        np.testing.assert_array_equal(out, own)
        assert out.ctypes.data != own.ctypes.data
    gather = gw.AllGather(grid, 1, backward_scale=0.5)
    gather(own.astype(np.float32))
    assert gather.backward(np.ones((own.shape[0], 7), np.float32))[0, 0] == 1.5
    with pytest.raises(gw.InvalidArgument, match="along one dim of the partition, but the axes name 2"):
        gw.AllGather(grid, (0, 1))
    with pytest.raises(gw.InvalidArgument, match="neither axes nor axes_keep"):
        gw.AllGather(grid)
    with pytest.raises(gw.InvalidArgument, match="both given"):
        gw.AllGather(grid, 0, axes_keep=1)


@together(6)
def test_movements_between_partitions(gangs):
    gang = gangs.root
    workers = gw.Partition(gang)
    grid, column = workers.cartesian(2, 3), workers.inclusive([0, 5]).cartesian(2, 1)
    x = np.array([1.0 + gang.rank])
    out = adjoint(gang, gw.Broadcast(column, grid), x if column.active else None, None)
    assert out.tolist() == [1.0 if gang.rank < 3 else 6.0]
    out = adjoint(gang, gw.SumReduce(grid, column), x, None)
    assert out.tolist() == {0: [6.0], 5: [15.0]}.get(gang.rank, [])
    flat = workers.inclusive([0, 5]).cartesian(1, 2)
    out = gw.Broadcast(flat, grid, transpose_source=True)(x if flat.active else None)
    assert out.tolist() == [1.0 if gang.rank < 3 else 6.0]
    whole = np.random.default_rng(1).normal(size=(5, 7))
    target = workers.inclusive([5, 2, 0]).cartesian(3, 1)
    out = adjoint(gang, gw.Repartition(grid, target), cut(whole, grid), None)
    np.testing.assert_array_equal(out, cut(whole, target) if target.active else np.empty(0))
    kept = gw.SumReduce(grid, column, preserve_batch=True)(np.ones((4, 2)))
    assert kept.shape == ((4, 2) if column.active else (4, 0))


@together(6)
def test_an_array_of_a_rank_that_is_no_worker_is_refused(gangs):
    gang = gangs.root
    gather = gw.AllGather(gw.Partition(gang).inclusive([0, 1]), 0)
    with pytest.raises(gw.InvalidArgument, match="rank 2 is no worker of the partition"):
        gather(np.ones(2))  # on all ranks
    got = gather(np.ones(2) if gang.rank < 2 else None)
    assert got.tolist() == [1.0] * 4 if gang.rank < 2 else got.size == 0
