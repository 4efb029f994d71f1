"""What a model holds: tensors of the library, and the parameters that they are part of."""

from __future__ import annotations

import math
from typing import Any

from . import _low as c
from ._low import View
from .arrays import HOST, Array, NewArray, Place, as_kind, known_kind
from .enums import DType, Part
from .errors import InvalidArgument
from .names import Kind
from .numpy_arrays import to_array
from .structs import struct


class Tensor:
    """A tensor of the library; NumPy (on a CPU), PyTorch and JAX take it by from_dlpack, without a copy. On a GPU the stream
    that from_dlpack names waits for what the library has put there."""

    def __init__(self, handle: Any, read_only: bool = False) -> None:
        self._h = handle
        self._view: View = c.gw_tensor_view(handle)  # keeps the handle
        self._view.read_only = read_only or c.gw_tensor_is_read_only(handle) == 1

    @classmethod
    def shown(cls, handle: Any, read_only: bool = False) -> Tensor:
        """A tensor from a call that takes no stream. On a GPU the legacy default stream waits for what the library has put
        there."""
        made = cls(handle, read_only)
        if made._view.stream is not None:
            c.gw_tensor_order(handle, made._view.stream)
        return made

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of this rank's part."""
        return self._view.shape

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return DType(self._view.dtype)

    def __repr__(self) -> str:
        return f"<Tensor {list(self.shape)} {self.dtype.name}{', read-only' if self._view.read_only else ''}>"

    def __dlpack__(self, **request: Any) -> Any:
        return self._view.__dlpack__(**request)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._view.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return to_array(self._view, dtype, copy)

    def to(self, kind: Kind) -> NewArray:
        """The same memory as an array: "numpy", "torch", "jax", or "tensor" for this one. NumPy gets a copy of what lies on a
        GPU."""
        if kind == "tensor":
            return self
        if kind == "numpy" and self._view.stream is not None:
            copy = self.to_host()
            copy._view.read_only = self._view.read_only
            return as_kind(copy._view, kind)
        return as_kind(self._view, kind)

    def to_host(self) -> Tensor:
        """A copy in memory of the host. Waits for the work that the device has."""
        return Tensor(c.gw_tensor_to_host(self._h, self._view.stream))


class Parameter:
    """One parameter of a model."""

    def __init__(self, handle: Any, place: Place = HOST) -> None:
        self._h, self._place = handle, place
        info = struct("gw_parameter_info")
        c.gw_parameter_describe(handle, info)
        self.name: str = info.name
        self.shape: tuple[int, ...] = tuple(info.dims)[: info.ndim]
        self.dtype = DType(info.dtype)
        self.is_buffer = bool(info.is_buffer)
        self.trainable = bool(info.trainable)
        self.rows: tuple[int, int] = (info.first_row, info.last_row)

    def __repr__(self) -> str:
        return f"<Parameter {self.name} {list(self.shape)} {self.dtype.name}, {self.layout or 'whole'}>"

    @property
    def layout(self) -> str:
        """Like "dp_shard: Shard(0)"."""
        info = struct("gw_parameter_info")
        c.gw_parameter_describe(self._h, info)
        return str(info.layout)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """np.asarray(parameter): the value, where this rank has all of it."""
        rows = Tensor.shown(c.gw_parameter_tensor(self._h, Part.VALUE), read_only=True)
        if rows.shape != self.shape:
            raise InvalidArgument(f"{self.name} is {list(self.shape)}, of which this rank has {list(rows.shape)} ({self.layout}): "
                                  "take them by value(), or the whole on every rank by gather()")
        return to_array(rows._view, dtype, copy)

    def value(self, kind: Kind = "numpy") -> NewArray:
        """This rank's rows, read-only; without a copy, but for NumPy from a GPU. Arrays outlive the model."""
        return Tensor.shown(c.gw_parameter_tensor(self._h, Part.VALUE), read_only=True).to(kind)

    def gradient(self, kind: Kind = "numpy") -> NewArray:
        """This rank's rows of the gradient, likewise."""
        return Tensor.shown(c.gw_parameter_tensor(self._h, Part.GRADIENT)).to(kind)

    @property
    def count(self) -> int:
        """Number of elements of the whole parameter."""
        return math.prod(self.shape)

    def state(self, optimizer: Any, name: str, kind: Kind = "numpy") -> NewArray:
        """This rank's rows of an optimizer's state: "exp_avg", "exp_avg_sq", "momentum"."""
        return Tensor.shown(c.gw_parameter_state_tensor(self._h, optimizer._h, name)).to(kind)

    def gather(self, kind: Kind = "numpy") -> NewArray:
        """Collective. The whole value on every rank."""
        known_kind(kind)  # before anything runs
        return Tensor(c.gw_parameter_gather(self._h, self._place.stream)).to(kind)

    def gather_gradient(self, kind: Kind = "numpy") -> NewArray:
        """Collective. The whole gradient on every rank."""
        known_kind(kind)  # before anything runs
        return Tensor(c.gw_parameter_gather_gradient(self._h, self._place.stream)).to(kind)

    def assign(self, values: Array) -> None:
        """Collective. New values from a floating array of the global shape, or of this rank's rows alone."""
        c.gw_parameter_assign(self._h, self._place.borrow(values, "values"), self._place.stream)


def one_row(view: View) -> View:
    """A scalar as the library has it: one row."""
    if view.shape:
        return view
    made: View = c.make_view(view.address, (1,), int(view.dtype), view, view.__dlpack_device__())
    made.read_only = view.read_only
    return made
