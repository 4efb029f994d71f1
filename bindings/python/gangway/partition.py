"""Partitions: workers, ranks of a gang, in a grid; and what moves arrays between them, with its adjoint.

    workers = gw.Partition(gangs.root)
    grid = workers.cartesian(2, 2, 3)
    gather = gw.AllGather(grid, axes=(2,))
    y = gather(x)                  # [3, 7, 4] on each of 12 workers becomes [3, 7, 12]
    dx = gather.backward(dy)

A tensor of PyTorch that requires a gradient, and an array of JAX under jax.grad, go through the framework's own
differentiation, by the adjoint: y = gather(x); loss(y).backward(). See gangway.autograd.

Dims of a partition are its axes; worker i has the row-major index i. The inner product is the sum over all ranks, so an
array that several workers hold counts once for each. A rank that is no worker passes None, or an array without elements.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable

import numpy as np

from . import _low as c
from .arrays import ANY, Array, NewArray, Place, kind_of, known_kind
from .autograd import differentiated, is_tracked
from .gang import Gang
from .names import Kind
from .structs import block, handle_of, struct
from .tensors import Tensor


class Partition:
    """A list of workers in a grid; made of a gang, all its ranks in one dim. Local: ranks that make the same calls hold the
    same partitions."""

    def __init__(self, gang: Gang) -> None:
        self._take(c.gw_partition_create(handle_of(gang, Gang, "gang")), gang._place)

    def _take(self, handle: Any, place: Place) -> None:
        self._place = place
        info = struct("gw_partition_info")
        c.gw_partition_describe(handle, info)
        self._h = handle
        self.size: int = info.size
        self.shape: tuple[int, ...] = tuple(info.shape)[: info.ndim]
        self.active = bool(info.active)
        self.rank: int | None = info.rank if self.active else None
        self.index: tuple[int, ...] | None = tuple(info.index)[: info.ndim] if self.active else None

    def _of(self, handle: Any) -> Partition:
        """Another one of the same gang."""
        made = Partition.__new__(Partition)
        made._take(handle, self._place)
        return made

    def __repr__(self) -> str:
        place = f"worker {self.rank} at {list(self.index)}" if self.index is not None else "inactive"
        return f"<Partition {list(self.shape)}: {place}>"

    def inclusive(self, workers: Iterable[int]) -> Partition:
        """These workers, in this order, in one dim."""
        chosen = list(workers)
        return self._of(c.gw_partition_inclusive(self._h, numbers(chosen), len(chosen)))

    def union(self, other: Partition) -> Partition:
        """These workers, then those of `other` that are not among them, in one dim."""
        return self._of(c.gw_partition_union(self._h, handle_of(other, Partition, "other")))

    def cartesian(self, *shape: int) -> Partition:
        """The same workers in a grid, the last dim fastest."""
        return self._of(c.gw_partition_cartesian(self._h, numbers(shape), len(shape)))

    def subtopology(self, *kept: int) -> Partition:
        """The workers that share this rank's index on all other dims, in a grid of the kept ones."""
        return self._of(c.gw_partition_subtopology(self._h, numbers(kept), len(kept)))

    def neighbors(self, dim: int) -> tuple[int | None, int | None]:
        """The workers before and after this one along `dim`; None at the edge."""
        before, after = c.gw_partition_neighbors(self._h, dim)
        return (None if before < 0 else before, None if after < 0 else after)


def numbers(values: Iterable[int]) -> Any:
    """An array of int32 for C that is not null where it is empty."""
    found = block("i", values)
    return bytes(4) if found is None else found


class Movement:
    """Moves arrays over a partition, or from one to another. movement(x) is movement.forward(x). Creation is collective
    over the gang, forward and backward over the workers that exchange something."""

    def __init__(self, kind: int, source: Partition, target: Partition | None, **fields: Any) -> None:
        other = None if target is None else handle_of(target, Partition, "target")
        self._kind: Kind = "numpy"  # what backward gives: as the last forward
        self._h = c.gw_movement_create(handle_of(source, Partition, "source"), other, kind,
                                       struct("gw_movement_options", **fields))
        self._place = source._place

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def forward(self, x: Array | None, kind: Kind | None = None) -> NewArray:
        """A new array of `kind`; None: of x's framework, of NumPy where x is None."""
        if kind is None and is_tracked(x):
            return differentiated(x, self._kept)
        self._kind = known_kind(kind) if kind else "numpy" if x is None else kind_of(x)  # before any peer waits
        return self._run(c.gw_movement_forward, x, "x")

    __call__ = forward

    def backward(self, dy: Array | None) -> NewArray:
        """The gradient of the last forward's input, by the adjoint."""
        return self._run(c.gw_movement_backward, dy, "dy")

    def _kept(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        """forward(x) in a frame of its own, with its backward."""
        own = object.__new__(Movement)
        own._h, own._place = c.gw_movement_duplicate(self._h), self._place
        return own.forward(x), own.backward

    def _run(self, call: Any, array: Array | None, name: str) -> NewArray:
        view = self._place.borrow(np.empty(0, np.float32) if array is None else array, name, ANY)
        return Tensor(call(self._h, view, self._place.stream)).to(self._kind)


def _axes(axes: Iterable[int] | int | None, axes_keep: Iterable[int] | int | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, count, given in (("axes", "axis_count", axes), ("axes_keep", "keep_count", axes_keep)):
        if given is None:
            continue
        listed = [given] if isinstance(given, int) else list(given)
        fields[name], fields[count] = numbers(listed), len(listed)
    return fields


class AllGather(Movement):
    """Joins the pieces along one dim on every worker; backward sums and keeps the own piece. `axes` names the dim, or
    `axes_keep` all others. Over no dims, axes=(), it is a copy, as are ReduceScatter and AllSumReduce."""

    def __init__(self, partition: Partition, axes: Iterable[int] | int | None = None, *,
                 axes_keep: Iterable[int] | int | None = None, backward_scale: float = 1.0) -> None:
        super().__init__(c.GW_MOVEMENT_ALL_GATHER, partition, None, backward_scale=backward_scale,
                         **_axes(axes, axes_keep))


class ReduceScatter(Movement):
    """Sums over the workers along one dim, and each keeps its balanced piece of it; backward joins."""

    def __init__(self, partition: Partition, axes: Iterable[int] | int | None = None, *,
                 axes_keep: Iterable[int] | int | None = None, backward_scale: float = 1.0) -> None:
        super().__init__(c.GW_MOVEMENT_REDUCE_SCATTER, partition, None, backward_scale=backward_scale,
                         **_axes(axes, axes_keep))


class AllSumReduce(Movement):
    """Sums over the workers along some dims, on each of them; its own adjoint."""

    def __init__(self, partition: Partition, axes: Iterable[int] | int | None = None, *,
                 axes_keep: Iterable[int] | int | None = None, backward_scale: float = 1.0) -> None:
        super().__init__(c.GW_MOVEMENT_ALL_SUM_REDUCE, partition, None, backward_scale=backward_scale,
                         **_axes(axes, axes_keep))


class Broadcast(Movement):
    """From each worker of a source to those of a target, by NumPy's rule for shapes; backward sums."""

    def __init__(self, source: Partition, target: Partition, *, preserve_batch: bool = False, backward_scale: float = 1.0,
                 transpose_source: bool = False, transpose_target: bool = False) -> None:
        super().__init__(c.GW_MOVEMENT_BROADCAST, source, target, preserve_batch=preserve_batch,
                         backward_scale=backward_scale, transpose_source=transpose_source,
                         transpose_target=transpose_target)


class SumReduce(Movement):
    """Sums the arrays of a source's workers on a worker of the target; backward broadcasts."""

    def __init__(self, source: Partition, target: Partition, *, preserve_batch: bool = False, backward_scale: float = 1.0,
                 transpose_source: bool = False, transpose_target: bool = False) -> None:
        super().__init__(c.GW_MOVEMENT_SUM_REDUCE, source, target, preserve_batch=preserve_batch,
                         backward_scale=backward_scale, transpose_source=transpose_source,
                         transpose_target=transpose_target)


class Repartition(Movement):
    """An array that is cut over the source becomes cut over the target, balanced; backward cuts it as before."""

    def __init__(self, source: Partition, target: Partition, *, preserve_batch: bool = False,
                 backward_scale: float = 1.0) -> None:
        super().__init__(c.GW_MOVEMENT_REPARTITION, source, target, preserve_batch=preserve_batch,
                         backward_scale=backward_scale)
