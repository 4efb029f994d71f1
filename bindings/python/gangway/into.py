"""Collectives into the caller's array; reductions may add to what is there."""

from __future__ import annotations

from typing import Sequence

from .arrays import A, Array
from .calls import Call, Checks, Record
from .enums import Op, Reduce
from .members import member
from .names import ReduceLike
from .works import Work


class Into(Checks):
    """`x_into_()` writes into `output`; with `accumulate`, which floating types have, it adds to it."""

    def _all_gather_into_(self, output: A, x: Array, counts: Sequence[int] | None) -> Call[A]:
        view = self._borrow(x, "x")
        if counts is None:
            out = self._output(output, "output", view.count * self.size, view)
            return Call("all_gather", (view, out, view.count, view.dtype), lambda: output)
        row = self._counted(view, self._counts(counts)[self.rank], "x", "this rank's of counts")
        out = self._output(output, "output", sum(counts) * row, view)
        return Record(Op.ALL_GATHER, lambda: output, view, counts=counts, row=row, input=view, output=out, count=view.count)

    def all_gather_into_(self, output: A, x: Array, *, counts: Sequence[int] | None = None) -> A:
        """As all_gather(), into output, which has size times the elements of x, or sum(counts) rows."""
        return self._all_gather_into_(output, x, counts).now(self)

    def all_gather_into_async_(self, output: A, x: Array, *, counts: Sequence[int] | None = None) -> Work[A]:
        """all_gather_into_() as a Work."""
        return self._all_gather_into_(output, x, counts).later(self)

    def _all_reduce_into_(self, output: A, x: Array, op: ReduceLike, accumulate: bool) -> Record[A]:
        view = self._borrow(x, "x")
        out = self._output(output, "output", view.count, view)
        return Record(Op.ALL_REDUCE, lambda: output, view, input=view, output=out, count=view.count,
                      reduce=member(Reduce, op, "op"), accumulate=accumulate)

    def all_reduce_into_(self, output: A, x: Array, op: ReduceLike = Reduce.SUM, *, accumulate: bool = False) -> A:
        """The reduction of every rank's x into output."""
        return self._all_reduce_into_(output, x, op, accumulate).now(self)

    def all_reduce_into_async_(self, output: A, x: Array, op: ReduceLike = Reduce.SUM, *,
                               accumulate: bool = False) -> Work[A]:
        """all_reduce_into_() as a Work."""
        return self._all_reduce_into_(output, x, op, accumulate).later(self)

    def _reduce_scatter_into_(self, output: A, x: Array, op: ReduceLike, counts: Sequence[int] | None,
                              accumulate: bool) -> Record[A]:
        if counts is None:
            view, row = self._rows(x, "x"), 1
            count = view.count // self.size
        else:
            view = self._borrow(x, "x")
            row = self._counted(view, sum(self._counts(counts)), "x", "the sum of counts")
            count = counts[self.rank] * row
        out = self._output(output, "output", count, view)
        return Record(Op.REDUCE_SCATTER, lambda: output, view, counts=counts, row=row, input=view, output=out, count=count,
                      reduce=member(Reduce, op, "op"), accumulate=accumulate)

    def reduce_scatter_into_(self, output: A, x: Array, op: ReduceLike = Reduce.SUM, *,
                             counts: Sequence[int] | None = None, accumulate: bool = False) -> A:
        """This rank's row of the sum, or its counts[rank] rows, into output."""
        return self._reduce_scatter_into_(output, x, op, counts, accumulate).now(self)

    def reduce_scatter_into_async_(self, output: A, x: Array, op: ReduceLike = Reduce.SUM, *,
                                   counts: Sequence[int] | None = None, accumulate: bool = False) -> Work[A]:
        """reduce_scatter_into_() as a Work."""
        return self._reduce_scatter_into_(output, x, op, counts, accumulate).later(self)

    def _reduce_into_(self, output: A | None, x: Array, root: int, op: ReduceLike,
                      accumulate: bool) -> Record[A | None]:
        view = self._borrow(x, "x")
        out = self._output(output, "output", view.count, view) if self.rank == root else None
        return Record(Op.REDUCE, lambda: output, view, input=view, output=out, count=view.count, peer=root,
                      reduce=member(Reduce, op, "op"), accumulate=accumulate)

    def reduce_into_(self, output: A | None, x: Array, root: int = 0, op: ReduceLike = Reduce.SUM, *,
                     accumulate: bool = False) -> A | None:
        """The reduction into the root's output; elsewhere it may be None."""
        return self._reduce_into_(output, x, root, op, accumulate).now(self)

    def reduce_into_async_(self, output: A | None, x: Array, root: int = 0, op: ReduceLike = Reduce.SUM, *,
                           accumulate: bool = False) -> Work[A | None]:
        """reduce_into_() as a Work."""
        return self._reduce_into_(output, x, root, op, accumulate).later(self)
