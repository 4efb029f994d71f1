"""Reductions that the library does not have: bitwise ones, small and unsigned integers, scaled sums, sparse tensors. Every
rank gathers all inputs and folds them in the order of the ranks."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from ..errors import NotSupported
from .tensors import number_of

_FOLDS: dict[int, Callable[[Tensor, Tensor], Tensor]] = {
    int(ReduceOp.SUM): torch.add,
    int(ReduceOp.PRODUCT): torch.mul,
    int(ReduceOp.MIN): torch.minimum,
    int(ReduceOp.MAX): torch.maximum,
    int(ReduceOp.BAND): torch.bitwise_and,
    int(ReduceOp.BOR): torch.bitwise_or,
    int(ReduceOp.BXOR): torch.bitwise_xor,
}


def fold_of(op: Any, dtype: torch.dtype) -> Callable[[Sequence[Tensor]], Tensor]:
    """What folds all inputs, by rank, into one. A refusal names op and type."""
    number = number_of(op)
    fold = _FOLDS.get(number)
    if fold is None:
        raise NotSupported(f"{op} is not a reduction of backend gangway (SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR and "
                           "PREMUL_SUM are)")
    ordered = number in (int(ReduceOp.MIN), int(ReduceOp.MAX))
    if dtype.is_complex and ordered:
        raise NotSupported(f"{op} of {dtype}: complex numbers have no order")

    def run(inputs: Sequence[Tensor]) -> Tensor:
        result = inputs[0]
        for x in inputs[1:]:
            result = fold(result, x)
        return result

    return run


def premultiplied(op: Any, tensor: Tensor) -> Tensor:
    """The input of PREMUL_SUM, of which a plain sum is taken."""
    return tensor * op.factor


def sparse_sum(parts: Sequence[Tensor]) -> Tensor:
    """The sum of sparse tensors, coalesced."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total.coalesce()
