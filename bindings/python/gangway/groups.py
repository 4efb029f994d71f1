"""Shard groups: sharding for programs that compute by themselves, with NumPy, PyTorch or JAX."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Sequence

from . import _low as c
from .arrays import OUTPUT, Array, borrow, kind_of
from .enums import Part, Strategy
from .errors import InvalidArgument
from .mesh import Gangs
from .module import Module, Tensor, parallel_options
from .parameters import Spec, parameter_options, spec_of
from .structs import block
from .works import Work


class ShardGroup:
    """Parameters of the caller's own model, sharded as one unit. Values are arrays (of equal values on every rank), or
    Specs. Arrays that come out are of the framework of the first array, else of `kind`."""

    def __init__(self, gangs: Gangs | None, name: str, parameters: Mapping[str, Array | Spec], *,
                 kind: str | None = None, seed: int = 0, strategy: Strategy | str = "full_shard", **options: Any) -> None:
        specs = {n: spec_of(p) for n, p in parameters.items()}
        arrays = [p for p in parameters.values() if not isinstance(p, Spec)]
        self.name = name
        self.kind = kind or (kind_of(arrays[0]) if arrays else "numpy")
        self.names = list(specs)
        made, fills = parameter_options(specs)
        root = gangs._h if gangs is not None else None
        shard = parallel_options("gw_shard_options", strategy, options)
        self._h = c.gw_shard_group_create(root, name, block("s", made), len(made), shard, seed)
        for fill in fills:  # the library keeps the initialiser; the values are in their shards now
            fill.forget()

    @staticmethod
    def module(groups: ShardGroup | Sequence[ShardGroup]) -> Module:
        """A model of groups, for optimizers, clipping, load and save."""
        all_groups = [groups] if isinstance(groups, ShardGroup) else list(groups)
        return Module(c.gw_module_from_groups(block("gw_shard_group", [g._h for g in all_groups]), len(all_groups)))

    def _all(self, part: Part, read_only: bool) -> dict[str, Array]:
        # A tensor keeps its memory: it outlives reshard and this object, and is never used again under an array.
        return {n: Tensor(c.gw_shard_group_tensor(self._h, i, part), read_only).to(self.kind) for i, n in enumerate(self.names)}

    def unshard(self, into: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Collective. The whole values: read-only arrays of the library's memory, whose values follow the parameter
        after the next step; or `into`, the caller's arrays, filled with a stable copy."""
        if into is None:
            c.gw_shard_group_unshard(self._h, None, None)
            return self._all(Part.FULL_VALUE, True)
        for name in self.names:
            if name not in into:
                raise InvalidArgument(f'into lacks "{name}"')
        views = [borrow(into[n], f'into["{n}"]', OUTPUT) for n in self.names]
        c.gw_shard_group_unshard(self._h, block("v", views), None)
        return {n: into[n] for n in self.names}

    def unshard_async(self) -> Work[None]:
        """Starts what the next unshard needs."""
        return Work(c.gw_shard_group_unshard_async(self._h, None), lambda: None)

    def reshard(self) -> None:
        """Collective. The whole values are not needed any more; arrays that live stay readable."""
        c.gw_shard_group_reshard(self._h, None)

    @contextmanager
    def unsharded(self, into: Mapping[str, Array] | None = None) -> Iterator[dict[str, Array]]:
        """with group.unsharded() as full: compute with full["name"]."""
        full = self.unshard(into)
        try:
            yield full
        finally:
            self.reshard()

    def add_gradients(self, gradients: Mapping[str, Array] | Sequence[Array]) -> None:
        """Local, while unsharded. Adds to the whole gradients; by name, or one for each parameter in order."""
        if not isinstance(gradients, Mapping):
            if len(gradients) != len(self.names):
                raise InvalidArgument(f"gradients has {len(gradients)} arrays, {self.name} {len(self.names)} parameters")
            gradients = dict(zip(self.names, gradients))
        views = [(self._index(n, "gradients"), borrow(g, f'gradients["{n}"]')) for n, g in gradients.items()]
        for index, view in views:
            c.gw_shard_group_add_gradient(self._h, index, view, None)

    def _index(self, name: str, argument: str) -> int:
        if name not in self.names:
            raise InvalidArgument(f'{argument} has "{name}", {self.name} only {", ".join(self.names)}')
        return self.names.index(name)

    def full_gradients(self) -> dict[str, Array]:
        """While unsharded: the whole gradients, to add into in place."""
        return self._all(Part.FULL_GRADIENT, False)

    def reduce(self) -> None:
        """Collective. Adds the sum over all data ranks to the local gradients."""
        c.gw_shard_group_reduce(self._h, None)

    def gradients(self) -> dict[str, Array]:
        """This rank's rows of the gradients, writable."""
        return self._all(Part.GRADIENT, False)

    def values(self) -> dict[str, Array]:
        """This rank's rows of the values, read-only."""
        return self._all(Part.VALUE, True)

    @contextmanager
    def updating(self) -> Iterator[dict[str, Array]]:
        """Collective. with group.updating() as values: an own step writes this rank's rows."""
        c.gw_shard_group_begin_update(self._h, None)
        try:
            yield self._all(Part.VALUE, False)
        finally:
            c.gw_shard_group_end_update(self._h, None)

    def release(self) -> None:
        """Drops the handle now."""
        self._h = c.RELEASED


