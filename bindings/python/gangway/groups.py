"""Shard groups: sharding for programs that compute by themselves, with NumPy, PyTorch or JAX."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Sequence

from . import _low as c
from ._low import View
from .arrays import HOST, OUTPUT, Array, DTypeLike, NewArray, first_kind, kind_of, known_kind
from .enums import Part
from .errors import InvalidArgument
from .mesh import Gangs, current_gangs
from .module import Module
from .names import Kind, StrategyLike
from .options import shard_options
from .parameters import Spec, parameter_options, spec_of
from .structs import block, handle_of
from .tensors import Tensor, one_row
from .works import Work


FORMS = "framework_forms"
"""The text of a checkpoint that has dtypes and shapes of tensors for which files have others: ShardGroup._forms() by model."""


class ShardGroup:
    """Parameters of the caller's own model, sharded as one parameter group. An array is first values (equal on every rank),
    a tuple or list of integers the dims of a parameter that is not there yet, a Spec the same with more. First values that lie
    on a GPU lie there on every rank. `seed` is of the first values; the other options are as in Module.parallelize().

    Arrays that come out are of `kind`; None: of the first array's framework, or NumPy's for MLX, whose arrays would be copies
    of the library's memory. A parameter without dims is one row in the group,
    in models and in files; its whole values and gradients have no dims. Parameters are called name.parameter in models and
    files, or by their own names where `name` is ""."""

    def __init__(
        self, gangs: Gangs | None, name: str, parameters: Mapping[str, Array | Spec | Sequence[int]], *,
        kind: Kind | None = None, seed: int = 0, strategy: StrategyLike = "full_shard",
        reshard_after_forward: bool | None = None, param_dtype: DTypeLike = None, reduce_dtype: DTypeLike = None,
        output_dtype: DTypeLike = None, cast_forward_inputs: bool = True, cpu_offload: bool = False,
        prefetch_forward: int = 1, prefetch_backward: int = 1, accumulate_unsharded: bool | None = None,
        bucket_cap_mb: float = 25.0, dtype_rules: Mapping[str, DTypeLike] | None = None,
    ) -> None:
        root = None if gangs is None else handle_of(gangs, Gangs, "gangs")
        self._mesh = gangs if gangs is not None else current_gangs()
        self._place = HOST if self._mesh is None else self._mesh.root._place
        arrays: dict[str, Any] = {n: p for n, p in parameters.items() if not isinstance(p, (Spec, tuple, list))}
        given = {n: self._place.borrow(p, n) for n, p in arrays.items() if kind_of(p) == "tensor"}
        specs = {n: spec_of(given.get(n, p), n) for n, p in parameters.items()}
        self.name = name
        of_arrays = first_kind(list(arrays.values()))
        self.kind = known_kind(kind or ("numpy" if of_arrays == "mlx" else of_arrays))
        self.names = list(specs)
        self._scalars = {n for n, spec in specs.items() if tuple(spec.shape) == ()}
        self._frozen = {n for n, spec in specs.items() if spec.frozen or spec.is_buffer}
        prefix = f"{name}." if name else ""
        self._aliases = {prefix + alias: prefix + n for n, spec in specs.items() for alias in spec.aliases}
        made, fills = parameter_options(specs)
        shard = shard_options(
            strategy=strategy, reshard_after_forward=reshard_after_forward, param_dtype=param_dtype,
            reduce_dtype=reduce_dtype, output_dtype=output_dtype, cast_forward_inputs=cast_forward_inputs,
            cpu_offload=cpu_offload, prefetch_forward=prefetch_forward, prefetch_backward=prefetch_backward,
            accumulate_unsharded=accumulate_unsharded, bucket_cap_mb=bucket_cap_mb, dtype_rules=dtype_rules)
        self._h = c.gw_shard_group_create(root, name, block("s", made), len(made), shard, seed)
        for fill in fills:  # the library keeps the initialiser; the values are in their shards now
            fill.forget()
        for own, parameter in zip(self.names, ShardGroup.module(self)) if given else ():
            if own in given:  # from where they lie
                parameter.assign(one_row(given[own]))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {', '.join(self.names)}>"

    @staticmethod
    def module(groups: ShardGroup | Sequence[ShardGroup]) -> Module:
        """A model of groups, for optimizers, clipping, load and save."""
        given = [groups] if isinstance(groups, ShardGroup) else list(groups)
        for group in given:
            handle_of(group, ShardGroup, "a shard group")
        return GroupsModule([part for group in given for part in group._parts()])

    def _parts(self) -> list[ShardGroup]:
        """The groups that this one brings into a model."""
        return [self]

    def _store_buffers(self) -> None:
        """Collective. Before the group's values are read: buffers of the caller's own module go into the group."""

    def _store_own_buffers(self) -> None:
        """Local. Before this rank's rows alone are read: likewise, this rank's own."""

    def _fetch_buffers(self) -> None:
        """Collective. After the group's values have changed: buffers go back to the caller's own module."""

    def _forms(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """By whole name the dtype and the shape of what has others in its framework than in files."""
        return {}

    def _all(self, part: Part, read_only: bool) -> dict[str, NewArray]:
        # A tensor keeps its memory: it outlives reshard and this object, and is never used again under an array.
        no_part = self._frozen if part in (Part.GRADIENT, Part.FULL_GRADIENT) else ()
        # The whole values are ordered by unshard, which has a stream.
        tensor = Tensor if part == Part.FULL_VALUE else Tensor.shown
        made = {n: tensor(c.gw_shard_group_tensor(self._h, i, part), read_only).to(self.kind)
                for i, n in enumerate(self.names) if n not in no_part}
        if part in (Part.FULL_VALUE, Part.FULL_GRADIENT) and self.kind != "tensor":
            for name in self._scalars & made.keys():
                made[name] = made[name].reshape(())
        return made

    def unshard(self, into: Mapping[str, Array] | None = None) -> dict[str, NewArray]:
        """Collective. The whole values: read-only arrays of the library's memory, whose values follow the parameter
        after the next step; or `into`, the caller's arrays, filled with a stable copy."""
        if into is None:
            c.gw_shard_group_unshard(self._h, None, self._place.stream)
            return self._all(Part.FULL_VALUE, True)
        for name in self.names:
            if name not in into:
                raise InvalidArgument(f'into has no "{name}"')
        views = [one_row(self._place.borrow(into[n], f'into["{n}"]', OUTPUT, host=False)) for n in self.names]
        c.gw_shard_group_unshard(self._h, block("v", views), self._place.stream)
        return {n: into[n] for n in self.names}

    def unshard_async(self) -> Work[None]:
        """Starts what the next unshard needs."""
        return Work(c.gw_shard_group_unshard_async(self._h, self._place.stream), lambda: None, self._place.stream)

    def reshard(self) -> None:
        """Collective. The whole values are not needed any more; arrays that live stay readable."""
        c.gw_shard_group_reshard(self._h, self._place.stream)

    @contextmanager
    def unsharded(self, into: Mapping[str, Array] | None = None) -> Iterator[dict[str, NewArray]]:
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
        views = [(self._index(n, "gradients"), one_row(self._place.borrow(g, f'gradients["{n}"]'))) for n, g in gradients.items()]
        for index, view in views:
            c.gw_shard_group_add_gradient(self._h, index, view, self._place.stream)

    def _index(self, name: str, argument: str) -> int:
        if name not in self.names:
            raise InvalidArgument(f'{argument} has "{name}", {self.name} only {", ".join(self.names)}')
        return self.names.index(name)

    def full_gradients(self) -> dict[str, NewArray]:
        """Local, while unsharded. The whole gradients, to add into in place, so that they count as written until reduce(); frozen
        parameters have none."""
        return self._all(Part.FULL_GRADIENT, False)

    def reduce(self) -> None:
        """Collective. Adds the sum over all data ranks to the local gradients."""
        c.gw_shard_group_reduce(self._h, self._place.stream)

    def gradients(self) -> dict[str, NewArray]:
        """Local. This rank's rows of the gradients, writable; frozen parameters have none."""
        return self._all(Part.GRADIENT, False)

    def values(self) -> dict[str, NewArray]:
        """Local. This rank's rows of the values, read-only."""
        return self._all(Part.VALUE, True)

    @contextmanager
    def updating(self) -> Iterator[dict[str, NewArray]]:
        """Collective. with group.updating() as values: an own step writes this rank's rows."""
        c.gw_shard_group_begin_update(self._h, self._place.stream)
        try:
            yield self._all(Part.VALUE, False)
        finally:
            c.gw_shard_group_end_update(self._h, self._place.stream)

    def release(self) -> None:
        """Drops the handle now."""
        self._h = c.RELEASED


class GroupsModule(Module):
    """A model of shard groups. What it reads of its groups, or writes, includes the buffers of the caller's own modules, and a
    tied parameter stands under each of its names."""

    def __init__(self, groups: Sequence[ShardGroup]) -> None:
        handles = [group._h for group in groups]
        super().__init__(c.gw_module_from_groups(block("gw_shard_group", handles), len(handles)),
                         groups[0]._mesh if groups else None)
        self._groups = list(groups)

    def _before_reading(self) -> None:
        for group in self._groups:
            group._store_buffers()

    def _before_reading_rows(self) -> None:
        for group in self._groups:
            group._store_own_buffers()

    def _after_writing(self) -> None:
        for group in self._groups:
            group._fetch_buffers()

    def _aliases(self) -> dict[str, str]:
        return {alias: name for group in self._groups for alias, name in group._aliases.items()}

    def _forms(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {name: form for group in self._groups for name, form in group._forms().items()}
