"""Arrays of NumPy, PyTorch and JAX: borrowed through DLPack without a copy, and made from the library's memory.

Where the gang's device is a GPU, every call is ordered on CUDA's legacy default stream, which is PyTorch's own default
stream: a call comes after what that stream holds, and what the stream gets later comes after the call. The owner of an
array that a call takes is asked to make that stream wait for his own. Who takes an array of the library's and names his
stream, as from_dlpack does, has it wait for the library, and keeps the array until that stream is done: freed memory waits
for the legacy stream alone. Who goes on with an array of his own on another stream makes that one wait for the legacy
stream.

What a call makes lies where the library made it, and goes out as an array of the framework whose arrays came in. NumPy
knows no memory of a GPU: for its arrays, and for kind="numpy", what lies on a GPU is copied to the host. Arrays of a GPU
that are neither PyTorch's nor JAX's get the library's own objects, Tensor or View, for from_dlpack of any framework; so does
kind="tensor", on a CPU, too."""

from __future__ import annotations

import copy
import importlib
import sys
from typing import Any, Callable, Protocol, Sequence, TypeVar, cast

import numpy as np

from . import _low as c
from ._low import View
from .enums import DType
from .errors import InvalidArgument, NotSupported
from .members import member
from .names import Kind
from .numpy_arrays import as_ndarray, borrow_numpy, extra_dtype, refuse_masked


class Array(Protocol):
    """An array of NumPy, PyTorch, JAX, CuPy or the library, or of anything else that gives out its memory by DLPack."""

    def __dlpack__(self) -> Any:
        """A capsule of DLPack; exporters take its keywords, too."""


A = TypeVar("A", bound=Array)

NewArray = Any
"""An array of the framework that the call says."""

DTypeLike = Any
"""A DType, its name ("f32", "float32"), a framework's own dtype object, or None."""

ANY, WRITABLE, CONTIGUOUS = 0, 1, 2
OUTPUT = CONTIGUOUS | WRITABLE
CPU, CUDA = 1, 2  # DLPack's numbers
FLOATING = (DType.F64, DType.F32, DType.BF16, DType.F16)
LEGACY_STREAM = 1  # CUDA's, by DLPack's number and as a cudaStream_t
_ALIGNMENT = 64  # JAX takes memory without a copy from here on
LONG_NAMES = {
    "bool": "BOOL", "bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "complex128": "C128", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8",
    "uint16": "U16", "uint32": "U32", "uint64": "U64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}
_SHORT = {short: name for name, short in LONG_NAMES.items()}
_NARROW = (DType.I8, DType.I16, DType.I32, DType.U8, DType.U16, DType.U32)


def dtype_of(dtype: Any) -> DType:
    """An element type by DType, name ("f32", "float32") or a framework's own dtype object."""
    if dtype is None:
        return DType.NONE
    if isinstance(dtype, int):
        return dtype if type(dtype) is DType else DType(dtype)
    if isinstance(dtype, str):
        return member(DType, LONG_NAMES.get(dtype, dtype), "dtype")
    name = str(dtype).rpartition(".")[2] if type(dtype).__module__.startswith("torch") else np.dtype(dtype).name
    return member(DType, LONG_NAMES.get(name, name), "dtype")


# Arrays whose memory other arrays share, or read later, as if it never changed; by the root of their module's name.
_IMMUTABLE = {
    "jax": "a JAX array, which is immutable", "jaxlib": "a JAX array, which is immutable",
    "mlx": "an MLX array, whose memory other arrays share and lazy ones read later",
    "tensorflow": "a TensorFlow tensor, which is immutable",
}


def _check_concrete(array: Any) -> None:
    """Inside of jax.jit, jax.vmap and the like, arrays have no values."""
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(array, jax.core.Tracer):
        raise NotSupported("gangway moves values, which arrays inside of jax.jit, jax.grad, jax.vmap and the like do not have: call "
                           "it outside of them; the collectives of gangway.autograd go through jax.grad and jax.vjp")


def kind_of(array: Any) -> Kind:
    """Which framework an array is of: numpy, torch, jax or mlx; others count as numpy, on a GPU as the library's own, tensor."""
    if type(array) is np.ndarray:
        return "numpy"
    root = type(array).__module__.partition(".")[0]
    if root in ("jax", "jaxlib"):
        return "jax"
    if root == "torch":
        return "torch"
    if root == "mlx":
        return "mlx"
    device = getattr(array, "__dlpack_device__", None)
    return "numpy" if device is None or device()[0] != CUDA else "tensor"


def first_kind(arrays: Sequence[Any]) -> Kind:
    """The kind of the first array that is there."""
    return next((kind_of(x) for x in arrays if x is not None), "numpy")


def borrow(array: Array, name: str, wants: int = CONTIGUOUS) -> View:
    """A view of the array's own memory, on the host or on a GPU. A refusal names the argument and the reason."""
    if isinstance(array, np.ndarray):
        return borrow_numpy(array, name, wants)
    root = type(array).__module__.partition(".")[0]
    if wants & WRITABLE and root in _IMMUTABLE:
        raise InvalidArgument(f"{name} is {_IMMUTABLE[root]}; use the form that returns a new one")
    if root in ("jax", "jaxlib"):
        _check_concrete(array)
    view: View = c.borrow(array, name, wants)
    return view


class Place:
    """Where the arrays of a gang lie, and what its calls are ordered on."""

    def __init__(self, device: str, index: int | None = None) -> None:
        """`index`: of the GPU."""
        self.device = device if index is None else f"cuda:{index}"
        self.stream = None if index is None else LEGACY_STREAM  # None: the rank's own
        self._widens = False

    def for_ids(self) -> Place:
        """The same place for what takes token ids and labels, which are int64: of narrower integers, such as JAX's int32, it
        borrows a copy."""
        made = copy.copy(self)
        made._widens = True
        return made

    @classmethod
    def of(cls, gang: Any) -> Place:
        """Of a gang's handle."""
        device = str(c.gw_gang_device(gang))
        if device != "cuda":
            return cls(device)
        none = c.gw_gang_alloc_tensor(gang, bytes(8), 1, int(DType.U8))  # of shape [0]
        # From here on freed memory waits for this stream, too: frameworks use the library's arrays there.
        c.gw_tensor_to_host(none, LEGACY_STREAM)
        return cls(device, c.gw_tensor_view(none).__dlpack_device__()[1])

    def borrow(self, array: Array, name: str, wants: int = CONTIGUOUS, *, host: bool = True) -> View:
        """The array, which must lie there. `host`: one of the host may go to a GPU, too."""
        view = borrow(array, name, wants)
        if self._widens and view.dtype in _NARROW:
            view = borrow(_widened(array, view, name), name, wants)
        on_host = view.stream is None
        fits = host or self.stream is None if on_host else view.device == self.device
        if not fits:
            raise InvalidArgument(f"{name} lies on {view.device}, the gang's device is {self.device}")
        return view


def _widened(array: Any, view: View, name: str) -> Any:
    if view.stream is None:
        return as_ndarray(view).astype(np.int64)
    if kind_of(array) == "torch":
        return array.to(sys.modules["torch"].int64)
    raise InvalidArgument(f"{name} is {c.gw_dtype_name(view.dtype)} on {view.device}, i64 is needed there")


HOST = Place("cpu")
_KINDS = ("numpy", "torch", "jax", "mlx", "tensor")


def known_kind(kind: str) -> Kind:
    """The name of a framework that is installed."""
    if kind not in _KINDS:
        raise _unknown(kind)
    if kind != "tensor":
        importlib.import_module("mlx.core" if kind == "mlx" else kind)
    return cast(Kind, kind)


def _unknown(kind: str) -> InvalidArgument:
    return InvalidArgument(f'arrays of "{kind}" are unknown: numpy, torch, jax, mlx and tensor are known')


def as_kind(view: View, kind: str) -> NewArray:
    """The same memory as an array of a framework; MLX copies it, as its arrays are immutable."""
    if kind == "tensor":
        return view
    if kind == "numpy":
        if view.stream is not None:
            raise InvalidArgument(f'the memory lies on {view.device}, where NumPy computes nothing: kind="torch" or '
                                  'kind="tensor" is needed')
        return as_ndarray(view)
    if kind == "torch":
        return importlib.import_module("torch").from_dlpack(view)
    if kind == "jax":
        return importlib.import_module("jax").dlpack.from_dlpack(_Immutable(view))
    if kind == "mlx":
        return _mlx(as_ndarray(view))
    raise _unknown(kind)


def _mlx(array: np.ndarray[Any, Any]) -> NewArray:
    mx = importlib.import_module("mlx.core")
    name = array.dtype.name
    return mx.array(array, dtype=getattr(mx, "bool_" if name == "bool" else name))  # by itself it makes f32 of f64


class _Immutable:
    """A view as JAX takes it: by the old capsule, which cannot say read-only; JAX never writes into what it was given."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __dlpack__(self, **asked: Any) -> Any:
        return self._view.__dlpack__(immutable=True, **asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._view.__dlpack_device__()


class Made:
    """A new array of a framework, written by a collective before anyone sees it. `like`: lies where it lies. On a GPU it is a
    View of `memory`, unless it is PyTorch's."""

    def __init__(self, kind: str, shape: Sequence[int], dtype: int, like: View | None = None,
                 memory: Callable[[Sequence[int], int], View] | None = None) -> None:
        self._kind = kind
        on_gpu = like is not None and like.stream is not None
        name = _SHORT.get(DType(dtype).name)
        if name is None:
            raise InvalidArgument(f"a new array of {DType(dtype).name} cannot be made; use the form in place")
        if kind == "torch":
            torch = importlib.import_module("torch")
            self._array: Any = torch.empty(tuple(shape), dtype=getattr(torch, name),
                                             device="cpu" if like is None else like.device)
        elif on_gpu and kind == "jax":
            raise NotSupported("a new array of JAX cannot be made on a GPU; use the form in place, on memory that is no JAX "
                               "array's")
        elif on_gpu and memory is not None:
            self._array = memory(shape, dtype)
        elif kind == "jax":
            self._array = _aligned(shape, c.gw_dtype_bytes(dtype), dtype)
        else:
            self._array = np.empty(tuple(shape), extra_dtype(dtype) or name)
        self.view = borrow(self._array, "the new array")

    def array(self) -> NewArray:
        """The array, once it is written."""
        if self._kind == "mlx":
            return _mlx(self._array)
        return as_kind(self._array, "jax") if self._kind == "jax" else self._array


def _aligned(shape: Sequence[int], item: int, dtype: int) -> View:
    """Memory that is aligned for every framework."""
    size = item
    for n in shape:
        size *= n
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    view: View = c.make_view(memory.ctypes.data + start, tuple(shape), int(dtype), memory)
    return view


def as_numpy(array: Any) -> np.ndarray[Any, Any]:
    """An array's values for reading; PyTorch's half precisions become f32, other arrays are as np.asarray gives them."""
    refuse_masked(array, "an array of values")
    if kind_of(array) == "torch":
        array = array.detach().cpu()
        if str(array.dtype) in ("torch.bfloat16", "torch.float16"):
            array = array.float()
        return np.from_dlpack(array)
    if kind_of(array) == "tensor":
        raise InvalidArgument("an array of values lies on a GPU, where NumPy cannot read it: give one of the host")
    return _numpy_values(array)


def _numpy_values(array: Any) -> np.ndarray[Any, Any]:
    """Of an array of the host."""
    by_dlpack = hasattr(array, "__dlpack__") and not hasattr(array, "__array__")
    return np.from_dlpack(array) if by_dlpack else np.asarray(array)


def write(view: View, array: Any, name: str, *, add: bool = False, why: str = "") -> None:
    """An array's values into the library's memory, or added to what is there, in that memory's dtype; a number into one
    element."""
    if not hasattr(array, "shape"):  # a number, a list
        array = np.asarray(array)
    refuse_masked(array, name)
    shape = tuple(array.shape)
    if shape != view.shape and (shape or view.count != 1):
        raise InvalidArgument(f"{name} has shape {shape}, {view.shape} is needed{why}")
    torch = sys.modules.get("torch")
    if torch is not None and (kind_of(array) == "torch" or view.stream is not None):  # it copies from the host, too
        target = torch.from_dlpack(view)
        values = array if kind_of(array) == "torch" else torch.from_dlpack(borrow(array, name, ANY))
        (target.add_ if add else target.copy_)(values.detach().to(target.device))
        return
    if view.stream is not None:
        raise InvalidArgument(f"{name} is to lie on {view.device}, where NumPy cannot write: write into the call's arrays")
    values, memory = _numpy_values(array), as_ndarray(view)
    if add:
        np.add(memory, values, out=memory, casting="unsafe")
    else:
        np.copyto(memory, values, casting="unsafe")
