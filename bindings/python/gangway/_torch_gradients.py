"""An operation of PyTorch's autograd whose backward is the adjoint of its forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from .autograd import Run


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, run: Run) -> torch.Tensor:
        y, ctx.adjoint = run(x.detach())
        return torch.as_tensor(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.adjoint(dy.contiguous()), None


def apply(x: torch.Tensor, run: Run) -> torch.Tensor:
    """run(x)[0], with its gradient."""
    y: torch.Tensor = _Linear.apply(x, run)
    return y
