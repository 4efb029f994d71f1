"""Tensors in memory that the ranks of a group reach directly: collectives on them copy nothing first."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Sequence

import torch
from torch import Tensor

from .. import _low as c
from ..errors import InvalidArgument
from .failures import telling
from .tensors import WORDS

_LEAST = 4096  # bytes; smaller blocks share a size
_KEPT = 1 << 30  # bytes that a pool keeps for the next tensors of these sizes


class Pool:
    """Blocks of one gang's memory. A block that a tensor gave back is kept for the next one of its size, because its pages
    are there already. Any thread may take and give. There is no lock: a collection of garbage may end a tensor, and so give
    a block, in the middle of either."""

    def __init__(self, handle: Any) -> None:
        self._h = handle
        self._free: dict[int, deque[int]] = {}  # a deque's append and pop are atomic

    def take(self, bytes: int) -> tuple[int, int]:
        """Address and size of a block of at least so many bytes."""
        size = max(_LEAST, 1 << (bytes - 1).bit_length()) if bytes <= 1 << 20 else -(-bytes // (1 << 20)) << 20
        try:
            return self._free.setdefault(size, deque()).pop(), size
        except IndexError:
            pass
        with telling():
            return int(c.gw_gang_alloc(self._h, size)), size

    def give(self, address: int, size: int) -> None:
        """A block back. Its size has been taken before."""
        if size + sum(n * len(blocks) for n, blocks in list(self._free.items())) <= _KEPT:
            self._free[size].append(address)
        else:
            c.gw_gang_free(None, address)

    def __del__(self) -> None:
        for blocks in self._free.values():
            for address in blocks:
                c.gw_gang_free(None, address)


class _Block:
    """Memory of one tensor, back in its pool with the last view of it."""

    def __init__(self, pool: Pool, bytes: int) -> None:
        self._pool = pool
        self.address, self._size = pool.take(bytes)

    def __del__(self) -> None:
        self._pool.give(self.address, self._size)


def empty(pool: Pool, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor in memory of the pool."""
    word = WORDS.get(dtype)
    if word is None:
        raise InvalidArgument(f"empty: {dtype} has no word in the library; make bytes (torch.uint8) and view them")
    dims = tuple(int(n) for n in shape)
    if min(dims, default=0) < 0:
        raise InvalidArgument(f"empty: shape is {dims}: a dim is below 0")
    bytes = math.prod(dims) * int(c.gw_dtype_bytes(word))
    if bytes == 0:
        return torch.empty(dims, dtype=dtype)
    block = _Block(pool, bytes)
    return torch.from_dlpack(c.make_view(block.address, dims, word, block))
