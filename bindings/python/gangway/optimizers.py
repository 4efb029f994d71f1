# Made by capi/optimizers.py from the table of optimizers (impl/optim): do not edit.
"""The optimizers, and the schedules of their learning rates."""

from __future__ import annotations

from typing import Sequence

from . import _low as c
from .arrays import DTypeLike, dtype_of
from .enums import Open, member
from .groups import ShardGroup
from .module import Module
from .train import Optimizer, Rule

__all__ = ["AdamW", "Lion", "SGD", "Schedule"]


class Schedule(Open):
    """How the learning rate goes on after its warm-up.

    CONSTANT: the full rate.
    LINEAR: the full rate, then an even fall to last_lr_ratio in the last decay_steps of total_steps.
    COSINE: as linear, the fall being half a cosine.
    WSD: warm-up, stable, decay: as linear, but decay_steps is a tenth of total_steps unless it is given.
    WSD_SQRT: as wsd, the fall being 1 - sqrt.
    INVERSE_SQRT: the root of warmup_steps over the steps taken, not below last_lr_ratio; needs a warm-up.
    """

    CONSTANT = c.GW_CONSTANT
    LINEAR = c.GW_LINEAR
    COSINE = c.GW_COSINE
    WSD = c.GW_WSD
    WSD_SQRT = c.GW_WSD_SQRT
    INVERSE_SQRT = c.GW_INVERSE_SQRT


class AdamW(Optimizer):
    """AdamW (Loshchilov and Hutter, 2019): Adam with decoupled weight decay. The other options are those of every
    optimizer: see Optimizer.

    beta1: decay of the average of the gradient, in [0, 1).
    beta2: decay of the average of the squared gradient, in [0, 1).
    eps: added to the root of that average, in (0, 1).
    moment_dtype: of both averages: f32 or bf16; those of f64 parameters are f64.
    betas: (beta1, beta2) at once.

    States: exp_avg (moving average of the gradient); exp_avg_sq (moving average of the squared gradient)."""

    def __init__(
        self, model: Module | ShardGroup | Sequence[ShardGroup], *, lr: float = 1e-3, beta1: float = 0.9,
        beta2: float = 0.999, betas: tuple[float, float] | None = None, eps: float = 1e-8, weight_decay: float = 0.0,
        schedule: Schedule | str = "constant", moment_dtype: DTypeLike = "f32", warmup_steps: int = 0,
        total_steps: int = 0, last_lr_ratio: float = 0.0, decay_steps: int = 0, rules: Sequence[Rule] = (),
        loss_scale: float = 0.0, initial_loss_scale: float = 65536.0, loss_scale_interval: int = 2000,
    ) -> None:
        beta1, beta2 = betas or (beta1, beta2)
        super().__init__(
            "adamw", model, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay,
            schedule=member(Schedule, schedule, "schedule"), moment_dtype=dtype_of(moment_dtype),
            warmup_steps=warmup_steps, total_steps=total_steps, last_lr_ratio=last_lr_ratio, decay_steps=decay_steps,
            rules=rules, loss_scale=loss_scale, initial_loss_scale=initial_loss_scale,
            loss_scale_interval=loss_scale_interval)


class Lion(Optimizer):
    """Lion (Chen and others, 2023): steps by the sign of an average, with decoupled weight decay. The other options
    are those of every optimizer: see Optimizer.

    beta1: weight of the average in the direction of a step, in [0, 1).
    beta2: decay of the average of the gradient, in [0, 1).
    moment_dtype: of the average: f32 or bf16; that of f64 parameters is f64.
    betas: (beta1, beta2) at once.

    States: exp_avg (moving average of the gradient)."""

    def __init__(
        self, model: Module | ShardGroup | Sequence[ShardGroup], *, lr: float = 1e-4, beta1: float = 0.9,
        beta2: float = 0.99, betas: tuple[float, float] | None = None, weight_decay: float = 0.0,
        schedule: Schedule | str = "constant", moment_dtype: DTypeLike = "f32", warmup_steps: int = 0,
        total_steps: int = 0, last_lr_ratio: float = 0.0, decay_steps: int = 0, rules: Sequence[Rule] = (),
        loss_scale: float = 0.0, initial_loss_scale: float = 65536.0, loss_scale_interval: int = 2000,
    ) -> None:
        beta1, beta2 = betas or (beta1, beta2)
        super().__init__(
            "lion", model, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay,
            schedule=member(Schedule, schedule, "schedule"), moment_dtype=dtype_of(moment_dtype),
            warmup_steps=warmup_steps, total_steps=total_steps, last_lr_ratio=last_lr_ratio, decay_steps=decay_steps,
            rules=rules, loss_scale=loss_scale, initial_loss_scale=initial_loss_scale,
            loss_scale_interval=loss_scale_interval)


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if wanted. Weight decay is added to the gradient. The other options
    are those of every optimizer: see Optimizer.

    momentum: how much of the velocity a step keeps; 0: plain gradient descent, in [0, 1).
    nesterov: looks ahead along the velocity; needs a momentum.

    States: momentum (the velocity; absent where momentum is 0)."""

    def __init__(
        self, model: Module | ShardGroup | Sequence[ShardGroup], *, lr: float = 1e-3, momentum: float = 0.0,
        weight_decay: float = 0.0, nesterov: bool = False, schedule: Schedule | str = "constant",
        warmup_steps: int = 0, total_steps: int = 0, last_lr_ratio: float = 0.0, decay_steps: int = 0,
        rules: Sequence[Rule] = (), loss_scale: float = 0.0, initial_loss_scale: float = 65536.0,
        loss_scale_interval: int = 2000,
    ) -> None:
        super().__init__(
            "sgd", model, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov,
            schedule=member(Schedule, schedule, "schedule"), warmup_steps=warmup_steps, total_steps=total_steps,
            last_lr_ratio=last_lr_ratio, decay_steps=decay_steps, rules=rules, loss_scale=loss_scale,
            initial_loss_scale=initial_loss_scale, loss_scale_interval=loss_scale_interval)
