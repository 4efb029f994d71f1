"""Collectives whose parts differ from rank to rank, results that add to what is there, works before other work."""

import numpy as np
import pytest
from ranks import together
from test_collectives import sum_of, values

import gangway as gw


@together(1, 2, 4)
def test_counts_may_differ_from_rank_to_rank(gangs):
    gang = gangs.root
    rank, size, last = gang.rank, gang.size, gang.size - 1
    counts = [r if size > 1 else 2 for r in range(size)]  # rank 0 has none where there are others
    for dtype in (np.float32, np.int64):
        parts = [values(r, dtype, (n, 2)) for r, n in enumerate(counts)]
        together = np.concatenate(parts)
        np.testing.assert_array_equal(gang.all_gather(parts[rank], counts=counts), together)
        gathered = gang.gather(parts[rank], last, counts=counts)
        assert (gathered is None) == (rank != last)
        if gathered is not None:
            np.testing.assert_array_equal(gathered, together)
        output = np.empty_like(parts[rank])
        assert gang.scatter_(output, together if rank == last else None, last, counts=counts) is output
        np.testing.assert_array_equal(output, parts[rank])
        np.testing.assert_array_equal(gang.reduce_scatter(together, counts=counts), size * parts[rank])
        into = np.ones_like(parts[rank])
        assert gang.reduce_scatter_into_(into, together, "max", counts=counts) is into
        np.testing.assert_array_equal(into, parts[rank])
        # From rank r to rank s go r + 2 s rows.
        sent = [values(10 * rank + s, dtype, (rank + 2 * s, 2)) for s in range(size)]
        got = [values(10 * r + rank, dtype, (r + 2 * rank, 2)) for r in range(size)]
        found = gang.all_to_all(np.concatenate(sent), counts=[len(p) for p in sent], got=[len(p) for p in got])
        np.testing.assert_array_equal(found, np.concatenate(got))
        works = [gang.all_gather_async(parts[rank], counts=counts), gang.gather_async(parts[rank], last, counts=counts),
                 gang.scatter_async_(np.empty_like(output), together, last, counts=counts),
                 gang.reduce_scatter_async(together, counts=counts),
                 gang.all_to_all_async(np.concatenate(sent), counts=[len(p) for p in sent], got=[len(p) for p in got])]
        for work, right in zip(works, (together, gathered, output, size * parts[rank], found)):
            assert (result := work.wait(60)) is None and right is None or np.array_equal(result, right)


@together(1, 2, 4)
def test_reductions_add_to_what_is_there(gangs):
    gang = gangs.root
    rank, size = gang.rank, gang.size
    x, rows = values(rank, np.float32), np.stack([values(r, np.float32) for r in range(size)])
    total = sum_of(gang, np.float32)
    plain, added = np.full_like(x, 7), np.full_like(x, 7)
    assert gang.all_reduce_into_(plain, x) is plain and gang.all_reduce_into_(added, x, accumulate=True) is added
    np.testing.assert_array_equal(plain, total)
    np.testing.assert_array_equal(added, total + 7)
    assert gang.reduce_scatter_into_(plain, rows) is plain and gang.reduce_scatter_into_(added, rows, accumulate=True) is added
    np.testing.assert_array_equal(plain, size * rows[rank])
    np.testing.assert_array_equal(added, total + 7 + plain)
    mine = added.copy() if rank == 0 else None
    assert gang.reduce_into_(mine, x, accumulate=True) is mine
    works = [gang.all_reduce_into_async_(plain, x, accumulate=True), gang.reduce_scatter_into_async_(added, rows),
             gang.reduce_into_async_(mine, x, 0, "max")]
    gw.wait_all(works, 60)
    np.testing.assert_array_equal(plain, size * rows[rank] + total)
    np.testing.assert_array_equal(added, size * rows[rank])
    assert mine is None or np.array_equal(mine, rows.max(0))
    with pytest.raises(gw.InvalidArgument, match="accumulates floating types only, not i64"):
        gang.all_reduce_into_(np.ones(2, np.int64), np.ones(2, np.int64), accumulate=True)


@together(2)
def test_counts_that_do_not_fit_are_refused(gangs):
    gang, x = gangs.root, np.ones((3, 2))
    for call, text in ((lambda: gang.all_gather(x, counts=[3]), r"counts is \[3\]: 2 numbers are needed, one for each rank"),
                       (lambda: gang.all_gather(x, counts=[-1, 3]), "none below 0"),
                       (lambda: gang.all_gather(x, counts=[2, 2]), r"x has shape \(3, 2\); its first dim must be 2, this rank's"),
                       (lambda: gang.reduce_scatter(x, counts=[2, 2]), "its first dim must be 4, the sum of counts"),
                       (lambda: gang.scatter_(x, x, gang.rank, counts=[2, 2]), "output has shape"),
                       (lambda: gang.all_to_all(x, counts=[1, 2]), "all_to_all takes both counts, .* and got"),
                       (lambda: gang.all_to_all(x, counts=[1, 2], got=[1]), r"got is \[1\]"),
                       (lambda: gang.all_reduce_into_(np.ones(5), x), "output is too small: it has 5 elements, 6 are needed")):
        with pytest.raises(gw.InvalidArgument, match=text):
            call()


@together(1, 2)
def test_a_work_can_be_ordered_before_later_work(gangs):
    gang = gangs.root
    assert gang.all_reduce_async(np.ones(3)).order().tolist() == [gang.size] * 3
    work = gang.barrier_async()
    with pytest.raises(gw.InvalidArgument, match="stream is not null, but device cpu"):
        work.order(5)
    work.wait()
