"""How the ranks of a process group meet: through PyTorch's own store, under any launcher."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch.distributed import Store

from ..gang import Gang
from .failures import telling


class _Exchange:
    """An all-gather of bytes over a store: the one exchange by which a gang's ranks find each other."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        self._store, self._rank, self._size, self._timeout = store, rank, size, timeout

    def __call__(self, mine: bytes) -> list[bytes]:
        # A store may outlive a group, whose name then comes again: the n-th group of all ranks has keys of its own.
        round_ = (self._store.add("gangway/came", 1) - 1) // self._size
        keys = [f"gangway/{round_}/{r}" for r in range(self._size)]
        # As hexadecimal digits: what a store keeps as a text comes back the same from every kind of store.
        self._store.set(keys[self._rank], mine.hex())
        self._store.wait(keys, self._timeout)
        return [bytes.fromhex(self._store.get(key).decode()) for key in keys]


def meet(store: Store, rank: int, size: int, timeout: timedelta, name: str, **options: Any) -> Gang:
    """Collective. The gang of a process group; `options` are Gang.create()'s."""
    seconds = timeout.total_seconds()
    with telling():
        if size == 1:
            return Gang.create(rank=0, size=1, engine="self", name=name, timeout=seconds, threads=1)
        return Gang.create(rank=rank, size=size, name=name, timeout=seconds, threads=1,
                           all_gather=_Exchange(store, rank, size, timeout), **options)
