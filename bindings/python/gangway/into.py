"""Reductions into the caller's array, which may add to what is there."""

from __future__ import annotations

from typing import Sequence

from .arrays import Array
from .calls import Checks, Record
from .enums import Op, Reduce, member
from .works import Work


class Into(Checks):
    """`x_into_()` writes into `output`; with `accumulate`, which floating types have, it adds to it."""

    def _all_reduce_into_(self, output: Array, x: Array, op: Reduce | str, accumulate: bool) -> Record[Array]:
        view = self._borrow(x, "x")
        out = self._output(output, "output", view.count, view)
        return Record(Op.ALL_REDUCE, lambda: output, view, input=view, output=out, count=view.count,
                      reduce=member(Reduce, op, "op"), accumulate=accumulate)

    def all_reduce_into_(self, output: Array, x: Array, op: Reduce | str = Reduce.SUM, *, accumulate: bool = False) -> Array:
        """The reduction of every rank's x into output."""
        return self._all_reduce_into_(output, x, op, accumulate).now(self)

    def all_reduce_into_async_(self, output: Array, x: Array, op: Reduce | str = Reduce.SUM, *,
                               accumulate: bool = False) -> Work[Array]:
        """all_reduce_into_() as a Work."""
        return self._all_reduce_into_(output, x, op, accumulate).later(self)

    def _reduce_scatter_into_(self, output: Array, x: Array, op: Reduce | str, counts: Sequence[int] | None,
                              accumulate: bool) -> Record[Array]:
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

    def reduce_scatter_into_(self, output: Array, x: Array, op: Reduce | str = Reduce.SUM, *,
                             counts: Sequence[int] | None = None, accumulate: bool = False) -> Array:
        """This rank's row of the sum, or its counts[rank] rows, into output."""
        return self._reduce_scatter_into_(output, x, op, counts, accumulate).now(self)

    def reduce_scatter_into_async_(self, output: Array, x: Array, op: Reduce | str = Reduce.SUM, *,
                                   counts: Sequence[int] | None = None, accumulate: bool = False) -> Work[Array]:
        """reduce_scatter_into_() as a Work."""
        return self._reduce_scatter_into_(output, x, op, counts, accumulate).later(self)

    def _reduce_into_(self, output: Array | None, x: Array, root: int, op: Reduce | str,
                      accumulate: bool) -> Record[Array | None]:
        view = self._borrow(x, "x")
        out = self._output(output, "output", view.count, view) if self.rank == root else None
        return Record(Op.REDUCE, lambda: output, view, input=view, output=out, count=view.count, peer=root,
                      reduce=member(Reduce, op, "op"), accumulate=accumulate)

    def reduce_into_(self, output: Array | None, x: Array, root: int = 0, op: Reduce | str = Reduce.SUM, *,
                     accumulate: bool = False) -> Array | None:
        """The reduction into the root's output; elsewhere it may be None."""
        return self._reduce_into_(output, x, root, op, accumulate).now(self)

    def reduce_into_async_(self, output: Array | None, x: Array, root: int = 0, op: Reduce | str = Reduce.SUM, *,
                           accumulate: bool = False) -> Work[Array | None]:
        """reduce_into_() as a Work."""
        return self._reduce_into_(output, x, root, op, accumulate).later(self)
