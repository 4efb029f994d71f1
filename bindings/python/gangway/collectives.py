"""The collectives of a gang, for arrays of NumPy, PyTorch and JAX."""

from __future__ import annotations

from typing import Any, Callable, Sequence, TypeVar, cast

from . import _low as c
from ._low import View
from .arrays import CONTIGUOUS, OUTPUT, A, Array
from .calls import Call, Record
from .enums import DType, Op, Reduce
from .errors import InvalidArgument
from .into import Into
from .members import member
from .names import ReduceLike
from .structs import block, struct
from .works import Work

T = TypeVar("T")


class Collectives(Into):
    """`x_()` works in place, `x()` gives a new array of the caller's framework, `x_async()` a Work. Roots and peers are
    relative to the gang. `counts`: rows of dim 0 for each rank, where they differ from rank to rank; the parts lie one
    behind the other."""

    def all_reduce_(self, array: A, op: ReduceLike = Reduce.SUM) -> A:
        """In place; returns the array."""
        view = self._borrow(array, "array", OUTPUT)
        c.gw_gang_all_reduce(self._h, view, view, view.count, view.dtype, member(Reduce, op, "op"), self._stream)
        return array

    def all_reduce_async_(self, array: A, op: ReduceLike = Reduce.SUM) -> Work[A]:
        """all_reduce_() as a Work."""
        view = self._borrow(array, "array", OUTPUT)
        return self._reduce("all_reduce", view, view, op, lambda: array).later(self)

    def _all_reduce(self, x: A, op: ReduceLike) -> Call[A]:
        view = self._borrow(x, "x")
        made = self._made(x, view, view.shape)
        return self._reduce("all_reduce", view, made.view, op, made.array)

    def all_reduce(self, x: A, op: ReduceLike = Reduce.SUM) -> A:
        """A new array of x's framework."""
        return self._all_reduce(x, op).now(self)

    def all_reduce_async(self, x: A, op: ReduceLike = Reduce.SUM) -> Work[A]:
        """all_reduce() as a Work."""
        return self._all_reduce(x, op).later(self)

    def _all_gather(self, x: A, counts: Sequence[int] | None) -> Call[A]:
        view = self._borrow(x, "x")
        if counts is not None:
            return self._gathered(Op.ALL_GATHER, view, x, counts)
        made = self._made(x, view, (self.size, *view.shape))
        return Call("all_gather", (view, made.view, view.count, view.dtype), made.array)

    def all_gather(self, x: A, *, counts: Sequence[int] | None = None) -> A:
        """[size, *x.shape]; with counts, where x has counts[rank] rows: [sum(counts), *x.shape[1:]]."""
        return self._all_gather(x, counts).now(self)

    def all_gather_async(self, x: A, *, counts: Sequence[int] | None = None) -> Work[A]:
        """all_gather() as a Work."""
        return self._all_gather(x, counts).later(self)

    def _gathered(self, op: Op, view: View, x: A, counts: Sequence[int], root: int = -1) -> Call[Any]:
        """On every rank, or on the root."""
        row = self._counted(view, self._counts(counts)[self.rank], "x", "this rank's of counts")
        if root not in (-1, self.rank):
            return Record(op, lambda: None, view, counts=counts, row=row, input=view, count=view.count, peer=root)
        made = self._made(x, view, (sum(counts), *view.shape[1:]))
        return Record(op, made.array, view, counts=counts, row=row, input=view, output=made.view, count=view.count, peer=root)

    def _all_gather_list_(self, outputs: Sequence[A], x: Array) -> Call[Sequence[A]]:
        view = self._borrow(x, "x")
        if len(outputs) != self.size:
            raise InvalidArgument(f"outputs has {len(outputs)} arrays, the gang {self.size} ranks")
        views = [self._output(o, f"outputs[{i}]", view.count, view) for i, o in enumerate(outputs)]
        return Call("all_gather_list", (view, block("a", views), view.count, view.dtype), lambda: outputs)

    def all_gather_list(self, x: A) -> list[A]:
        """Each rank's x as a new array of x's framework, by rank."""
        view = self._borrow(x, "x")
        made = [self._made(x, view, view.shape) for _ in range(self.size)]
        call = Call("all_gather_list", (view, block("a", [m.view for m in made]), view.count, view.dtype),
                    lambda: [m.array() for m in made])
        return call.now(self)

    def all_gather_list_(self, outputs: Sequence[A], x: Array) -> Sequence[A]:
        """Each rank's x into one array for each rank."""
        return self._all_gather_list_(outputs, x).now(self)

    def all_gather_list_async_(self, outputs: Sequence[A], x: Array) -> Work[Sequence[A]]:
        """all_gather_list_() as a Work."""
        return self._all_gather_list_(outputs, x).later(self)

    def _reduce_scatter(self, x: A, op: ReduceLike, counts: Sequence[int] | None) -> Call[A]:
        if counts is not None:
            view = self._borrow(x, "x")
            made = self._made(x, view, (self._counts(counts)[self.rank], *view.shape[1:]))
            call: Any = self._reduce_scatter_into_(made.view, x, op, counts, False)
            call.finish = made.array
            return cast("Call[A]", call)
        view = self._rows(x, "x")
        made = self._made(x, view, view.shape[1:])
        return self._reduce("reduce_scatter", view, made.view, op, made.array, count=made.view.count)

    def reduce_scatter(self, x: A, op: ReduceLike = Reduce.SUM, *, counts: Sequence[int] | None = None) -> A:
        """x [size, ...] -> this rank's row of the sum; with counts: x [sum(counts), ...] -> its counts[rank] rows."""
        return self._reduce_scatter(x, op, counts).now(self)

    def reduce_scatter_async(self, x: A, op: ReduceLike = Reduce.SUM, *,
                             counts: Sequence[int] | None = None) -> Work[A]:
        """reduce_scatter() as a Work."""
        return self._reduce_scatter(x, op, counts).later(self)

    def _broadcast_(self, array: A, root: int) -> Call[A]:
        view = self._borrow(array, "array", OUTPUT)
        return Call("broadcast", (view, view, view.count, view.dtype, root), lambda: array)

    def broadcast_(self, array: A, root: int = 0) -> A:
        """The root's values, in place."""
        return self._broadcast_(array, root).now(self)

    def broadcast_async_(self, array: A, root: int = 0) -> Work[A]:
        """broadcast_() as a Work."""
        return self._broadcast_(array, root).later(self)

    def _broadcast(self, x: A, root: int) -> Call[A]:
        view = self._borrow(x, "x")
        made = self._made(x, view, view.shape)
        return Call("broadcast", (view, made.view, view.count, view.dtype, root), made.array)

    def broadcast(self, x: A, root: int = 0) -> A:
        """The root's values as a new array; elsewhere x gives shape and type alone."""
        return self._broadcast(x, root).now(self)

    def broadcast_async(self, x: A, root: int = 0) -> Work[A]:
        """broadcast() as a Work."""
        return self._broadcast(x, root).later(self)

    def _to_root(self, name: str, x: A, root: int, op: ReduceLike | None = None) -> Call[A | None]:
        view = self._borrow(x, "x")
        shape = (self.size, *view.shape) if op is None else view.shape
        made = self._made(x, view, shape) if self.rank == root else None
        finish: Callable[[], Any] = lambda: None if made is None else made.array()
        output = None if made is None else made.view
        last = (root,) if op is None else (member(Reduce, op, "op"), root)
        return Call(name, (view, output, view.count, view.dtype, *last), finish)

    def reduce(self, x: A, root: int = 0, op: ReduceLike = Reduce.SUM) -> A | None:
        """The reduction on the root, None elsewhere."""
        return self._to_root("reduce", x, root, op).now(self)

    def reduce_async(self, x: A, root: int = 0, op: ReduceLike = Reduce.SUM) -> Work[A | None]:
        """reduce() as a Work."""
        return self._to_root("reduce", x, root, op).later(self)

    def _gather(self, x: A, root: int, counts: Sequence[int] | None) -> Call[A | None]:
        if counts is not None:
            return self._gathered(Op.GATHER, self._borrow(x, "x"), x, counts, root)
        return self._to_root("gather", x, root)

    def gather(self, x: A, root: int = 0, *, counts: Sequence[int] | None = None) -> A | None:
        """[size, *x.shape] on the root, None elsewhere; counts as for all_gather()."""
        return self._gather(x, root, counts).now(self)

    def gather_async(self, x: A, root: int = 0, *, counts: Sequence[int] | None = None) -> Work[A | None]:
        """gather() as a Work."""
        return self._gather(x, root, counts).later(self)

    def _scatter(self, output: A, x: Array | None, root: int, counts: Sequence[int] | None) -> Call[A]:
        out = self._borrow(output, "output", OUTPUT)
        row = 1 if counts is None else self._counted(out, self._counts(counts)[self.rank], "output", "this rank's of counts")
        view = None
        if self.rank == root:
            if x is None:
                raise InvalidArgument(f"x is None on rank {root}, the root")
            view = self._rows(x, "x") if counts is None else self._borrow(x, "x")
            if counts is not None:
                row = self._counted(view, sum(counts), "x", "the sum of counts")
            self._same(view, out, "x", "output", view.count // self.size if counts is None else counts[root] * row)
        if counts is None:
            return Call("scatter", (view, out, out.count, out.dtype, root), lambda: output)
        return Record(Op.SCATTER, lambda: output, out, counts=counts, row=row, input=view, output=out, count=out.count,
                      peer=root)

    def scatter_(self, output: A, x: Array | None = None, root: int = 0, *,
                 counts: Sequence[int] | None = None) -> A:
        """The root's x [size, ...], one row for each rank, into output; with counts: x [sum(counts), ...]."""
        return self._scatter(output, x, root, counts).now(self)

    def scatter_async_(self, output: A, x: Array | None = None, root: int = 0, *,
                       counts: Sequence[int] | None = None) -> Work[A]:
        """scatter_() as a Work."""
        return self._scatter(output, x, root, counts).later(self)

    def _all_to_all(self, x: A, counts: Sequence[int] | None, got: Sequence[int] | None) -> Call[A]:
        if counts is None or got is None:
            if counts is not got:
                raise InvalidArgument("all_to_all takes both counts, of the rows to each rank, and got, of those from each")
            view = self._rows(x, "x")
            made = self._made(x, view, view.shape)
            return Call("all_to_all", (view, made.view, view.count // self.size, view.dtype), made.array)
        view = self._borrow(x, "x")
        row = self._counted(view, sum(self._counts(counts)), "x", "the sum of counts")
        made = self._made(x, view, (sum(self._counts(got, "got")), *view.shape[1:]))
        return Record(Op.ALL_TO_ALL, made.array, view, counts=[*counts, *got], row=row, input=view, output=made.view)

    def all_to_all(self, x: A, *, counts: Sequence[int] | None = None, got: Sequence[int] | None = None) -> A:
        """Row i of x [size, ...] to rank i; or counts[i] rows of x to rank i, and got[i] rows from it."""
        return self._all_to_all(x, counts, got).now(self)

    def all_to_all_async(self, x: A, *, counts: Sequence[int] | None = None,
                         got: Sequence[int] | None = None) -> Work[A]:
        """all_to_all() as a Work."""
        return self._all_to_all(x, counts, got).later(self)

    def send(self, x: A, peer: int) -> None:
        """To a rank that calls recv_."""
        view = self._borrow(x, "x")
        c.gw_gang_send(self._h, view, view.count, view.dtype, peer, self._stream)

    def send_async(self, x: A, peer: int) -> Work[None]:
        """send() as a Work."""
        view = self._borrow(x, "x")
        return Call("send", (view, view.count, view.dtype, peer), lambda: None).later(self)

    def recv_(self, array: A, peer: int) -> A:
        """From a rank that calls send."""
        view = self._borrow(array, "array", OUTPUT)
        c.gw_gang_recv(self._h, view, view.count, view.dtype, peer, self._stream)
        return array

    def recv_async_(self, array: A, peer: int) -> Work[A]:
        """recv_() as a Work."""
        view = self._borrow(array, "array", OUTPUT)
        return Call("recv", (view, view.count, view.dtype, peer), lambda: array).later(self)

    def probe(self, peer: int) -> tuple[int, DType] | None:
        """Local. The number and type of the elements of the next message from `peer` that no receive has asked for; None: none
        has come yet. Drives works in flight forward."""
        ready, count, word = c.gw_gang_probe(self._h, peer)
        return (count, DType(word)) if ready else None

    def exchange_(self, sends: Sequence[tuple[Array, int]], receives: Sequence[tuple[Array, int]]) -> None:
        """All (array, peer) pairs as one launch, which cannot deadlock."""
        records = []
        for op, pairs, wants in ((Op.SEND, sends, CONTIGUOUS), (Op.RECV, receives, OUTPUT)):
            for array, peer in pairs:
                view = self._borrow(array, "sends" if op == Op.SEND else "receives", wants)
                side = {"input": view} if op == Op.SEND else {"output": view}
                records.append(struct("gw_collective", op=op, count=view.count, dtype=view.dtype, peer=peer, **side))
        handle = c.gw_gang_run_batch(self._h, block("s", records), len(records), self._stream)
        Work(handle, lambda: None, self._stream)._now()

    def barrier(self) -> None:
        """Returns when every rank has come."""
        c.gw_gang_barrier(self._h, self._stream)

    def barrier_async(self) -> Work[None]:
        """barrier() as a Work."""
        return Call[None]("barrier", (), lambda: None).later(self)

    @staticmethod
    def _reduce(name: str, view: View, output: View, op: ReduceLike, finish: Callable[[], T],
                count: int | None = None) -> Call[T]:
        arguments = (view, output, view.count if count is None else count, view.dtype, member(Reduce, op, "op"))
        return Call(name, arguments, finish)
