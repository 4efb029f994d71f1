"""Counts what a process holds: tensors of the library, allocated memory, Python's objects, resident pages."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from pathlib import Path
from typing import Callable

import gangway as gw

_libc = ctypes.CDLL(None)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


class _MallInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "mapped", "usmblks", "fsmblks",
                                                     "used", "free", "keepcost")]


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
        library = ctypes.CDLL(str(Path(gw.__file__).with_name("libgangway.so.1")))
        assert library.gw_allocator_set(ctypes.byref(self._allocator)) == 0

    def _allocate(self, user: object, size: int, alignment: int) -> int:
        address: int = _libc.aligned_alloc(alignment, size)
        self.blocks[address] = size
        self.all += 1
        return address

    def _deallocate(self, user: object, address: int, size: int) -> None:
        assert self.blocks.pop(address) == size
        _libc.free(address)


def _allocated() -> int:
    """Bytes in use, by the C library's count or the address sanitizer's."""
    count = getattr(_libc, "__sanitizer_get_current_allocated_bytes", None)
    if count is not None:
        count.restype = ctypes.c_size_t
        return int(count())
    _libc.mallinfo2.restype = _MallInfo
    info = _libc.mallinfo2()
    return int(info.used + info.mapped)


def _resident() -> int:
    if hasattr(_libc, "__sanitizer_get_current_allocated_bytes"):
        return 0  # its quarantine is resident
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def growth(action: Callable[[], object], rounds: int) -> dict[str, int]:
    """What `rounds` rounds leave behind, after some to warm up."""
    tensors = Tensors()

    def state() -> dict[str, int]:
        gc.collect()
        return {"tensors": len(tensors.blocks), "tensor_bytes": sum(tensors.blocks.values()), "allocated": _allocated(),
                "objects": sys.getallocatedblocks(), "resident": _resident()}

    for _ in range(rounds // 10):
        action()
    before = state()
    for _ in range(rounds):
        action()
    return {name: count - before[name] for name, count in state().items()} | {"tensors_seen": tensors.all}
