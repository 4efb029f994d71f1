"""Exceptions: one class for each status of the library, each with code, text, rank and peer."""

from __future__ import annotations

import errno
import os
from typing import Any

from . import _low
from .enums import Status


class GangwayError(Exception):
    """What a refused or failed call raises. `rank` and `peer` are relative to `gang`; -1: does not apply."""

    status: Status = Status.NONE

    def __init__(
        self, text: str, *, code: int | None = None, gang: str = "", rank: int = -1, peer: int = -1, op: str = "",
        system_error: int = 0, path: str = "",
    ) -> None:
        super().__init__(text)
        self.code: Status = type(self).status if code is None else Status(code)
        self.text = text
        self.gang = gang
        self.rank = rank
        self.peer = peer
        self.op = op
        self.system_error = system_error
        self.path = path


class InvalidArgument(GangwayError, ValueError):
    """The caller's arguments are wrong; the text names the argument and the reason."""

    status = Status.INVALID_ARGUMENT


class NotSupported(GangwayError, NotImplementedError):
    """Correct, but this build or engine cannot do it."""

    status = Status.NOT_SUPPORTED


class InvalidState(GangwayError, RuntimeError):
    """Too early or too late: the text names the call that is missing."""

    status = Status.INVALID_STATE


class GangFailed(GangwayError, RuntimeError):
    """A collective failed."""

    status = Status.GANG


class PeerLost(GangwayError, ConnectionError):
    """A rank died or left without shutdown."""

    status = Status.PEER_LOST


class Timeout(GangwayError, TimeoutError):
    """The gang's deadline passed; the gang is broken."""

    status = Status.TIMEOUT


class Mismatch(GangwayError, RuntimeError):
    """Ranks called different collectives."""

    status = Status.MISMATCH


class Aborted(GangwayError, RuntimeError):
    """abort() was called here or on a peer."""

    status = Status.ABORTED


class NotReady(GangwayError, TimeoutError):
    """The time of a wait ran out; nothing is broken."""

    status = Status.NOT_READY


class NotFound(GangwayError, KeyError):
    """No such parameter, state, gang or checkpoint: a LookupError, and the KeyError of model["nope"]."""

    status = Status.NOT_FOUND

    def __str__(self) -> str:
        return self.text


class Forked(GangwayError, RuntimeError):
    """Called in a forked child."""

    status = Status.FORKED


class CallerFailed(GangwayError, RuntimeError):
    """A callback or interrupt hook of another language failed; Python's own exceptions come back as themselves."""

    status = Status.CALLER


class OutOfMemory(GangwayError, MemoryError):
    """Memory is missing; the text has both numbers."""

    status = Status.OUT_OF_MEMORY


class FileFailed(GangwayError, OSError):
    """Reading or writing failed: `errno`, `strerror` and `filename` as of every OSError."""

    status = Status.IO

    def __init__(self, text: str, **facts: Any) -> None:
        super().__init__(text, **facts)
        if self.system_error:
            self.errno = self.system_error
            self.strerror = os.strerror(self.system_error)
        self.filename = self.path or None

    def __str__(self) -> str:
        return self.text


class FileMissing(FileFailed, FileNotFoundError):
    """A file or folder is not there; `filename` is it."""


class Corrupt(GangwayError, ValueError):
    """Bytes of a file are not what they should be."""

    status = Status.CORRUPT


class Internal(GangwayError, RuntimeError):
    """A fault of the library."""

    status = Status.INTERNAL


class Busy(GangwayError, RuntimeError):
    """Another thread is in a call on the same model, optimizer, dataset or the like. Nothing was done; take turns, for
    example by a `threading.Lock`."""

    status = Status.BUSY


BY_STATUS: dict[int, type[GangwayError]] = {
    kind.status: kind
    for kind in (
        InvalidArgument, NotSupported, InvalidState, GangFailed, PeerLost, Timeout, Mismatch, Aborted, NotReady,
        NotFound, Forked, CallerFailed, OutOfMemory, FileFailed, Corrupt, Internal, Busy,
    )
}


def make(
    code: int, text: str, gang: str, rank: int, peer: int, op: str, system_error: int, path: str = ""
) -> GangwayError:
    """The exception of a status; called by the low-level layer."""
    kind = BY_STATUS.get(code, GangwayError)
    if kind is FileFailed and system_error == errno.ENOENT:
        kind = FileMissing
    return kind(text, code=code, gang=gang, rank=rank, peer=peer, op=op, system_error=system_error, path=path)


_low.set_error_factory(make)
