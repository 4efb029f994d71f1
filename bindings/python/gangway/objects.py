"""Objects over a gang of bytes: bytes as they are, JSON where it gives back an equal object, pickle when allowed. A rank
that cannot send says so to all, so that no one waits for it."""

from __future__ import annotations

import json
import pickle
from typing import Any, Iterator

import numpy as np

from . import _low as c
from .calls import Checks
from .errors import InvalidArgument
from .structs import told

_BYTES, _JSON, _PICKLE, _REFUSED = b"b", b"j", b"p", b"r"


def _encode(thing: Any, rank: int, allow_pickle: bool) -> bytes:
    if isinstance(thing, bytes):
        return _BYTES + thing
    try:
        text = json.dumps(thing)
        if json.loads(text) == thing:
            return _JSON + text.encode()
    except (TypeError, ValueError, RecursionError):
        pass
    if not allow_pickle:
        return _REFUSED + (f"rank {rank}: a {type(thing).__name__} is neither bytes nor what JSON gives back equal; "
                           f"pass allow_pickle=True if all ranks are trusted").encode()
    try:
        return _PICKLE + pickle.dumps(thing)
    except Exception as error:  # whatever __reduce__ raises
        return _REFUSED + f"rank {rank}: a {type(thing).__name__} cannot be pickled: {told(error)}".encode()


def _decode(message: bytes, allow_pickle: bool) -> Any:
    kind, content = message[:1], message[1:]
    if kind == _BYTES:
        return content
    if kind == _JSON:
        return json.loads(content)
    if kind == _REFUSED:
        raise InvalidArgument(content.decode())
    if not allow_pickle:
        raise InvalidArgument("a peer sent a pickle, and this rank did not say allow_pickle=True")
    return pickle.loads(content)


def _take(owned: Any) -> bytes:
    size = c.gw_bytes_size(owned)
    return bytes(size) if size == 0 else bytes(_memory(owned, size))


def _memory(owned: Any, size: int) -> memoryview:
    return np.from_dlpack(c.make_view(c.gw_bytes_data(owned), (size,), c.GW_U8, owned)).data


def broadcast(gang: Checks, thing: Any, root: int, allow_pickle: bool) -> Any:
    """The root's object on every rank."""
    message = _encode(thing, root, allow_pickle) if gang.rank == root else b""
    return _decode(_take(c.gw_gang_broadcast_bytes(gang._h, message, len(message), root)), allow_pickle)


def broadcast_list(gang: Checks, things: list[Any], root: int, allow_pickle: bool) -> None:
    """The root's objects in place of those of the list, on every rank."""
    message = b""
    if gang.rank == root:
        for one in (_encode(thing, root, allow_pickle) for thing in things):
            message += len(one).to_bytes(8, "little") + one
    found = _take(c.gw_gang_broadcast_bytes(gang._h, message, len(message), root))
    made = [_decode(one, allow_pickle) for one in _parts(found)]
    if gang.rank != root:
        things[:] = made


def _parts(together: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(together):
        end = start + 8 + int.from_bytes(together[start : start + 8], "little")
        yield together[start + 8 : end]
        start = end


def all_gather(gang: Checks, thing: Any, allow_pickle: bool) -> list[Any]:
    """Every rank's object, by rank."""
    message = _encode(thing, gang.rank, allow_pickle)
    sizes = bytearray(8 * gang.size)
    together = _take(c.gw_gang_all_gather_bytes(gang._h, message, len(message), sizes))
    things, start = [], 0
    for size in memoryview(sizes).cast("Q"):
        things.append(together[start : start + size])
        start += size
    refusals = [t for t in things if t[:1] == _REFUSED]
    return [_decode(t, allow_pickle) for t in (refusals or things)]


def agree(gang: Checks | None, refusal: Exception | None) -> None:
    """Collective, before calls that change something: if a rank refuses, every rank gets what the lowest of them says.
    No gang: one rank."""
    if gang is None or gang.size == 1:
        if refusal is not None:
            raise refusal
        return
    for words in all_gather(gang, "" if refusal is None else f"rank {gang.rank}: {refusal}", False):
        if words:
            raise InvalidArgument(words) from refusal
