"""Messages between two ranks: tags, receives from any rank, and the barrier that says who is missing.

The library keeps messages of an ordered pair of ranks in order. A message of tag 0 is the payload alone. One of another tag
has a header before it, of a type that no payload has; a receive of a tag takes the messages of its rank one after the
other and keeps those of other tags for later receives. A receive of tag 0 that meets a header is a MISMATCH, which names
both sides: receive tagged messages first that were sent first."""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from typing import Any

import torch
from torch import Tensor

from .. import _low as c
from .. import low
from ..enums import DType
from ..errors import InvalidArgument, Mismatch, NotReady, Timeout
from .tensors import raw
from .works import Steps

_HEADER = struct.Struct("<4q")  # tag, count, element type, 0
_HEADER_WORD, _HEADER_COUNT = int(DType.C128), 2  # complex tensors travel as pairs, so no payload is of this type
_NOTHING = torch.empty(0, dtype=torch.uint8)
BARRIER_TAG, RELEASE_TAG = -(1 << 40), -(1 << 40) - 1  # of monitored_barrier; a user's tags are 32 bits


class Inbox:
    """What one other rank has sent under tags. The n-th receive of a tag gets the n-th message of that tag, whichever
    receive reads it from the peer."""

    def __init__(self) -> None:
        self.asked: dict[int, int] = {}  # receives of a tag so far
        self.came: dict[int, int] = {}  # messages of a tag so far
        self.kept: dict[tuple[int, int], tuple[int, int, Tensor]] = {}  # by tag and number
        self.lock = threading.Lock()
        self.given_up: deque[tuple[int, int]] = deque()  # receives by tag and number; added without the lock

    def take_back(self) -> None:
        """Called under the lock. The next receive gets the message that an abandoned receive would have got."""
        while self.given_up:
            tag, number = self.given_up.pop()
            if self.asked[tag] == number + 1:
                self.asked[tag] = number


class Messages:
    """Sends and receives of a group by tag."""

    def __init__(self, handle: Any, rank: int, size: int) -> None:
        self._h, self._rank, self._size = handle, rank, size
        self._inboxes = [Inbox() for _ in range(size)]

    def check_peer(self, peer: int, call: str) -> None:
        """Refuses a rank outside of the group, and this very rank."""
        if not 0 <= peer < self._size:
            raise InvalidArgument(f"{call}: rank {peer} is outside [0, {self._size})")
        if peer == self._rank:
            raise InvalidArgument(f"{call}: rank {peer} is this rank itself")

    # --- sending

    def send(self, tensor: Tensor, peer: int, tag: int) -> list[Any]:
        """Handles of the sends; `tensor` is contiguous."""
        address, count, word = raw(tensor)
        handles = []
        if tag != 0:
            header = _HEADER.pack(tag, count, word, 0)
            handles.append(c.gw_gang_send_async(self._h, header, _HEADER_COUNT, _HEADER_WORD, peer, None))
        handles.append(c.gw_gang_send_async(self._h, address, count, word, peer, None))
        c.gw_work_attach(handles[-1], tensor, low.py_free)
        return handles

    # --- receiving

    def receive(self, tensor: Tensor, peer: int, tag: int) -> Steps:
        """Steps of a receive of `tag`, which is not 0, into a contiguous tensor."""
        box = self._inboxes[peer]
        with box.lock:
            box.take_back()
            number = box.asked.get(tag, 0)
            box.asked[tag] = number + 1
        return self._take(tensor, peer, tag, number)

    def _take(self, tensor: Tensor, peer: int, tag: int, number: int) -> Steps:
        box = self._inboxes[peer]
        handle, over = None, False
        try:
            while handle is None and not over:
                yield None
                with box.lock:
                    handle, over = self._try(box, peer, tag, number, tensor)
        finally:
            if handle is None and not over:
                box.given_up.append((tag, number))  # no lock: a collection of garbage may run this while it is held
        if handle is not None:
            yield handle

    def _try(self, box: Inbox, peer: int, tag: int, number: int, tensor: Tensor) -> tuple[Any, bool]:
        """Under the box's lock. Receives message `number` of this tag: a handle while its payload travels into
        `tensor`; True where an earlier call had received and kept it. Messages before it are received and kept."""
        kept = box.kept.pop((tag, number), None)
        if kept is not None:
            self._hand_over(kept, tensor, peer, tag)
            return None, True
        while self._has_header(peer):
            found, count, word = self._read_header(peer)
            place = (found, box.came.get(found, 0))
            box.came[found] = place[1] + 1
            if place == (tag, number):
                address, own_count, own_word = self._fits(tensor, count, word, peer, tag)
                return c.gw_gang_recv_async(self._h, address, own_count, own_word, peer, None), False
            data = torch.empty(count * int(c.gw_dtype_bytes(word)), dtype=torch.uint8)
            c.gw_gang_recv(self._h, data.data_ptr(), count, word, peer, None)
            box.kept[place] = (count, word, data)
        return None, False

    def _has_header(self, peer: int) -> bool:
        ready, count, word = c.gw_gang_probe(self._h, peer)
        if ready and (word != _HEADER_WORD or count != _HEADER_COUNT):
            return False  # a message of tag 0 comes first: its receive takes it
        return bool(ready)

    def _read_header(self, peer: int) -> tuple[int, int, int]:
        header = bytearray(_HEADER.size)
        c.gw_gang_recv(self._h, header, _HEADER_COUNT, _HEADER_WORD, peer, None)
        tag, count, word, _ = _HEADER.unpack(header)
        return tag, count, word

    def _fits(self, tensor: Tensor, count: int, word: int, peer: int, tag: int) -> tuple[int, int, int]:
        address, own_count, own_word = raw(tensor)
        if (own_count, own_word) != (count, word):
            text = (f"recv of {own_count} {c.gw_dtype_name(own_word)} on rank {self._rank} meets send of {count} "
                    f"{c.gw_dtype_name(word)} of tag {tag} on rank {peer}")
            c.gw_gang_abort(self._h, text)
            raise Mismatch(text)
        return address, own_count, own_word

    def _hand_over(self, kept: tuple[int, int, Tensor], tensor: Tensor, peer: int, tag: int) -> None:
        count, word, data = kept
        self._fits(tensor, count, word, peer, tag)
        tensor.view(-1).view(torch.uint8).copy_(data)

    # --- from any rank

    def receive_any(self, tensor: Tensor, tag: int, note: Any) -> Steps:
        """Steps of a receive from whichever rank sends first; note(rank) says which."""
        while True:
            for peer in range(self._size):
                if peer == self._rank:
                    continue
                box = self._inboxes[peer]
                with box.lock:
                    handle, over = self._try_any(box, peer, tag, tensor)
                if handle is None and not over:
                    continue
                note(peer)
                if handle is not None:
                    yield handle
                return
            yield None

    def _try_any(self, box: Inbox, peer: int, tag: int, tensor: Tensor) -> tuple[Any, bool]:
        if tag != 0:
            box.take_back()
            number = box.asked.get(tag, 0)  # behind the receives that name this rank
            handle, over = self._try(box, peer, tag, number, tensor)
            if handle is not None or over:
                box.asked[tag] = number + 1
            return handle, over
        ready, count, word = c.gw_gang_probe(self._h, peer)
        if not ready or (word == _HEADER_WORD and count == _HEADER_COUNT):
            return None, False
        address, own_count, own_word = raw(tensor)
        return c.gw_gang_recv_async(self._h, address, own_count, own_word, peer, None), False

    # --- the barrier that names who is missing

    def monitored_barrier(self, seconds: float, all_ranks: bool) -> None:
        """Rank 0 waits for every rank, then lets all go on; the text of a failure names ranks, as Gloo's does."""
        limit = time.monotonic() + seconds
        if self._rank == 0:
            self._monitor(limit, round(seconds * 1000), all_ranks)
            return
        self._wait_all(self.send(_NOTHING, 0, BARRIER_TAG), limit)
        if not self._until(self.receive(_NOTHING, 0, RELEASE_TAG), limit):
            raise Timeout(f"[Rank {self._rank}]: Rank {self._rank} successfully reached monitoredBarrier, but received errors "
                          f"while waiting for send/recv from rank 0: it did not answer within {round(seconds * 1000)} ms; its "
                          "own error names the rank that is missing")

    def _monitor(self, limit: float, milliseconds: int, all_ranks: bool) -> None:
        """Rank 0's part."""
        missing: list[int] = []
        for peer in range(1, self._size):
            if time.monotonic() > limit and not missing:
                raise Timeout(f"[Rank 0]: Rank 0 timed out in monitoredBarrier after {milliseconds} ms; ranks below {peer} "
                              "came")
            if not self._until(self.receive(_NOTHING, peer, BARRIER_TAG), limit):
                missing.append(peer)
                if not all_ranks:
                    break
        if missing:
            who = f"Rank {missing[0]}" if len(missing) == 1 else f"Ranks {', '.join(map(str, missing))}"
            raise Timeout(f"[Rank 0]: {who} failed to pass monitoredBarrier in {milliseconds} ms")
        for peer in range(1, self._size):
            self._wait_all(self.send(_NOTHING, peer, RELEASE_TAG), limit)

    @staticmethod
    def _until(steps: Steps, limit: float) -> bool:
        """Takes the steps; False: not in time."""
        try:
            for handle in steps:
                if handle is not None:
                    c.gw_work_wait(handle, -1)
                elif time.monotonic() > limit:
                    return False
                else:
                    time.sleep(0.0002)
            return True
        finally:
            steps.close()  # type: ignore[attr-defined]

    @staticmethod
    def _wait_all(handles: list[Any], limit: float) -> None:
        """A message that rank 0 takes too late is no failure of this rank."""
        for handle in handles:
            try:
                c.gw_work_wait(handle, max(1, int((limit - time.monotonic()) * 1000)))
            except NotReady:
                return
