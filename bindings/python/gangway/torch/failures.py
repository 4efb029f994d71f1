"""The library's failures as PyTorch's."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

from torch.distributed import DistBackendError

from ..errors import (
    Aborted, Forked, GangFailed, GangwayError, Internal, InvalidState, Mismatch, NotReady, PeerLost, Timeout,
)

OF_THE_GROUP = (Aborted, Forked, GangFailed, Internal, InvalidState, Mismatch, NotReady, PeerLost, Timeout)
"""Failures that are not the arguments' fault: DistBackendError, as of PyTorch's own backends. Refused arguments stay
ValueError, NotImplementedError and MemoryError."""


def told(error: BaseException) -> BaseException:
    """What the caller of torch.distributed sees; the library's own error is its __cause__."""
    if not isinstance(error, OF_THE_GROUP):
        return error
    late = isinstance(error, (Timeout, NotReady)) and "timeout" not in error.text
    seen = DistBackendError(f"{error.text}: the timeout has passed" if late else error.text)  # the word that programs look for
    seen.__cause__ = error
    return seen


@contextmanager
def telling() -> Iterator[None]:
    """Turns the library's failures of the block into PyTorch's."""
    try:
        yield
    except GangwayError as error:
        seen = told(error)
        if seen is error:
            raise
        raise seen from error
