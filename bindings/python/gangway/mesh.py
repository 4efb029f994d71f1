"""Meshes: the ranks of a root gang along named axes pp, dp_replicate, dp_shard, cp, tp."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from . import _low as c
from . import low
from .errors import InvalidArgument, InvalidState, NotFound
from .gang import AllGather, Gang, leave
from .names import MeshPreset
from .store import Store
from .structs import handle_of, struct
from .works import milliseconds


def watch_signals() -> None:
    """Ctrl-C ends a wait of the main thread, the only one that Python gives signals to."""
    if threading.current_thread() is threading.main_thread():
        c.gw_interrupt_set(low.py_interrupt, None, None)


class Gangs:
    """The gangs of a mesh: gangs["dp"], gangs["tp"], gangs["dp_shard+cp"], ...

    `with gangs:` ends the gangs: after the body by shutdown(), and where the body raises by abort(), so that peers do not
    wait. It does not make them the thread's current ones, as fairseq2's does: `with gangs.as_current():` is for that, and ends
    nothing."""

    def __init__(self, handle: Any) -> None:
        self._h = handle
        self._gangs: dict[str, Gang] = {}
        self._made_root: Gang | None = None  # init made it: it ends with these

    @classmethod
    def create(
        cls, root: Gang | None = None, *, pp: int = 1, dp_replicate: int = 1, dp_shard: int = -1, cp: int = 1, tp: int = 1
    ) -> Gangs:
        """Collective. A mesh of these degrees over `root`; None: a new root gang from the environment. One degree may be
        -1: the number of ranks divided by the others."""
        mesh = struct("gw_mesh_options", pp=pp, dp_replicate=dp_replicate, dp_shard=dp_shard, cp=cp, tp=tp)
        return cls(c.gw_gangs_create(None if root is None else handle_of(root, Gang, "root"), mesh))

    @classmethod
    def create_parallel(cls, root: Gang, tp: int = 1, pp: int = 1, cp: int = 1) -> Gangs:
        """Collective. The rest is dp."""
        return cls(c.gw_gangs_create_parallel(handle_of(root, Gang, "root"), tp, pp, cp))

    @classmethod
    def create_fake(cls, device: str = "cpu") -> Gangs:
        """A fake gang of one in every place."""
        return cls(c.gw_gangs_create_fake(device))

    @classmethod
    def of(cls, *, root: Gang, dp: Gang, rdp: Gang, sdp: Gang, tp: Gang, pp: Gang, cp: Gang) -> Gangs:
        """Collective over `root`. Gangs that you made, one for each place; their sizes are the degrees. shutdown leaves
        them alone."""
        places = dict(root=root, dp=dp, rdp=rdp, sdp=sdp, tp=tp, pp=pp, cp=cp)
        handles = {place: handle_of(gang, Gang, place) for place, gang in places.items()}
        return cls(c.gw_gangs_create_of(struct("gw_gang_places", **handles)))

    def create_fsdp(self, intra_node_size: int = 0) -> Gangs:
        """Collective. Splits dp into sdp within a node and rdp between nodes."""
        return Gangs(c.gw_gangs_create_fsdp(self._h, intra_node_size))

    def __getitem__(self, axes: str) -> Gang:
        """Of "root", "dp", "rdp", "sdp", an axis, or a product of axes such as "dp_shard+cp"; else NotFound, a KeyError."""
        if axes not in self._gangs:
            try:
                self._gangs[axes] = Gang(c.gw_gangs_get(self._h, axes))
            except InvalidArgument as error:
                raise NotFound(error.text) from None
        return self._gangs[axes]

    def __contains__(self, axes: object) -> bool:
        """Whether gangs[axes] is there; every axis is, also of degree 1."""
        try:
            return isinstance(axes, str) and self[axes] is not None
        except (NotFound, InvalidState):  # InvalidState: the gangs have ended
            return False

    @property
    def root(self) -> Gang:
        """All ranks."""
        return self["root"]

    @property
    def rank(self) -> int:
        """In the root gang."""
        return self.root.rank

    @property
    def size(self) -> int:
        """Of the root gang."""
        return self.root.size

    @property
    def data_shard(self) -> tuple[int, int]:
        """(index, count): which rows of the global batch this rank reads."""
        index, count = c.gw_gangs_data_shard(self._h)
        return index, count

    def coordinate(self, axis: str) -> tuple[int, int]:
        """(index, degree) on an axis."""
        index, degree = c.gw_gangs_coordinate(self._h, axis)
        return index, degree

    def release(self) -> None:
        """Drops the handle now. Never waits."""
        self._h, self._gangs, self._made_root = c.RELEASED, {}, None

    def shutdown(self, timeout: float | None = None) -> None:
        """Collective and orderly: all gangs that this made."""
        c.gw_gangs_shutdown(self._h, milliseconds(timeout))
        if self._made_root is not None:
            self._made_root.shutdown(timeout)

    def abort(self, reason: str) -> None:
        """Breaks all gangs that this made."""
        c.gw_gangs_abort(self._h, reason)
        if self._made_root is not None:
            self._made_root.abort(reason)

    def __repr__(self) -> str:
        if self._h is c.RELEASED:
            return "<Gangs: released>"
        axes = {axis: self.coordinate(axis)[1] for axis in ("pp", "dp_replicate", "dp_shard", "cp", "tp")}
        mesh = " x ".join(f"{axis} {degree}" for axis, degree in axes.items() if degree > 1) or "one rank"
        return f"<Gangs: {mesh}; rank {self.rank} of {self.size}>"

    def __enter__(self) -> Gangs:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        leave(self, error)

    def as_current(self) -> _Current:
        """with gangs.as_current(): current_gangs() is this, on this thread."""
        return _Current(self)


class _Current:
    def __init__(self, gangs: Gangs) -> None:
        self._gangs = gangs

    def __enter__(self) -> Gangs:
        c.gw_gangs_push_current(self._gangs._h)
        return self._gangs

    def __exit__(self, *_: object) -> None:
        c.gw_gangs_pop_current(self._gangs._h)


def current_gangs(device: str | None = None) -> Gangs | None:
    """The top of this thread's stack; with a device, else that device's default."""
    handle = c.gw_gangs_current(device)
    return None if handle is None else Gangs(handle)


def set_default_gangs(device: str, gangs: Gangs | None) -> None:
    """The default of a device for this thread; None: fake gangs of one."""
    c.gw_gangs_set_default(device, gangs._h if gangs is not None else None)


def mesh_preset(name: MeshPreset, node_size: int = 1) -> dict[str, int]:
    """Local. The degrees of a preset, for init(**mesh_preset("hsdp", 8)): "single", "ddp", "fsdp", "hsdp", "tp", "tp+fsdp",
    "pp" or "3d". `node_size`: ranks of a node, for hsdp and tp+fsdp."""
    mesh = struct("gw_mesh_options")
    c.gw_mesh_options_preset(mesh, name, node_size)
    return {axis: getattr(mesh, axis) for axis in ("pp", "dp_replicate", "dp_shard", "cp", "tp")}


def init(
    *, tp: int = 1, pp: int = 1, cp: int = 1, dp_replicate: int = 1, dp_shard: int = -1, root: Gang | None = None,
    device: str | None = None, engine: str | None = None, name: str | None = None, timeout: float | None = None,
    liveness: float | None = None, arena_bytes: int = 0, memory_limit: int = 0, high_priority: bool = False,
    expected_size: int = 0, threads: int = 0, rank: int = -1, size: int = 0, store: Store | None = None,
    id: bytes | None = None, all_gather: AllGather | None = None,
) -> Gangs:
    """Collective. The gangs of this job, as a mesh of these degrees (dp_shard -1: the ranks divided by the other degrees).
    The root gang is `root`, or a new one: the other keywords are those of Gang.create(). Without them the environment
    decides (gangrun, torchrun, srun, mpirun), else there is one rank. `with init() as gangs:` ends the gangs after its body."""
    options: dict[str, Any] = dict(
        device=device, engine=engine, name=name, timeout=timeout, liveness=liveness, arena_bytes=arena_bytes,
        memory_limit=memory_limit, high_priority=high_priority, expected_size=expected_size, threads=threads, rank=rank,
        size=size, store=store, id=id, all_gather=all_gather)
    if root is not None:
        defaults = init.__kwdefaults__ or {}
        given = [option for option, value in options.items() if value != defaults[option]]
        if given:
            raise InvalidArgument(f"init: {', '.join(given)} is for a new root gang, but root is given")
    watch_signals()
    made = Gang.create(**options) if root is None else None
    gangs = Gangs.create(root or made, tp=tp, pp=pp, cp=cp, dp_replicate=dp_replicate, dp_shard=dp_shard)
    gangs._made_root = made
    return gangs
