"""The process group of a host without accelerators: calls from Python go straight to the backend, and works are its own.
PyTorch's dispatcher, which other groups go through, would hide whether a work is done (its works of Python backends never
say so) and costs more than a small call. Dispatch modes, as CommDebugMode, still see every call."""

from __future__ import annotations

from datetime import timedelta
from types import CodeType
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .backend import CPU, NAME, Backend

_OPTIONS: dict[str, Any] = {
    "allreduce": c10d.AllreduceOptions, "allreduce_coalesced": c10d.AllreduceCoalescedOptions, "reduce": c10d.ReduceOptions,
    "reduce_scatter": c10d.ReduceScatterOptions, "reduce_scatter_single": c10d.ReduceScatterOptions,
    "reduce_scatter_single_coalesced": c10d.ReduceScatterOptions, "allgather": c10d.AllgatherOptions,
    "all_gather_single": c10d.AllgatherOptions, "all_gather_single_coalesced": c10d.AllgatherOptions,
    "gather": c10d.GatherOptions, "broadcast": c10d.BroadcastOptions, "scatter": c10d.ScatterOptions,
    "all_to_all_single": c10d.AllToAllOptions, "alltoall": c10d.AllToAllOptions, "barrier": c10d.BarrierOptions,
    "send": int, "recv": int, "recv_anysource": int,
}


_is_compiling: Callable[[], bool] = torch.compiler.is_dynamo_compiling
_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack  # of those who look at the dispatcher's calls


def _direct(name: str, kind: Any) -> Callable[..., Any]:
    """c10d's form of a call, which torch.distributed uses, goes to the backend; its other forms go the long way."""
    base = getattr(dist.ProcessGroup, name)

    def call(self: Group, *arguments: Any, **named: Any) -> Any:
        # torch.compile knows a process group as an opaque object and traces the call of its base class alone.
        if _is_compiling() or named or not arguments or not isinstance(arguments[-1], kind) or _modes():
            return base(self, *arguments, **named)
        return getattr(self._backend, name)(*arguments)

    # PyTorch knows by the function's name that a call comes out of this one, and does not call it again.
    code: CodeType = call.__code__
    call.__code__ = code.replace(co_name=name)
    call.__name__ = name
    call.__doc__ = getattr(Backend, name).__doc__
    return call


class Group(dist.ProcessGroup):  # type: ignore[misc]
    """A process group whose only backend is `gangway`."""

    def __init__(self, store: dist.Store, backend: Backend) -> None:
        super().__init__(store, backend._rank, backend._size)
        self._backend = backend
        kind = dist.ProcessGroup.BackendType.CUSTOM
        self._register_backend(CPU, kind, backend)
        self._set_default_backend(kind)

    def getBackendName(self) -> str:
        """In texts of PyTorch."""
        return NAME

    def split_group(self, *arguments: Any, **named: Any) -> Group | None:
        """A group of some of the ranks, as torch.distributed.split_group makes it."""
        made = super().split_group(*arguments, **named)
        if made is None:
            return None
        group = Group(made.get_group_store(), made._get_backend(CPU))
        group._set_group_name(made.group_name)
        group._set_group_desc(made.group_desc)
        return group

    def monitored_barrier(self, timeout: timedelta, wait_all_ranks: bool = False) -> None:
        """As Backend.monitored_barrier()."""
        self._backend.monitored_barrier(timeout, wait_all_ranks)

    def recvAnysource(self, tensors: list[torch.Tensor], tag: int) -> Any:
        """What C++ calls."""
        return self._backend.recv_anysource(tensors, tag)


for _name, _kind in _OPTIONS.items():
    setattr(Group, _name, _direct(_name, _kind))
