"""PyTorch modules whose parameters are a shard group."""

from __future__ import annotations

import importlib
import weakref
from contextlib import contextmanager, suppress
from typing import Any, Iterator, Mapping

from .arrays import Array, DTypeLike, NewArray
from .errors import GangwayError, InvalidArgument, InvalidState
from .groups import ShardGroup
from .mesh import Gangs
from .names import StrategyLike
from .parameters import Spec, spec_of
from .torch_buffers import TorchBuffers, names_of_tied, persistent_buffers


class TorchGroup(ShardGroup):
    """A PyTorch module whose parameters are sharded; they keep their shapes and names. While the group is unsharded, the
    module's parameters hold the whole values; they are read-only memory, so nothing may write them in place. On reshard their
    gradients are added to the group's, and they become empty. Made by shard()."""

    def __init__(self, module: Any, gangs: Gangs | None, name: str, parameters: Mapping[str, Spec], **options: Any) -> None:
        super().__init__(gangs, name, parameters, kind="torch", **options)
        self.module_of_torch = module
        self._own = dict(module.named_parameters())
        homes = dict(persistent_buffers(module, name))
        self._buffers = [TorchBuffers(homes, gangs)] if homes else []
        _refuse_empty_state_dicts(module, weakref.ref(self))
        for parameter in self._own.values():
            setattr(parameter, _MARK, True)
        self._hide()

    def _parts(self) -> list[ShardGroup]:
        return [self, *self._buffers]

    def _forms(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        prefix = f"{self.name}." if self.name else ""
        made: dict[str, tuple[str, tuple[int, ...]]] = {prefix + name: ("", ()) for name in self._scalars}
        return {**made, **{alias: made[name] for alias, name in self._aliases.items() if name in made}}

    def release(self) -> None:
        """Drops the handles now."""
        for buffers in self._buffers:
            buffers.release()
        super().release()

    def unshard(self, into: Mapping[str, Array] | None = None) -> dict[str, NewArray]:
        """Collective. As ShardGroup.unshard(), and the module's parameters hold the values."""
        full = super().unshard(into)
        for name, parameter in self._own.items():
            parameter.data = full[name]
        self._hidden = False
        return full

    def reshard(self) -> None:
        """Collective. Adds the gradients of the module's parameters to the group's; the parameters are empty then."""
        try:
            self._collect()
        finally:
            self._hide()
            super().reshard()

    def reduce(self) -> None:
        """Collective. As ShardGroup.reduce(), with the gradients that the module's parameters hold by now."""
        try:
            self._collect()
        finally:
            super().reduce()

    def abandon(self, reason: str) -> None:
        """Local. Breaks the group's gangs, so that peers do not wait, and drops the gradients of the module's parameters; the
        parameters are empty then."""
        if self._mesh is not None:
            self._mesh.abort(reason)
        self._hide()
        with suppress(GangwayError):  # the whole values go; what a broken gang cannot do is of no use any more
            super().reshard()

    def _collect(self) -> None:
        """Moves the gradients of the module's parameters into the group's."""
        self.add_gradients({name: _dense(p.grad) for name, p in self._own.items() if p.grad is not None})
        for parameter in self._own.values():
            parameter.grad = None

    @contextmanager
    def unsharded(self, into: Mapping[str, Array] | None = None) -> Iterator[dict[str, NewArray]]:
        """with group.unsharded(): loss(module(x)).backward(). If the block raises, its gradients are dropped."""
        full = self.unshard(into)
        try:
            yield full
        except BaseException:
            for parameter in self._own.values():
                parameter.grad = None
            raise
        finally:
            self.reshard()

    def _hide(self) -> None:
        self._hidden = True
        for parameter in self._own.values():
            parameter.grad = None
            parameter.data = parameter.data.new_empty(0)


def _nothing(*_: Any) -> None:
    """What a module that was pickled has in place of the hook below: no group holds its parameters."""


class _RefusesEmptyStateDict:
    """The module's own state_dict() has parameters without elements while they are sharded: a file of it would be lost work."""

    def __init__(self, module: str, group: weakref.ref[TorchGroup]) -> None:
        self._module, self._group = module, group

    def __call__(self, *_: Any) -> None:
        held = self._group()
        if held is not None and held._hidden:
            raise InvalidState(f"state_dict of {self._module}: its parameters are sharded and empty here; "
                               "gw.ShardGroup.module(group).state_dict() has the values, as has the module itself inside of "
                               "group.unsharded()")

    def __reduce__(self) -> str:
        return "_nothing"


def _refuse_empty_state_dicts(module: Any, group: weakref.ref[TorchGroup]) -> None:
    hook = _RefusesEmptyStateDict(type(module).__name__, group)
    for part in module.modules():
        part.register_state_dict_pre_hook(hook)


_MARK = "_gangway_sharded"  # of a parameter whose values a group has


def _dense(gradient: Any) -> Any:
    return (gradient.to_dense() if gradient.is_sparse else gradient).contiguous()


def shard(
    module: Any, gangs: Gangs | None = None, *, name: str | None = None, strategy: StrategyLike = "full_shard",
    reshard_after_forward: bool | None = None, param_dtype: DTypeLike = None, reduce_dtype: DTypeLike = None,
    output_dtype: DTypeLike = None, cast_forward_inputs: bool = True, cpu_offload: bool = False,
    prefetch_forward: int = 1, prefetch_backward: int = 1, accumulate_unsharded: bool | None = None,
    bucket_cap_mb: float = 25.0, dtype_rules: Mapping[str, DTypeLike] | None = None,
) -> TorchGroup:
    """Collective. The parameters of a torch.nn.Module, with their values (equal on every rank), as one shard group:

        group = gw.shard(module, gangs)
        opt = gw.AdamW(group, lr=1e-3)
        with group.unsharded():
            loss(module(x), y).backward()
        group.reduce()
        opt.step(scale=1 / gangs.size)

    Parameters that need no gradient are frozen, tied ones are one. Buffers stay whole and are the module's: each rank computes
    with its own, and state dicts, files and checkpoints have those of rank 0, which a load gives to all. So they have the names of
    module.state_dict(), each name of what is tied, too; what get_extra_state() gives is not among them. A bfloat16 or
    float16 module has f32 masters; in float16 multiply the loss by opt.loss_scale. `name`: stands before the names of the
    parameters in files, with a dot; None: they keep the module's own names. The other options are those of
    Module.parallelize(). A parameter is sharded once. For less memory, shard each block by itself, with its path as name."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise ImportError("gw.shard takes a PyTorch module, and PyTorch is not installed: pip install torch") from None
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module is a {type(module).__name__}, not a torch.nn.Module")
    label = name or type(module).__name__
    parameters: dict[str, Spec] = {}
    dtypes = set()
    tied = names_of_tied(module.named_parameters(remove_duplicate=False))
    for own, parameter in module.named_parameters():
        if getattr(parameter, _MARK, False):
            raise InvalidArgument(f"{own} of {label} is sharded already: a parameter belongs to one group")
        if torch.nn.parameter.is_lazy(parameter):
            raise InvalidArgument(f"{own} of {label} has no shape yet: run the module once, then shard it")
        if parameter.dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            raise InvalidArgument(f"{own} is {parameter.dtype}; shard takes float32, float64, bfloat16 and float16: convert the module, "
                                  "for example by module.bfloat16()")
        first = spec_of(parameter)
        parameters[own] = Spec(first.shape, first.dtype, first.init, frozen=not parameter.requires_grad, aliases=tied[own])
        dtypes.add(parameter.dtype)
    if not parameters:
        raise InvalidArgument(f"{label} has no parameters to shard")
    if len(dtypes) > 1:
        raise InvalidArgument(f"{label} has parameters of {' and '.join(sorted(map(str, dtypes)))}; a group computes in one "
                              "type: convert the module, or shard its parts")
    if param_dtype is None and dtypes <= {torch.bfloat16, torch.float16}:
        param_dtype = dtypes.pop()
    return TorchGroup(
        module, gangs, name or "", parameters, strategy=strategy, reshard_after_forward=reshard_after_forward,
        param_dtype=param_dtype, reduce_dtype=reduce_dtype, output_dtype=output_dtype,
        cast_forward_inputs=cast_forward_inputs, cpu_offload=cpu_offload, prefetch_forward=prefetch_forward,
        prefetch_backward=prefetch_backward, accumulate_unsharded=accumulate_unsharded, bucket_cap_mb=bucket_cap_mb,
        dtype_rules=dtype_rules)
