"""Arrays of NumPy: types that NumPy has from the package ml_dtypes (bfloat16, float8), and masked arrays, which are refused."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from . import _low as c
from ._low import View
from .enums import DType
from .errors import InvalidArgument, NotSupported

Ndarray = np.ndarray[Any, Any]
_EXTRA = {DType.BF16: "bfloat16", DType.F8_E4M3: "float8_e4m3fn", DType.F8_E5M2: "float8_e5m2"}
_CODES = {name: dtype for dtype, name in _EXTRA.items()}
_FIRST_OF_USERS = 256  # NumPy's own types have lower numbers


def extra_dtype(dtype: int) -> np.dtype[Any] | None:
    """The type of ml_dtypes for an element type that NumPy does not have; None: NumPy has it."""
    name = _EXTRA.get(DType(dtype))
    if name is None:
        return None
    try:
        made: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
        return made
    except ImportError:
        raise NotSupported(f"NumPy has {name} by the package ml_dtypes alone, which is not installed: install it, or take "
                           'arrays of another framework, for example kind="torch"') from None


def borrow_numpy(array: Ndarray, name: str, wants: int) -> View:
    """A view of an array's own memory."""
    if type(array) is not np.ndarray:
        refuse_masked(array, name)
    code = DType.NONE
    if array.dtype.num >= _FIRST_OF_USERS and array.dtype.name in _CODES:  # DLPack does not know the type
        code = _CODES[array.dtype.name]
        array = array.view(np.uint8 if array.dtype.itemsize == 1 else np.uint16)
    view: View = c.borrow(array, name, wants, code)
    return view


def refuse_masked(array: Any, name: str) -> None:
    """A masked array is refused: its mask would be lost."""
    module = sys.modules.get("numpy.ma")
    if module is not None and isinstance(array, module.MaskedArray):
        raise InvalidArgument(f"{name} is a masked array, whose mask would be lost: give {name}.filled(value), or {name}.data "
                              "where the mask does not matter")


class _Words:
    """A view as unsigned integers of the size of its elements."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __dlpack__(self, **asked: Any) -> Any:
        return self._view.__dlpack__(words=True, **asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._view.__dlpack_device__()


def as_ndarray(view: View) -> Ndarray:
    """The memory of a view, which lies on the host, as an array."""
    dtype = extra_dtype(view.dtype)
    if dtype is None:
        return np.from_dlpack(view)
    made: Ndarray = np.from_dlpack(_Words(view)).view(dtype)
    return made


def to_array(view: View, dtype: Any = None, copy: bool | None = None) -> Ndarray:
    """What np.asarray(view) gives."""
    if view.stream is not None:
        raise InvalidArgument(f"the memory lies on {view.device}, where NumPy computes nothing: take a copy on the host, by "
                              'to("numpy") of a Tensor, or PyTorch\'s from_dlpack(view).cpu()')
    array = as_ndarray(view)
    if dtype is not None and np.dtype(dtype) != array.dtype:
        if copy is False:
            raise ValueError(f"the memory is {array.dtype}: {np.dtype(dtype)} takes a copy, which copy=False forbids")
        return array.astype(dtype)
    return array.copy() if copy else array
