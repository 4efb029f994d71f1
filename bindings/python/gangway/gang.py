"""Gangs: ranks that act together."""

from __future__ import annotations

import importlib
import operator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Callable, Iterator, Sequence, TypeVar, cast

import numpy as np

from . import _low as c
from . import low, objects
from ._low import View
from .arrays import OUTPUT, Place, borrow, dtype_of
from .collectives import Collectives
from .errors import InvalidArgument
from .store import Store
from .structs import PathLike, block, handle_of, path_of, struct, text, told
from .works import Work, milliseconds


N = TypeVar("N", int, float)
_EXACT = 1 << 53  # up to here a double has every integer

AllGather = Callable[[bytes], Sequence[bytes]]
"""Takes this rank's bytes, returns every rank's, by rank."""


def leave(thing: Any, error: BaseException | None) -> None:
    """The end of a with block of a Gang or of Gangs: in order, or so that peers do not wait when its body has raised."""
    if error is None:
        thing.shutdown()
    else:
        thing.abort(f"rank {thing.rank}: {told(error)}")


class Gang(Collectives):
    """Ranks that act together. Release never waits; shutdown() is collective and orderly.

    `with gang:` ends the gang: after the body by shutdown(), and where the body raises by abort(), so that peers do not
    wait. It does nothing else."""

    def __init__(self, handle: Any) -> None:
        self._h = handle
        self.rank: int = c.gw_gang_rank(handle)
        self.size: int = c.gw_gang_size(handle)
        self._place = Place.of(handle)
        self._process_group: Any = None

    @classmethod
    def create(
        cls, *, device: str | None = None, engine: str | None = None, name: str | None = None,
        timeout: float | None = None, liveness: float | None = None, arena_bytes: int = 0, memory_limit: int = 0,
        high_priority: bool = False, expected_size: int = 0, threads: int = 0, rank: int = -1, size: int = 0,
        store: Store | None = None, id: bytes | None = None, all_gather: AllGather | None = None,
    ) -> Gang:
        """Collective. A root gang. Without `rank` and `size` the environment decides (gangrun, torchrun, srun, mpirun), else
        it has one rank.

        device, engine: "cpu"; "auto", "self" or "host".
        name: names the gang in errors.
        timeout: seconds until a wait fails; None: 15 minutes, or GANGWAY_TIMEOUT_MS.
        liveness: seconds after which a silent peer is lost; None: GANGWAY_LIVENESS_MS, else never.
        arena_bytes, memory_limit: address space, and bytes, of this host's shared memory; 0: by the host's memory.
        expected_size: any other number of ranks is refused; 0: any.
        threads: of this rank, for compute; 0: cores / ranks on this host.
        store, id, all_gather: with rank and size, one of them is where ranks meet: a Store; bytes of new_id(); a function
        that takes this rank's bytes and returns every rank's, by rank, like mpi4py's comm.allgather."""
        return cls(c.gw_gang_create(gang_options(
            device=device, engine=engine, name=name, timeout=timeout, liveness=liveness, arena_bytes=arena_bytes,
            memory_limit=memory_limit, high_priority=high_priority, expected_size=expected_size, threads=threads, rank=rank,
            size=size, store=store, id=id, all_gather=all_gather)))

    @classmethod
    def create_threads(
        cls, count: int, *, device: str | None = None, name: str | None = None, timeout: float | None = None,
        arena_bytes: int = 0, memory_limit: int = 0, threads: int = 0,
    ) -> list[Gang]:
        """Local. Root gangs in one process, one for each thread that is a rank. Options as in create()."""
        options = gang_options(device=device, name=name, timeout=timeout, arena_bytes=arena_bytes, memory_limit=memory_limit,
                               threads=threads)
        return [cls(h) for h in c.gw_gang_create_threads(count, options)]

    @classmethod
    def create_fake(
        cls, rank: int, size: int, *, device: str | None = None, name: str | None = None, threads: int = 0
    ) -> Gang:
        """Local. A gang without peers: acts as if every rank held the caller's data. A mesh over it, Gangs.create(), is that of
        one rank of any size, and flight_record() of each of its gangs says what was called. Options as in create()."""
        return cls(c.gw_gang_create_fake(rank, size, gang_options(device=device, name=name, threads=threads)))

    def __repr__(self) -> str:
        if self._h is c.RELEASED:
            return "<Gang: released>"
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

    @contextmanager
    def trace(self, folder: PathLike) -> Iterator[None]:
        """Collective over a root gang. with gang.trace("out"): each rank writes what it does, and when, into out/rank-R.json.
        The program gw-trace puts the files together, for ui.perfetto.dev, and draws pipelines."""
        c.gw_gang_begin_trace(self._h, path_of(folder, "folder"))
        try:
            yield
        finally:
            c.gw_gang_end_trace(self._h)

    def abort(self, reason: str) -> None:
        """Breaks the gang and wakes every waiter, here and on peers."""
        c.gw_gang_abort(self._h, reason)

    def __enter__(self) -> Gang:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        leave(self, error)

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
        """Memory that peers reach directly, on a GPU its own, for from_dlpack of any framework. `shared` (collective): one
        zeroed region that all ranks map, on CPUs alone."""
        word, dims = dtype_of(dtype), tuple(map(operator.index, shape))
        if min(dims, default=0) < 0:
            raise InvalidArgument(f"shape is {dims}: a dim is below 0")
        return self._shared(dims, word) if shared else self._memory(dims, word)

    # --- small things

    def broadcast_object(self, thing: Any = None, root: int = 0, *, allow_pickle: bool = False) -> Any:
        """The root's bytes, or anything that JSON gives back equal; others need allow_pickle=True on every rank."""
        return objects.broadcast(self, thing, root, allow_pickle)

    def broadcast_objects(self, things: list[Any], root: int = 0, *, allow_pickle: bool = False) -> None:
        """In place: the list has the root's objects then, as many as the root's list has; rules as for broadcast_object()."""
        if not isinstance(things, list):
            raise TypeError(f"things is a {type(things).__name__}, not a list")
        objects.broadcast_list(self, things, root, allow_pickle)

    def all_gather_objects(self, thing: Any, *, allow_pickle: bool = False) -> list[Any]:
        """Every rank's object, by rank; rules as for broadcast_object."""
        return objects.all_gather(self, thing, allow_pickle)

    def broadcast_flag(self, flag: bool, root: int = 0) -> bool:
        """The root's flag on every rank."""
        return bool(c.gw_gang_broadcast_flag(self._h, int(flag), root))

    def broadcast_flag_async(self, flag: bool, root: int = 0) -> Work[bool]:
        """broadcast_flag() as a Work."""
        found = np.zeros(1, np.int32)
        handle = c.gw_gang_broadcast_flag_async(self._h, int(flag), root, borrow(found, "flag", OUTPUT))
        return Work(handle, lambda: bool(found[0]))

    def all_sum(self, value: N) -> N:
        """The sum of all ranks' values: an int of ints, exact to 2**53 (a larger one is refused), a float of floats."""
        return _summed(value, float(c.gw_gang_all_sum(self._h, self._summand(value))))

    def all_sum_async(self, value: N) -> Work[N]:
        """all_sum() as a Work."""
        found = np.zeros(1, np.float64)
        handle = c.gw_gang_all_sum_async(self._h, self._summand(value), borrow(found, "sum", OUTPUT))
        return Work(handle, lambda: _summed(value, float(found[0])))

    def _summand(self, value: N) -> float:
        """As a float, in which sums of all ranks' ints of this size are exact; NaN tells every rank that one has a larger int."""
        if not isinstance(value, (int, np.integer)):
            return value
        return float(value) if abs(int(value)) <= _EXACT // self.size else float("nan")

    def as_process_group(self) -> Any:
        """Collective, the first time. A process group of torch.distributed over these ranks, by the backend of gangway.torch:
        for DTensor, FSDP2, DDP and all that takes a `group`. Its traffic is its own. Later calls give the same one.
        init_process_group() comes before."""
        if self._process_group is None:
            self._process_group = importlib.import_module("gangway.torch").process_group_of(self)
        return self._process_group


def _summed(value: N, total: float) -> N:
    """A sum in the type of this rank's value; a float where another rank's was none."""
    whole = isinstance(value, (int, np.integer)) and total.is_integer()
    if isinstance(value, (int, np.integer)) and np.isnan(total):
        raise InvalidArgument(f"the sum is not a number (this rank's value is {value}): a rank's int is too large for an exact sum, "
                              "up to 2**53 over all ranks, or its float is NaN; give floats, or sum an int64 array by all_reduce")
    return cast(N, int(total) if whole else total)


class _Gatherer:
    """Calls a caller's all-gather for the library: one block of bytes, of the right size."""

    def __init__(self, function: AllGather, size: int) -> None:
        self._function, self._size = function, size

    def __call__(self, mine: bytes) -> bytes:
        every = list(self._function(mine))
        sizes = [len(theirs) for theirs in every]
        if sizes != [len(mine)] * self._size:
            raise InvalidArgument(f"all_gather gave byte strings of sizes {sizes}, {self._size} of {len(mine)} are needed")
        return b"".join(every)


def gang_options(*, timeout: float | None = None, liveness: float | None = None, store: Store | None = None,
                 id: bytes | None = None, size: int = 0, all_gather: AllGather | None = None, **fields: Any) -> Any:
    """gw_gang_options from the keywords of Gang.create()."""
    fields.update(size=size, timeout_ms=None if timeout is None else milliseconds(timeout),
                  liveness_ms=None if liveness is None else milliseconds(liveness))
    if store is not None:
        fields["store"] = handle_of(store, Store, "store")
    if id is not None:
        fields.update(id=id, id_size=len(id))
    if all_gather is not None:
        fields.update(all_gather=low.py_all_gather, user=_Gatherer(all_gather, size), free_user=low.py_free)
    return struct("gw_gang_options", **fields)


def new_id() -> bytes:
    """A secret blob by which ranks meet: give it to every rank over a private channel, for Gang.create(id=...)."""
    buffer = bytearray(64)
    return bytes(buffer[: c.gw_gang_id_create(buffer, len(buffer))])
