"""Tensors as the library takes them: an address, a number of elements, an element type."""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from ..arrays import LONG_NAMES
from ..enums import DType, Reduce
from ..errors import InvalidArgument, NotSupported

WORDS: dict[torch.dtype, int] = {
    getattr(torch, name): int(DType[short])
    for name, short in {**LONG_NAMES, "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}.items()
    if not name.startswith("complex")
}
"""Types that the library has a word for. Complex numbers travel as pairs, others as bytes."""

_SUM, _MEAN, _PRODUCT, _MIN, _MAX = (int(r) for r in (Reduce.SUM, Reduce.MEAN, Reduce.PRODUCT, Reduce.MIN, Reduce.MAX))
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_WHOLE = (torch.int64, torch.int32, torch.uint8)
REDUCTIONS: dict[tuple[int, torch.dtype], int] = {
    **{(int(op), dtype): number for dtype in _FLOATS for op, number in (
        (ReduceOp.SUM, _SUM), (ReduceOp.AVG, _MEAN), (ReduceOp.PRODUCT, _PRODUCT), (ReduceOp.MIN, _MIN),
        (ReduceOp.MAX, _MAX))},
    **{(int(op), dtype): number for dtype in _WHOLE for op, number in (
        (ReduceOp.SUM, _SUM), (ReduceOp.PRODUCT, _PRODUCT), (ReduceOp.MIN, _MIN), (ReduceOp.MAX, _MAX))},
    # Of truth values a sum or a maximum is "or", a product or a minimum "and".
    **{(int(op), torch.bool): number for op, number in (
        (ReduceOp.SUM, _MAX), (ReduceOp.MAX, _MAX), (ReduceOp.BOR, _MAX), (ReduceOp.PRODUCT, _MIN), (ReduceOp.MIN, _MIN),
        (ReduceOp.BAND, _MIN))},
}
"""What the library reduces by itself; folds.py does the rest."""

Finish = Callable[[], None]


def number_of(op: Any) -> int:
    """A ReduceOp, or one of its plain values, as a number."""
    return int(getattr(op, "op", op))


def check(tensor: Tensor, name: str) -> Tensor:
    """A dense tensor on the CPU, else a refusal."""
    if tensor.device.type != "cpu":
        raise InvalidArgument(f"{name} is on {tensor.device}: backend gangway moves CPU tensors; give each device its backend, "
                              'for example init_process_group("cpu:gangway,cuda:nccl")')
    if tensor.layout is not torch.strided:
        raise InvalidArgument(f"{name} is {tensor.layout}: only all_reduce takes sparse tensors")
    return tensor.detach() if tensor.requires_grad else tensor


def raw(tensor: Tensor) -> tuple[int, int, int]:
    """Address, count and word of a contiguous tensor that is moved, not reduced."""
    word = WORDS.get(tensor.dtype)
    if word is not None:
        return tensor.data_ptr(), tensor.numel(), word
    if tensor.is_complex():
        real = WORDS[torch.float64 if tensor.dtype == torch.complex128 else torch.float32]
        if tensor.dtype == torch.complex32:
            real = WORDS[torch.float16]
        return tensor.data_ptr(), 2 * tensor.numel(), real
    return tensor.data_ptr(), tensor.numel() * tensor.element_size(), int(DType.U8)


def units(tensor: Tensor) -> int:
    """How many of the library's elements raw() makes of one element."""
    if tensor.dtype in WORDS:
        return 1
    return 2 if tensor.is_complex() else tensor.element_size()


def source(tensor: Tensor, name: str = "tensor") -> Tensor:
    """A contiguous tensor with these values."""
    return check(tensor, name).contiguous()


def target(tensor: Tensor, name: str = "tensor", fill: bool = False) -> tuple[Tensor, Finish | None]:
    """A contiguous tensor to write into, and what brings its values home; `fill`: it starts with the tensor's values."""
    plain = check(tensor, name)
    if plain.is_contiguous():
        return plain, None
    made = plain.contiguous() if fill else torch.empty_like(plain, memory_format=torch.contiguous_format)
    return made, lambda: _bring(plain, made)


def _bring(home: Tensor, made: Tensor) -> None:
    home.copy_(made)


def filling(home: Tensor, values: Callable[[], Tensor]) -> Finish:
    """Writes what `values` makes at the end of a call."""
    return lambda: _bring(check(home, "tensor"), values())


def all_of(finishes: Sequence[Finish | None]) -> Finish | None:
    """One of several."""
    some = [f for f in finishes if f is not None]
    if len(some) < 2:
        return some[0] if some else None

    def run() -> None:
        for f in some:
            f()

    return run


def one(tensors: Sequence[Tensor], call: str) -> Tensor:
    """The only tensor of a list: c10d's lists have one entry for each device of a rank."""
    if len(tensors) != 1:
        raise InvalidArgument(f"{call} takes one tensor for each rank, but got {len(tensors)}")
    return tensors[0]


def same(tensors: Sequence[Tensor], like: Tensor, name: str) -> None:
    """All have the type of `like`."""
    for i, t in enumerate(tensors):
        if t.dtype != like.dtype:
            raise InvalidArgument(f"{name}[{i}] is {t.dtype}, but the other side is {like.dtype}")


def joined(tensors: Sequence[Tensor], name: str) -> Tensor:
    """The values of all, one behind the other."""
    return torch.cat([source(t, f"{name}[{i}]").reshape(-1) for i, t in enumerate(tensors)])


def parted(flat: Tensor, outputs: Sequence[Tensor]) -> None:
    """The reverse: each output gets its part of `flat`."""
    start = 0
    for output in outputs:
        part = flat.narrow(0, start, output.numel())
        output.detach().copy_(part.view(output.shape))
        start += output.numel()


def rows(tensor: Tensor, splits: Sequence[int], size: int, name: str) -> list[int]:
    """Elements for each rank, when dim 0 is split so; no splits: evenly."""
    length = tensor.shape[0] if tensor.dim() else 0
    if not splits:
        if length % size:
            raise InvalidArgument(f"{name} has {length} rows, not a multiple of the group's size {size}: give split sizes")
        splits = [length // size] * size
    if len(splits) != size:
        raise InvalidArgument(f"{name} has {len(splits)} split sizes, {size} are needed, one for each rank")
    if sum(splits) != length:
        raise InvalidArgument(f"{name} has {length} rows, but its split sizes are {list(splits)}: {sum(splits)} rows")
    each = math.prod(tensor.shape[1:]) * units(tensor)
    return [n * each for n in splits]


def reduction(op: Any, dtype: torch.dtype) -> int | None:
    """The library's number for a reduction; None where it has none. Refuses what has no meaning."""
    number = number_of(op)
    found = REDUCTIONS.get((number, dtype))
    if found is not None:
        return found
    if number == int(ReduceOp.AVG):
        raise NotSupported(f"ReduceOp.AVG of {dtype}: a mean needs floating numbers; use ReduceOp.SUM and divide")
    if number in (int(ReduceOp.BAND), int(ReduceOp.BOR), int(ReduceOp.BXOR)) and (dtype.is_floating_point or dtype.is_complex):
        raise NotSupported(f"{op} of {dtype}: bitwise reductions need whole numbers")
    return None
