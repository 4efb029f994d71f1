"""The collectives of a gang, for arrays of NumPy, PyTorch and JAX."""

from __future__ import annotations

from typing import Any, Callable, Generic, Sequence, TypeVar

from . import _low as c
from ._low import View
from .arrays import CONTIGUOUS, OUTPUT, Array, Made, borrow, kind_of
from .enums import Op, Reduce, member
from .errors import InvalidArgument
from .structs import block, struct
from .works import Work

T = TypeVar("T")


class _Call(Generic[T]):
    """A checked collective: the C function's name and arguments, and what makes the result."""

    def __init__(self, name: str, arguments: tuple[Any, ...], finish: Callable[[], T]) -> None:
        self.name, self.arguments, self.finish = name, arguments, finish

    def now(self, gang: Any) -> T:
        getattr(c, f"gw_gang_{self.name}")(gang, *self.arguments, None)
        return self.finish()

    def later(self, gang: Any) -> Work[T]:
        handle = getattr(c, f"gw_gang_{self.name}_async")(gang, *self.arguments, None)
        return Work(handle, self.finish)


class Collectives:
    """`x_()` works in place, `x()` gives a new array of the caller's framework, `x_async()` a Work. Roots and peers are
    relative to the gang."""

    _h: Any
    rank: int
    size: int

    def all_reduce_(self, array: Array, op: Reduce | str = Reduce.SUM) -> Array:
        """In place; returns the array."""
        view = borrow(array, "array", OUTPUT)
        c.gw_gang_all_reduce(self._h, view, view, view.count, view.dtype, member(Reduce, op, "op"), None)
        return array

    def all_reduce_async_(self, array: Array, op: Reduce | str = Reduce.SUM) -> Work[Array]:
        """all_reduce_() as a Work."""
        view = borrow(array, "array", OUTPUT)
        return self._reduce("all_reduce", view, view, op, lambda: array).later(self._h)

    def _all_reduce(self, x: Array, op: Reduce | str) -> _Call[Array]:
        view = borrow(x, "x")
        made = Made(kind_of(x), view.shape, view.dtype)
        return self._reduce("all_reduce", view, made.view, op, made.array)

    def all_reduce(self, x: Array, op: Reduce | str = Reduce.SUM) -> Array:
        """A new array of x's framework."""
        return self._all_reduce(x, op).now(self._h)

    def all_reduce_async(self, x: Array, op: Reduce | str = Reduce.SUM) -> Work[Array]:
        """all_reduce() as a Work."""
        return self._all_reduce(x, op).later(self._h)

    def _all_gather(self, x: Array) -> _Call[Array]:
        view = borrow(x, "x")
        made = Made(kind_of(x), (self.size, *view.shape), view.dtype)
        return _Call("all_gather", (view, made.view, view.count, view.dtype), made.array)

    def all_gather(self, x: Array) -> Array:
        """[size, *x.shape]."""
        return self._all_gather(x).now(self._h)

    def all_gather_async(self, x: Array) -> Work[Array]:
        """all_gather() as a Work."""
        return self._all_gather(x).later(self._h)

    def _all_gather_list_(self, outputs: Sequence[Array], x: Array) -> _Call[Sequence[Array]]:
        view = borrow(x, "x")
        if len(outputs) != self.size:
            raise InvalidArgument(f"outputs has {len(outputs)} arrays, the gang {self.size} ranks")
        views = [self._output(o, f"outputs[{i}]", view.count, view) for i, o in enumerate(outputs)]
        return _Call("all_gather_list", (view, block("a", views), view.count, view.dtype), lambda: outputs)

    def all_gather_list_(self, outputs: Sequence[Array], x: Array) -> Sequence[Array]:
        """Each rank's x into one array for each rank."""
        return self._all_gather_list_(outputs, x).now(self._h)

    def all_gather_list_async_(self, outputs: Sequence[Array], x: Array) -> Work[Sequence[Array]]:
        """all_gather_list_() as a Work."""
        return self._all_gather_list_(outputs, x).later(self._h)

    def _reduce_scatter(self, x: Array, op: Reduce | str) -> _Call[Array]:
        view = self._rows(x, "x")
        made = Made(kind_of(x), view.shape[1:], view.dtype)
        return self._reduce("reduce_scatter", view, made.view, op, made.array, count=made.view.count)

    def reduce_scatter(self, x: Array, op: Reduce | str = Reduce.SUM) -> Array:
        """x [size, ...] -> this rank's row of the sum."""
        return self._reduce_scatter(x, op).now(self._h)

    def reduce_scatter_async(self, x: Array, op: Reduce | str = Reduce.SUM) -> Work[Array]:
        """reduce_scatter() as a Work."""
        return self._reduce_scatter(x, op).later(self._h)

    def _broadcast_(self, array: Array, root: int) -> _Call[Array]:
        view = borrow(array, "array", OUTPUT)
        return _Call("broadcast", (view, view, view.count, view.dtype, root), lambda: array)

    def broadcast_(self, array: Array, root: int = 0) -> Array:
        """The root's values, in place."""
        return self._broadcast_(array, root).now(self._h)

    def broadcast_async_(self, array: Array, root: int = 0) -> Work[Array]:
        """broadcast_() as a Work."""
        return self._broadcast_(array, root).later(self._h)

    def _broadcast(self, x: Array, root: int) -> _Call[Array]:
        view = borrow(x, "x")
        made = Made(kind_of(x), view.shape, view.dtype)
        return _Call("broadcast", (view, made.view, view.count, view.dtype, root), made.array)

    def broadcast(self, x: Array, root: int = 0) -> Array:
        """The root's values as a new array; elsewhere x gives shape and type alone."""
        return self._broadcast(x, root).now(self._h)

    def broadcast_async(self, x: Array, root: int = 0) -> Work[Array]:
        """broadcast() as a Work."""
        return self._broadcast(x, root).later(self._h)

    def _to_root(self, name: str, x: Array, root: int, op: Reduce | str | None = None) -> _Call[Array | None]:
        view = borrow(x, "x")
        shape = (self.size, *view.shape) if op is None else view.shape
        made = Made(kind_of(x), shape, view.dtype) if self.rank == root else None
        output, finish = (made.view, made.array) if made is not None else (None, lambda: None)
        last = (root,) if op is None else (member(Reduce, op, "op"), root)
        return _Call(name, (view, output, view.count, view.dtype, *last), finish)

    def reduce(self, x: Array, root: int = 0, op: Reduce | str = Reduce.SUM) -> Array | None:
        """The reduction on the root, None elsewhere."""
        return self._to_root("reduce", x, root, op).now(self._h)

    def reduce_async(self, x: Array, root: int = 0, op: Reduce | str = Reduce.SUM) -> Work[Array | None]:
        """reduce() as a Work."""
        return self._to_root("reduce", x, root, op).later(self._h)

    def gather(self, x: Array, root: int = 0) -> Array | None:
        """[size, *x.shape] on the root, None elsewhere."""
        return self._to_root("gather", x, root).now(self._h)

    def gather_async(self, x: Array, root: int = 0) -> Work[Array | None]:
        """gather() as a Work."""
        return self._to_root("gather", x, root).later(self._h)

    def _scatter(self, output: Array, x: Array | None, root: int) -> _Call[Array]:
        out = borrow(output, "output", OUTPUT)
        view = None
        if self.rank == root:
            if x is None:
                raise InvalidArgument(f"x is None on rank {root}, the root")
            view = self._rows(x, "x")
            self._same(view, out, "x", "output", view.count // self.size)
        return _Call("scatter", (view, out, out.count, out.dtype, root), lambda: output)

    def scatter_(self, output: Array, x: Array | None = None, root: int = 0) -> Array:
        """The root's x [size, ...], one row for each rank, into output."""
        return self._scatter(output, x, root).now(self._h)

    def scatter_async_(self, output: Array, x: Array | None = None, root: int = 0) -> Work[Array]:
        """scatter_() as a Work."""
        return self._scatter(output, x, root).later(self._h)

    def _all_to_all(self, x: Array) -> _Call[Array]:
        view = self._rows(x, "x")
        made = Made(kind_of(x), view.shape, view.dtype)
        return _Call("all_to_all", (view, made.view, view.count // self.size, view.dtype), made.array)

    def all_to_all(self, x: Array) -> Array:
        """Row i of x [size, ...] to rank i."""
        return self._all_to_all(x).now(self._h)

    def all_to_all_async(self, x: Array) -> Work[Array]:
        """all_to_all() as a Work."""
        return self._all_to_all(x).later(self._h)

    def send(self, x: Array, peer: int) -> None:
        """To a rank that calls recv_."""
        view = borrow(x, "x")
        c.gw_gang_send(self._h, view, view.count, view.dtype, peer, None)

    def send_async(self, x: Array, peer: int) -> Work[None]:
        """send() as a Work."""
        view = borrow(x, "x")
        return _Call("send", (view, view.count, view.dtype, peer), lambda: None).later(self._h)

    def recv_(self, array: Array, peer: int) -> Array:
        """From a rank that calls send."""
        view = borrow(array, "array", OUTPUT)
        c.gw_gang_recv(self._h, view, view.count, view.dtype, peer, None)
        return array

    def recv_async_(self, array: Array, peer: int) -> Work[Array]:
        """recv_() as a Work."""
        view = borrow(array, "array", OUTPUT)
        return _Call("recv", (view, view.count, view.dtype, peer), lambda: array).later(self._h)

    def exchange_(self, sends: Sequence[tuple[Array, int]], receives: Sequence[tuple[Array, int]]) -> None:
        """All (array, peer) pairs as one launch, which cannot deadlock."""
        records = []
        for op, pairs, wants in ((Op.SEND, sends, CONTIGUOUS), (Op.RECV, receives, OUTPUT)):
            for array, peer in pairs:
                view = borrow(array, "sends" if op == Op.SEND else "receives", wants)
                side = {"input": view} if op == Op.SEND else {"output": view}
                records.append(struct("gw_collective", op=op, count=view.count, dtype=view.dtype, peer=peer, **side))
        Work(c.gw_gang_run_batch(self._h, block("s", records), len(records), None), lambda: None).wait()

    def barrier(self) -> None:
        """Returns when every rank has come."""
        c.gw_gang_barrier(self._h, None)

    def barrier_async(self) -> Work[None]:
        """barrier() as a Work."""
        return _Call[None]("barrier", (), lambda: None).later(self._h)

    # --- checks

    @staticmethod
    def _reduce(name: str, view: View, output: View, op: Reduce | str, finish: Callable[[], T],
                count: int | None = None) -> _Call[T]:
        arguments = (view, output, view.count if count is None else count, view.dtype, member(Reduce, op, "op"))
        return _Call(name, arguments, finish)

    def _rows(self, array: Array, name: str) -> View:
        view = borrow(array, name)
        if not view.shape or view.shape[0] != self.size:
            raise InvalidArgument(f"{name} has shape {view.shape}; its first dim must be the gang's size, {self.size}")
        return view

    def _output(self, array: Array, name: str, count: int, like: View) -> View:
        view = borrow(array, name, OUTPUT)
        self._same(like, view, "x", name, count)
        return view

    @staticmethod
    def _same(view: View, output: View, name: str, output_name: str, count: int) -> None:
        if view.dtype != output.dtype:
            raise InvalidArgument(f"{output_name} is {c.gw_dtype_name(output.dtype)}, "
                                  f"but {name} is {c.gw_dtype_name(view.dtype)}")
        if output.count != count:
            raise InvalidArgument(f"{output_name} is {'too small' if output.count < count else 'too large'}: "
                                  f"it has {output.count} elements, {count} are needed")
