"""Descriptions of parameters of custom modules and shard groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from . import _low as c
from . import low
from ._low import View
from .arrays import FLOATING, Array, as_numpy, dtype_of
from .enums import DType, Init
from .errors import InvalidArgument
from .members import member
from .names import InitLike
from .numpy_arrays import as_ndarray
from .structs import block, struct

Fill = Callable[[int, int], Array]


@dataclass(frozen=True)
class Spec:
    """A parameter that the library will create. `init`: "normal", "zeros", "ones", or a function (first_row, last_row)
    -> rows. `dtype` None: f32 in shard groups, the model's in custom modules. An array instead of a Spec gives an f64
    parameter when it is f64, else an f32 one, also of integers and half precisions. In shard groups: `is_buffer`: frozen, and
    in files always of its own dtype; `aliases`: further names of a parameter that is tied."""

    shape: Sequence[int]
    dtype: Any = None
    init: InitLike | Fill = "normal"
    deviation: float = 0.02
    frozen: bool = False
    is_buffer: bool = False
    aliases: Sequence[str] = ()


def spec_of(given: Any, name: str = "") -> Spec:
    """A Spec, dims, or an array whose values are the first ones. `name`: of the parameter, for errors."""
    if isinstance(given, Spec):
        return given
    if isinstance(given, Mapping):
        raise TypeError(f"parameter {name} is a {type(given).__name__} with the keys {', '.join(map(str, given))}, not an array: a group "
                        "takes one dict of arrays; give a nested one flat, with names such as \"layer.kernel\"")
    if isinstance(given, (tuple, list)):
        if not all(isinstance(n, (int, np.integer)) for n in given):
            raise TypeError(f"a {type(given).__name__} of integers is a parameter's dims; first values are an array, "
                            "for example np.array(...)")
        return Spec(given)
    if isinstance(given, View) and given.stream is not None:  # its values come later
        if given.dtype not in FLOATING:
            raise InvalidArgument(f"first values on a GPU are {c.gw_dtype_name(given.dtype)}, not f64, f32, bf16 or f16")
        return Spec(given.shape, DType.F64 if given.dtype == DType.F64 else DType.F32, "zeros")
    array = as_numpy(given)
    dtype = DType.F64 if array.dtype == np.float64 else DType.F32
    rows = array.reshape(array.shape or (1,))  # a scalar is one row
    return Spec(array.shape, dtype, lambda first, last: rows[first:last])


class Filler:
    """The library's way to a fill function: writes rows at an address in the parameter's type."""

    def __init__(self, spec: Spec, function: Fill) -> None:
        self._row = tuple(spec.shape[1:])
        self._function: Fill | None = function

    def __call__(self, first: int, last: int, address: int, count: int, dtype: int) -> None:
        assert self._function is not None
        view = c.make_view(address, (last - first, *self._row), dtype, None)
        as_ndarray(view)[...] = as_numpy(self._function(first, last))

    def forget(self) -> None:
        """The values are in their shards: lets go of the caller's array."""
        self._function = None


def parameter_options(specs: Mapping[str, Spec]) -> tuple[list[Any], list[Filler]]:
    """gw_parameter_options of named specs, and the fill functions among them."""
    made, fills = [], []
    for name, spec in specs.items():
        if callable(spec.init):
            fill = Filler(spec, spec.init)
            fills.append(fill)
            first = struct("gw_init_options", kind=Init.FILL, fill=low.py_fill, free_user=low.py_free, user=fill)
        else:
            first = struct("gw_init_options", kind=member(Init, spec.init, f"init of {name}"), deviation=spec.deviation)
        made.append(struct("gw_parameter_options", name=name, dims=tuple(spec.shape), ndim=len(spec.shape),
                           dtype=dtype_of(spec.dtype), frozen=spec.frozen, is_buffer=spec.is_buffer, initializer=first,
                           aliases=block("t", spec.aliases), alias_count=len(spec.aliases)))
    return made, fills


