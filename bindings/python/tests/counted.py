"""Counts what a process holds: tensors of the library, blocks of malloc, Python's objects, mappings, descriptors."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from pathlib import Path
from typing import Callable

import gangway as gw
from gangway.level import LIBRARY

_libc = ctypes.CDLL(None)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


class _Allocator(ctypes.Structure):
    """gw_allocator."""

    ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    DEALLOCATE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    _fields_ = [("struct_size", ctypes.c_size_t), ("next", ctypes.c_void_p), ("allocate", ALLOCATE),
                ("deallocate", DEALLOCATE), ("user", ctypes.c_void_p), ("free_user", ctypes.c_void_p)]


class Tensors:
    """The library's ordinary host memory of tensors, from now on: its blocks by address."""

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}
        self.all = 0
        self._allocator = _Allocator(ctypes.sizeof(_Allocator), None, _Allocator.ALLOCATE(self._allocate),
                                     _Allocator.DEALLOCATE(self._deallocate), None, None)
        library = ctypes.CDLL(str(Path(gw.__file__).with_name(LIBRARY)))
        assert library.gw_allocator_set(ctypes.byref(self._allocator)) == 0

    def _allocate(self, user: object, size: int, alignment: int) -> int:
        address: int = _libc.aligned_alloc(alignment, size)
        self.blocks[address] = size
        self.all += 1
        return address

    def _deallocate(self, user: object, address: int, size: int) -> None:
        assert self.blocks.pop(address) == size
        _libc.free(address)


def sanitized() -> bool:
    """Whether the address sanitizer counts."""
    return hasattr(_libc, "__sanitizer_get_current_allocated_bytes")


def _allocated() -> dict[str, int]:
    """Blocks and bytes that malloc has handed out, by count_malloc.c, which is preloaded; or bytes by the sanitizer."""
    if sanitized():
        _libc.__sanitizer_get_current_allocated_bytes.restype = ctypes.c_size_t
        return {"blocks": 0, "bytes": int(_libc.__sanitizer_get_current_allocated_bytes())}
    blocks, held = ctypes.c_long(), ctypes.c_long()
    _libc.count_malloc(ctypes.byref(blocks), ctypes.byref(held))
    return {"blocks": blocks.value, "bytes": held.value}


def _mapped() -> dict[str, int]:
    """Of files and memory without a name; how much of it is resident is the system's affair."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    pages = int(Path("/proc/self/statm").read_text().split()[5])  # private and writable
    return {"files": sum("/" in line for line in lines), "mapped": 0 if sanitized() else pages * os.sysconf("SC_PAGESIZE"),
            "descriptors": len(os.listdir("/proc/self/fd"))}


def growth(action: Callable[[], object], first: int, rounds: int) -> dict[str, int]:
    """What `rounds` rounds leave behind, after the first ones."""
    tensors = Tensors()

    def state() -> dict[str, int]:
        gc.collect()
        return {"tensors": len(tensors.blocks), "tensor_bytes": sum(tensors.blocks.values()),
                "objects": sys.getallocatedblocks(), **_allocated(), **_mapped()}

    for _ in range(first):
        action()
    before = state()
    before = state()  # counts the one before, as the last one counts this
    for _ in range(rounds):
        action()
    return {name: count - before[name] for name, count in state().items()} | {"tensors_seen": tensors.all}
