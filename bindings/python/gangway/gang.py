"""Gangs: ranks that act together, and their collectives."""

from __future__ import annotations

from typing import Any, Callable, Generic, Sequence, TypeVar

import numpy as np

from . import _low as c
from . import low, objects
from ._low import View
from .arrays import CONTIGUOUS, OUTPUT, Array, Made, borrow, dtype_of, kind_of
from .enums import Op, Reduce, member
from .errors import InvalidArgument
from .store import Store
from .structs import block, struct, text

T = TypeVar("T")


def milliseconds(seconds: float | None) -> int:
    """None: forever."""
    return -1 if seconds is None else int(seconds * 1000)


class Work(Generic[T]):
    """A collective in flight. Arrays that it uses live until it is done, also when this object is dropped."""

    def __init__(self, handle: Any, views: Any, finish: Callable[[], T]) -> None:
        self._h = handle
        self._finish = finish
        c.gw_work_attach(handle, c.own(views), low.py_free)

    def wait(self, timeout: float | None = None) -> T:
        """The result. NotReady after `timeout` seconds, which is harmless; None: until the gang's deadline."""
        c.gw_work_wait(self._h, milliseconds(timeout))
        return self._finish()

    def done(self) -> bool:
        """Whether the result is there; raises when the work has failed."""
        return bool(c.gw_work_poll(self._h))

    def check(self) -> None:
        """Raises when the work has failed."""
        c.gw_work_error(self._h)


def wait_all(works: Sequence[Work[Any]], timeout: float | None = None) -> list[Any]:
    """The results of all works; the first failure is raised."""
    c.gw_work_wait_many(block("h", [w._h for w in works]), len(works), milliseconds(timeout))
    return [w._finish() for w in works]


class Memory:
    """A block of the gang's memory, given back with the last array that shows it."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __del__(self) -> None:
        c.gw_gang_free(None, self._address)


class _Call(Generic[T]):
    """A checked collective: the C function's name and arguments, and what makes the result."""

    def __init__(self, name: str, arguments: tuple[Any, ...], finish: Callable[[], T]) -> None:
        self.name, self.arguments, self.finish = name, arguments, finish

    def now(self, gang: Any) -> T:
        getattr(c, f"gw_gang_{self.name}")(gang, *self.arguments, None)
        return self.finish()

    def later(self, gang: Any) -> Work[T]:
        handle = getattr(c, f"gw_gang_{self.name}_async")(gang, *self.arguments, None)
        return Work(handle, self.arguments, self.finish)


class Gang:
    """Ranks that act together. `x_()` works in place, `x()` gives a new array of the caller's framework, `x_async()` a
    Work. Roots and peers are relative to the gang. Release never waits; shutdown() is collective and orderly."""

    def __init__(self, handle: Any) -> None:
        self._h = handle
        self.rank: int = c.gw_gang_rank(handle)
        self.size: int = c.gw_gang_size(handle)

    @classmethod
    def create(cls, **options: Any) -> Gang:
        """From options (gw_gang_options), else the environment, else one rank. Collective."""
        return cls(c.gw_gang_create(gang_options(options)))

    @classmethod
    def create_threads(cls, count: int, **options: Any) -> list[Gang]:
        """Root gangs in one process, one for each thread that is a rank."""
        return [cls(h) for h in c.gw_gang_create_threads(count, gang_options(options))]

    @classmethod
    def create_fake(cls, rank: int, size: int, **options: Any) -> Gang:
        """A gang without peers: acts as if every rank held the caller's data."""
        return cls(c.gw_gang_create_fake(rank, size, gang_options(options)))

    def __repr__(self) -> str:
        return f"<Gang {self.name}: rank {self.rank} of {self.size}, {self.engine} on {self.device}>"

    # --- facts and ends

    @property
    def name(self) -> str:
        """The gang's name in errors."""
        return str(c.gw_gang_name(self._h))

    @property
    def engine(self) -> str:
        """What moves the data."""
        return str(c.gw_gang_engine(self._h))

    @property
    def device(self) -> str:
        """Where its tensors are."""
        return str(c.gw_gang_device(self._h))

    @property
    def native_handle(self) -> int:
        """ncclComm_t, MPI_Comm or the like as a number; NotSupported where the engine has none."""
        return int(c.gw_gang_native_handle(self._h))

    def traffic(self) -> dict[str, int]:
        """Calls and bytes so far."""
        t = struct("gw_gang_traffic")
        c.gw_gang_get_traffic(self._h, t)
        return {"calls": t.calls, "bytes_moved": t.bytes_moved, "bytes_staged": t.bytes_staged}

    def flight_record(self) -> str:
        """The last collectives, one a line."""
        return text(c.gw_gang_flight_record, self._h)

    def release(self) -> None:
        """Drops the handle now. Never waits."""
        self._h = c.RELEASED

    def shutdown(self, timeout: float | None = None) -> None:
        """Collective and orderly."""
        c.gw_gang_shutdown(self._h, milliseconds(timeout))

    def abort(self, reason: str) -> None:
        """Breaks the gang and wakes every waiter, here and on peers."""
        c.gw_gang_abort(self._h, reason)

    def check(self) -> None:
        """Raises why the gang is broken, if it is."""
        c.gw_gang_async_error(self._h)

    # --- other gangs (collective)

    def create_gang(self, ranks: Sequence[int]) -> Gang | None:
        """New ranks in the order of the list; None on a rank that is not in it."""
        return self._wrap(c.gw_gang_create_gang(self._h, block("i", ranks), len(ranks)))

    def split(self, color: int, key: int = 0) -> Gang | None:
        """Ranks of one color, by key, then rank; None for a color below 0."""
        return self._wrap(c.gw_gang_split(self._h, color, key))

    def duplicate(self) -> Gang:
        """The same members, private traffic."""
        return Gang(c.gw_gang_duplicate(self._h))

    def shrink(self, survivors: Sequence[int]) -> Gang:
        """A new gang of the survivors of this broken one."""
        return Gang(c.gw_gang_shrink(self._h, block("i", survivors), len(survivors)))

    @staticmethod
    def _wrap(handle: Any) -> Gang | None:
        return None if handle is None else Gang(handle)

    # --- memory

    def empty(self, shape: Sequence[int], dtype: Any = "f32", *, shared: bool = False) -> View:
        """Memory that peers reach directly, for from_dlpack of any framework. `shared` (collective): one zeroed region
        that all ranks map."""
        word = dtype_of(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * int(c.gw_dtype_bytes(word))
        allocate = c.gw_gang_alloc_shared if shared else c.gw_gang_alloc
        address = allocate(self._h, size)
        view: View = c.make_view(address, tuple(shape), word, Memory(address))
        return view

    # --- collectives

    def all_reduce_(self, array: Array, op: Reduce | str = Reduce.SUM) -> Array:
        """In place; returns the array."""
        view = borrow(array, "array", OUTPUT)
        c.gw_gang_all_reduce(self._h, view, view, view.count, view.dtype, member(Reduce, op, "op"), None)
        return array

    def all_reduce_async_(self, array: Array, op: Reduce | str = Reduce.SUM) -> Work[Array]:
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
        return self._all_reduce(x, op).later(self._h)

    def _all_gather(self, x: Array) -> _Call[Array]:
        view = borrow(x, "x")
        made = Made(kind_of(x), (self.size, *view.shape), view.dtype)
        return _Call("all_gather", (view, made.view, view.count, view.dtype), made.array)

    def all_gather(self, x: Array) -> Array:
        """[size, *x.shape]."""
        return self._all_gather(x).now(self._h)

    def all_gather_async(self, x: Array) -> Work[Array]:
        return self._all_gather(x).later(self._h)

    def all_gather_list_(self, outputs: Sequence[Array], x: Array) -> Sequence[Array]:
        """Each rank's x into one array for each rank."""
        view = borrow(x, "x")
        if len(outputs) != self.size:
            raise InvalidArgument(f"outputs has {len(outputs)} arrays, the gang {self.size} ranks")
        views = [self._output(o, f"outputs[{i}]", view.count, view) for i, o in enumerate(outputs)]
        c.gw_gang_all_gather_list(self._h, view, block("a", views), view.count, view.dtype, None)
        return outputs

    def _reduce_scatter(self, x: Array, op: Reduce | str) -> _Call[Array]:
        view = self._rows(x, "x")
        made = Made(kind_of(x), view.shape[1:], view.dtype)
        return self._reduce("reduce_scatter", view, made.view, op, made.array, count=made.view.count)

    def reduce_scatter(self, x: Array, op: Reduce | str = Reduce.SUM) -> Array:
        """x [size, ...] -> this rank's row of the sum."""
        return self._reduce_scatter(x, op).now(self._h)

    def reduce_scatter_async(self, x: Array, op: Reduce | str = Reduce.SUM) -> Work[Array]:
        return self._reduce_scatter(x, op).later(self._h)

    def _broadcast_(self, array: Array, root: int) -> _Call[Array]:
        view = borrow(array, "array", OUTPUT)
        return _Call("broadcast", (view, view, view.count, view.dtype, root), lambda: array)

    def broadcast_(self, array: Array, root: int = 0) -> Array:
        """The root's values, in place."""
        return self._broadcast_(array, root).now(self._h)

    def broadcast_async_(self, array: Array, root: int = 0) -> Work[Array]:
        return self._broadcast_(array, root).later(self._h)

    def _broadcast(self, x: Array, root: int) -> _Call[Array]:
        view = borrow(x, "x")
        made = Made(kind_of(x), view.shape, view.dtype)
        return _Call("broadcast", (view, made.view, view.count, view.dtype, root), made.array)

    def broadcast(self, x: Array, root: int = 0) -> Array:
        """The root's values as a new array; elsewhere x gives shape and type alone."""
        return self._broadcast(x, root).now(self._h)

    def broadcast_async(self, x: Array, root: int = 0) -> Work[Array]:
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
        return self._to_root("reduce", x, root, op).later(self._h)

    def gather(self, x: Array, root: int = 0) -> Array | None:
        """[size, *x.shape] on the root, None elsewhere."""
        return self._to_root("gather", x, root).now(self._h)

    def gather_async(self, x: Array, root: int = 0) -> Work[Array | None]:
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
        return self._scatter(output, x, root).later(self._h)

    def _all_to_all(self, x: Array) -> _Call[Array]:
        view = self._rows(x, "x")
        made = Made(kind_of(x), view.shape, view.dtype)
        return _Call("all_to_all", (view, made.view, view.count // self.size, view.dtype), made.array)

    def all_to_all(self, x: Array) -> Array:
        """Row i of x [size, ...] to rank i."""
        return self._all_to_all(x).now(self._h)

    def all_to_all_async(self, x: Array) -> Work[Array]:
        return self._all_to_all(x).later(self._h)

    def send(self, x: Array, peer: int) -> None:
        """To a rank that calls recv_."""
        view = borrow(x, "x")
        c.gw_gang_send(self._h, view, view.count, view.dtype, peer, None)

    def send_async(self, x: Array, peer: int) -> Work[None]:
        view = borrow(x, "x")
        return _Call("send", (view, view.count, view.dtype, peer), lambda: None).later(self._h)

    def recv_(self, array: Array, peer: int) -> Array:
        """From a rank that calls send."""
        view = borrow(array, "array", OUTPUT)
        c.gw_gang_recv(self._h, view, view.count, view.dtype, peer, None)
        return array

    def recv_async_(self, array: Array, peer: int) -> Work[Array]:
        view = borrow(array, "array", OUTPUT)
        return _Call("recv", (view, view.count, view.dtype, peer), lambda: array).later(self._h)

    def exchange_(self, sends: Sequence[tuple[Array, int]], receives: Sequence[tuple[Array, int]]) -> None:
        """All (array, peer) pairs as one launch, which cannot deadlock."""
        records, keep = [], []
        for op, pairs, wants in ((Op.SEND, sends, CONTIGUOUS), (Op.RECV, receives, OUTPUT)):
            for array, peer in pairs:
                view = borrow(array, "sends" if op == Op.SEND else "receives", wants)
                keep.append(view)
                side = {"input": view} if op == Op.SEND else {"output": view}
                records.append(struct("gw_collective", op=op, count=view.count, dtype=view.dtype, peer=peer, **side))
        c.gw_work_wait(c.gw_gang_run_batch(self._h, block("s", records), len(records), None), -1)

    def barrier(self) -> None:
        """Returns when every rank has come."""
        c.gw_gang_barrier(self._h, None)

    def barrier_async(self) -> Work[None]:
        return _Call[None]("barrier", (), lambda: None).later(self._h)

    # --- small things

    def broadcast_object(self, thing: Any = None, root: int = 0, *, allow_pickle: bool = False) -> Any:
        """The root's bytes, or anything that JSON gives back equal; others need allow_pickle=True on every rank."""
        return objects.broadcast(self, thing, root, allow_pickle)

    def all_gather_objects(self, thing: Any, *, allow_pickle: bool = False) -> list[Any]:
        """Every rank's object, by rank; rules as for broadcast_object."""
        return objects.all_gather(self, thing, allow_pickle)

    def broadcast_flag(self, flag: bool, root: int = 0) -> bool:
        """The root's flag on every rank."""
        return bool(c.gw_gang_broadcast_flag(self._h, int(flag), root))

    def all_sum(self, value: float) -> float:
        """The sum of all ranks' values."""
        return float(c.gw_gang_all_sum(self._h, value))

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


class _Gatherer:
    """The library's way to a caller's all-gather: one block of bytes, of the right size."""

    def __init__(self, function: Callable[[bytes], Sequence[bytes]], size: int) -> None:
        self._function, self._size = function, size

    def __call__(self, mine: bytes) -> bytes:
        every = list(self._function(mine))
        sizes = [len(theirs) for theirs in every]
        if sizes != [len(mine)] * self._size:
            raise InvalidArgument(f"all_gather gave byte strings of sizes {sizes}, {self._size} of {len(mine)} are needed")
        return b"".join(every)


def gang_options(options: dict[str, Any]) -> Any:
    """gw_gang_options from keywords: `store` takes a Store, `id` bytes of new_id(), `timeout` seconds, `all_gather` a
    function (bytes) -> every rank's bytes, by rank (mpi4py's comm.allgather and the like)."""
    fields = dict(options)
    if "timeout" in fields:
        fields["timeout_ms"] = milliseconds(fields.pop("timeout"))
    if isinstance(fields.get("store"), Store):
        fields["store"] = fields["store"]._h
    if fields.get("id") is not None:
        fields["id_size"] = len(fields["id"])
    if fields.get("all_gather") is not None:
        user = c.own(_Gatherer(fields["all_gather"], fields.get("size") or 0))
        fields.update(all_gather=low.py_all_gather, user=user, free_user=low.py_free)
    return struct("gw_gang_options", **fields)


def new_id() -> bytes:
    """A secret blob by which ranks meet: hand it to every rank by a private way, for Gang.create(id=...)."""
    buffer = bytearray(64)
    return bytes(buffer[: c.gw_gang_id_create(buffer, len(buffer))])
