"""What every collective needs: a checked call that is run or started, and the checks of its arrays."""

from __future__ import annotations

import math
from typing import Any, Callable, Generic, Sequence, TypeVar

from . import _low as c
from ._low import View
from .arrays import CONTIGUOUS, CPU, LEGACY_STREAM, OUTPUT, Array, Made, borrow, kind_of
from .enums import Op
from .errors import InvalidArgument
from .structs import block, struct
from .works import Work

T = TypeVar("T")


class Call(Generic[T]):
    """A checked collective: the C function's name and arguments, and what makes the result."""

    def __init__(self, name: str, arguments: tuple[Any, ...], finish: Callable[[], T]) -> None:
        self.name, self.arguments, self.finish = name, arguments, finish

    def now(self, gang: Checks) -> T:
        """Runs it."""
        getattr(c, f"gw_gang_{self.name}")(gang._h, *self.arguments, gang._stream)
        return self.finish()

    def later(self, gang: Checks) -> Work[T]:
        """Starts it."""
        handle = getattr(c, f"gw_gang_{self.name}_async")(gang._h, *self.arguments, gang._stream)
        return Work(handle, self.finish, gang._stream)


class Record(Call[T]):
    """One that has no function of its own: by a gw_collective."""

    def __init__(self, op: Op, finish: Callable[[], T], view: View, *, counts: Sequence[int] | None = None, row: int = 1,
                 **fields: Any) -> None:
        """`counts` are rows, each of `row` elements."""
        elements = block("l", [n * row for n in counts or ()])
        self.record = struct("gw_collective", op=op, dtype=view.dtype, counts=elements, **fields)
        super().__init__("run", (self.record,), finish)

    def now(self, gang: Checks) -> T:
        """Runs it."""
        return self.later(gang)._now()

    def later(self, gang: Checks) -> Work[T]:
        """Starts it."""
        return Work(c.gw_gang_run(gang._h, self.record, gang._stream), self.finish, gang._stream)


class Memory:
    """A block of the gang's memory, given back with the last array that shows it."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __del__(self) -> None:
        c.gw_gang_free(None, self.address)


class Checks:
    """A gang, as far as its collectives' arrays must fit it."""

    _h: Any
    _on_gpu: bool
    rank: int
    size: int

    @property
    def _stream(self) -> int | None:
        """What its calls are ordered on (arrays.py); None: the rank's own."""
        return LEGACY_STREAM if self._on_gpu else None

    def _borrow(self, array: Array, name: str, wants: int = CONTIGUOUS) -> View:
        """The array, which must lie where the gang's memory lies: what gets bare addresses cannot tell. Of two GPUs the
        library tells which one it is."""
        view = borrow(array, name, wants, on_gpu=True)
        if (view.stream is not None) != self._on_gpu:
            raise InvalidArgument(f"{name} lies on {view.device}, the gang's device is {c.gw_gang_device(self._h)}")
        return view

    def _made(self, x: Array, view: View, shape: Sequence[int]) -> Made:
        """A new array like x."""
        return Made(kind_of(x), shape, view.dtype, view, self._memory)

    def _memory(self, shape: Sequence[int], dtype: int, like: View | None = None, shared: bool = False) -> View:
        """Memory of the gang, on the host or where `like` lies."""
        size = math.prod(shape) * int(c.gw_dtype_bytes(dtype))
        memory = Memory((c.gw_gang_alloc_shared if shared else c.gw_gang_alloc)(self._h, size))
        place = (CPU, 0) if like is None else like.__dlpack_device__()
        view: View = c.make_view(memory.address, tuple(shape), int(dtype), memory, place)
        return view

    def _rows(self, array: Array, name: str) -> View:
        view = self._borrow(array, name)
        if not view.shape or view.shape[0] != self.size:
            raise InvalidArgument(f"{name} has shape {view.shape}; its first dim must be the gang's size, {self.size}")
        return view

    def _counts(self, counts: Sequence[int], name: str = "counts") -> Sequence[int]:
        if len(counts) != self.size or min(counts) < 0:
            raise InvalidArgument(f"{name} is {list(counts)}: {self.size} numbers are needed, one for each rank, none below 0")
        return counts

    @staticmethod
    def _counted(view: View, rows: int, name: str, why: str) -> int:
        """Elements of a row of dim 0, which has as many as counts say."""
        if not view.shape or view.shape[0] != rows:
            raise InvalidArgument(f"{name} has shape {view.shape}; its first dim must be {rows}, {why}")
        return math.prod(view.shape[1:])

    def _output(self, array: Array, name: str, count: int, like: View) -> View:
        view = self._borrow(array, name, OUTPUT)
        self._same(like, view, "x", name, count)
        return view

    @staticmethod
    def _same(view: View, output: View, name: str, output_name: str, count: int) -> None:
        if view.dtype != output.dtype:
            raise InvalidArgument(f"{output_name} is {c.gw_dtype_name(output.dtype)}, "
                                  f"but {name} is {c.gw_dtype_name(view.dtype)}")
        if output.count != count:
            raise InvalidArgument(f"{output_name} is {'too small' if output.count < count else 'too large'}: "
                                  f"it has {output.count} elements, {count} are needed")
