"""The backend `gangway` of torch.distributed:

    import gangway.torch
    torch.distributed.init_process_group("gangway")                  # or "cpu:gangway,cuda:nccl"

Ranks of one host, started by torchrun, gangrun or by hand, meet through PyTorch's own store. DDP, FSDP2, DTensor, tensor
parallelism, pipelining and DCP run on it as they do on Gloo."""

from __future__ import annotations

from typing import Any, Sequence

try:
    import torch
    import torch.distributed as dist
    from torch._C import _distributed_c10d as _c10d
except ImportError as error:
    raise ImportError(f"gangway.torch needs PyTorch with torch.distributed: pip install torch ({error})") from error
if not hasattr(_c10d.Backend, "all_gather_single"):
    raise ImportError(f"gangway.torch needs PyTorch 2.15 or later, whose backends may be written in Python; this is "
                      f"{torch.__version__}")

from ..errors import InvalidState
from .backend import NAME, Backend
from .memory import empty as _empty
from .registration import make, process_group_of


def register() -> None:
    """Makes the backend known by name. PyTorch calls it for "gangway" where the package is installed; importing this does it,
    too."""
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, make, extended_api=True, devices=["cpu"])


register()


def backend_of(group: dist.ProcessGroup | None = None) -> Backend:
    """The backend of a group, None: of the default one."""
    found = (group or dist.group.WORLD)
    if found is None:
        raise InvalidState("gangway.torch: torch.distributed has no process group: call init_process_group first")
    backend = found._get_backend(torch.device("cpu"))
    if not isinstance(backend, Backend):
        raise InvalidState(f"gangway.torch: the group's CPU backend is {type(backend).__name__}, not gangway")
    return backend


def empty(shape: Sequence[int], dtype: torch.dtype = torch.float32, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """An uninitialised CPU tensor in memory that the ranks of `group` (None: the default one) reach directly: its collectives
    copy nothing first, which makes large ones two to four times as fast. Memory that it gave back is used again."""
    return _empty(backend_of(group)._pool, shape, dtype)


def gang_of(group: dist.ProcessGroup | None = None) -> Any:
    """The gangway.Gang behind a group."""
    return backend_of(group).gang


__all__ = ["Backend", "backend_of", "empty", "gang_of", "process_group_of", "register"]
