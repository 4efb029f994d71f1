"""The backend `gangway` of torch.distributed, for CPU tensors of ranks on one host."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import _distributed_c10d as c10d

from .. import _low as c
from ..errors import Aborted, GangwayError, Timeout
from ..gang import Gang
from .collectives import Collectives
from .failures import telling
from .meeting import meet
from .memory import Pool, empty
from .messages import Messages

NAME = "gangway"
CPU = torch.device("cpu")


class Backend(Collectives, c10d.Backend):  # type: ignore[misc]
    """What PyTorch calls for CPU tensors. Each group is a gang of its own, whose ranks met through the group's store."""

    def __init__(self, gang: Gang, timeout: timedelta, group: str) -> None:
        c10d.Backend.__init__(self, gang.rank, gang.size)
        self._gang = gang
        self._h = gang._h
        self._rank, self._size = gang.rank, gang.size
        self._messages = Messages(self._h, self._rank, self._size)
        self._pool = Pool(self._h)
        self._timeout = timeout
        self._patience = None
        self._options = c10d.Backend.Options(NAME, timeout)
        self._options.group_name = group

    # --- facts

    def getBackendName(self) -> str:
        """In texts of PyTorch."""
        return NAME

    @property
    def options(self) -> Any:
        """The options that it was made with."""
        return self._options

    @property
    def gang(self) -> Gang:
        """The gang behind it: traffic(), flight_record(), and what c10d has no name for."""
        return self._gang

    def get_error(self) -> Any:
        """Whether the group is broken, and how."""
        try:
            self._gang.check()
        except Timeout:
            return c10d.ErrorType.TIMEOUT
        except Aborted:
            return c10d.ErrorType.REMOTE_ERROR
        except GangwayError:
            return c10d.ErrorType.COMM_ERROR
        return c10d.ErrorType.SUCCESS

    def _get_sequence_number_for_group(self) -> int:
        return self._calls

    def _set_sequence_number_for_group(self) -> None:
        """They start at 0 on every rank."""

    # --- time-outs

    def set_timeout(self, timeout: timedelta) -> None:
        """Of calls from now on. The gang's own deadline, which ends with the group, stays: a longer one has no effect."""
        self._patience = timeout if timeout < self._timeout else None
        self._options._timeout = timeout

    _set_default_timeout = set_timeout

    # --- what it can do; PyTorch asks for each of these

    supports_splitting = property(lambda self: True)
    supports_coalescing = property(lambda self: False)
    supports_shrinking = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    _supports_time_estimate = property(lambda self: False)

    # --- other groups

    def split(self, store: dist.Store, ranks: list[int], options: Any) -> Backend | None:
        """The backend of a group of these ranks of this one; None: this rank is not among them."""
        if self._rank not in ranks:
            return None
        timeout = options._timeout if options is not None else self._timeout
        group = options.group_name if options is not None else ""
        gang = meet(store, ranks.index(self._rank), len(ranks), timeout, name_of(group))
        return Backend(gang, timeout, group)

    # --- memory

    def supports_tensor_alloc(self, device: Any) -> bool:
        """FSDP2 takes its buffers here when it is asked to (set_allocate_memory_from_process_group_for_comm)."""
        return not isinstance(device, torch.device) or device.type == "cpu"

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        """One dim, in memory that the group's ranks reach directly."""
        return empty(self._pool, (size,), dtype)

    # --- ends

    def monitored_barrier(self, options: Any, wait_all_ranks: bool = False) -> None:
        """A barrier that names the ranks that are missing; all ranks fail then, and the group can go on."""
        timeout = options if isinstance(options, timedelta) else options.timeout
        seconds = timeout.total_seconds()
        with telling():
            self._messages.monitored_barrier(seconds if seconds >= 0 else self._timeout.total_seconds(), wait_all_ranks)

    def abort(self) -> None:
        """Breaks the group: calls in flight fail here and on the peers."""
        self._gang.abort(f"rank {self._rank} aborted the process group (pid {os.getpid()})")

    def shutdown(self) -> None:
        """Leaves the group without waiting for anyone, as destroy_process_group does: peers that still need this rank are told
        that it has left."""
        self._gang.release()
        self._h = self._messages._h = self._pool._h = c.RELEASED


def name_of(group: str) -> str:
    """A gang's name in errors."""
    return f"{NAME} group {group[:24]}" if group else f"{NAME} group"
