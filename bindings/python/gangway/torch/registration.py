"""How PyTorch gets its process groups: a new one by name, or one over a gang that is there."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ..errors import InvalidState
from ..gang import Gang
from .backend import NAME, Backend, name_of
from .group import Group
from .meeting import meet

_numbers = itertools.count()
_PATIENCE = timedelta(minutes=15)  # as of a gang; its own deadline may be shorter, and holds then


def make(options: Any, given: Any = None) -> Any:
    """What register_backend calls for each new group."""
    timeout = options.timeout
    gang = meet(options.store, options.group_rank, options.group_size, timeout, name_of(options.group_id))
    backend = Backend(gang, timeout, options.group_id)
    backend._options.global_ranks_in_group = options.global_ranks_in_group
    if alone(options):
        return Group(options.store, backend)
    return backend


def alone(options: Any) -> bool:
    """Whether this backend is all that the group has. PyTorch does not tell; a host without an accelerator has no tensors for
    another one."""
    host_alone = torch.accelerator.current_accelerator(check_available=True) is None
    return host_alone and options.process_group._get_backend_name() == "custom"


def process_group_of(gang: Gang) -> Group:
    """Collective. A process group over the ranks of a gang, with a traffic of its own. torch.distributed knows it as one of
    new_group(): its ranks are numbered as in the default group, which has to be there."""
    if not dist.is_initialized():
        raise InvalidState('torch.distributed has no default group, by which it numbers ranks: init_process_group("gangway") comes '
                           "before as_process_group()")
    ranks = gang.all_gather_objects(dist.get_rank())
    name = f"gangway {gang.name} {next(_numbers)}"
    backend = Backend(gang.duplicate(), _PATIENCE, name)
    backend._options.global_ranks_in_group = ranks
    store = dist.HashStore()
    group = Group(store, backend)
    group._set_group_name(name)
    group._set_group_desc(f"over {gang!r}")
    c10d._register_pg_in_world(group, NAME, store, name, f"cpu:{NAME}",
                               rank_mapping={rank: i for i, rank in enumerate(ranks)})
    return group
