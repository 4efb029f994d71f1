"""What every collective needs: a checked call that is run or started, and the checks of its arrays."""

from __future__ import annotations

import math
from typing import Any, Callable, Generic, Sequence, TypeVar

from . import _low as c
from ._low import View
from .arrays import CONTIGUOUS, OUTPUT, Made, Place, kind_of
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


class Shared:
    """A region that all ranks map, given back with the last array that shows it."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __del__(self) -> None:
        c.gw_gang_free(None, self.address)


class Checks:
    """Checks that the arrays of a collective fit the gang."""

    _h: Any
    _place: Place
    rank: int
    size: int

    @property
    def _stream(self) -> int | None:
        return self._place.stream

    def _borrow(self, array: Any, name: str, wants: int = CONTIGUOUS) -> View:
        """The array, which must lie where the gang's memory lies: what gets bare addresses cannot tell."""
        return self._place.borrow(array, name, wants, host=False)

    def _made(self, x: Any, view: View, shape: Sequence[int]) -> Made:
        """A new array like x."""
        return Made(kind_of(x), shape, view.dtype, view, self._memory)

    def _memory(self, shape: Sequence[int], dtype: int) -> View:
        """Memory of the gang."""
        view: View = c.gw_tensor_view(c.gw_gang_alloc_tensor(self._h, block("l", shape), len(shape), int(dtype)))
        return view

    def _shared(self, shape: Sequence[int], dtype: int) -> View:
        """Likewise, but one region of all ranks."""
        region = Shared(c.gw_gang_alloc_shared(self._h, math.prod(shape) * int(c.gw_dtype_bytes(dtype))))
        view: View = c.make_view(region.address, tuple(shape), int(dtype), region)
        return view

    def _rows(self, array: Any, name: str) -> View:
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

    def _output(self, array: Any, name: str, count: int, like: View) -> View:
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
