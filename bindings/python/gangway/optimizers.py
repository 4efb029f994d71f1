# Made by capi/optimizers.py from the table of optimizers (impl/optim): do not edit.
"""The optimizers, and the schedules of their learning rates."""

from __future__ import annotations

from typing import Literal, Sequence, Union

from . import _low as c
from .arrays import DTypeLike, dtype_of
from .enums import Open
from .groups import ShardGroup
from .members import member
from .module import Module
from .train import Optimizer, Rule

__all__ = ["Adafactor", "AdamW", "AdamW8bit", "Lion", "Muon", "SGD", "Schedule"]


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


ScheduleLike = Union[Schedule, Literal["constant", "linear", "cosine", "wsd", "wsd_sqrt", "inverse_sqrt"]]


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, 2018), as torch.optim.Adafactor: a second moment of rows and columns, and rates
    relative to the size of the parameter, at most 1 / sqrt(t) at step t. The other options are those of every
    optimizer: see Optimizer.

    beta2_decay: step t has weight t^beta2_decay in the averages, in [-1, 0].
    eps: least root mean square of a parameter, by which its rate is multiplied, in (0, 1).
    clip_threshold: an update with a greater root mean square is scaled down to it, in [1, inf).

    States: row_var (average of the means of a row's squared gradients; 1 in the last dim); col_var (average of the
    means of a column's squared gradients; 1 in the last dim but one); variance (of 1-d parameters: average of the
    squared gradient)."""

    def __init__(
        self, model: Module | ShardGroup | Sequence[ShardGroup], *, lr: float = 1e-2, beta2_decay: float = -0.8,
        eps: float = 1e-3, clip_threshold: float = 1.0, weight_decay: float = 0.0,
        schedule: ScheduleLike = "constant", ema_decay: float = 0.0, warmup_steps: int = 0, total_steps: int = 0,
        last_lr_ratio: float = 0.0, decay_steps: int = 0, rules: Sequence[Rule] = (), loss_scale: float = 0.0,
        initial_loss_scale: float = 65536.0, loss_scale_interval: int = 2000,
    ) -> None:
        super().__init__(
            "adafactor", model, lr=lr, beta2_decay=beta2_decay, eps=eps, clip_threshold=clip_threshold,
            weight_decay=weight_decay, schedule=member(Schedule, schedule, "schedule"), ema_decay=ema_decay,
            warmup_steps=warmup_steps, total_steps=total_steps, last_lr_ratio=last_lr_ratio, decay_steps=decay_steps,
            rules=rules, loss_scale=loss_scale, initial_loss_scale=initial_loss_scale,
            loss_scale_interval=loss_scale_interval)


class AdamW(Optimizer):
    """AdamW (Loshchilov and Hutter, 2019): Adam with decoupled weight decay. The other options are those of every
    optimizer: see Optimizer.

    beta1: decay of the average of the gradient, in [0, 1).
    beta2: decay of the average of the squared gradient, in [0, 1).
    eps: added to the root of that average, in (0, 1).
    moment_dtype: of both averages: f32 or bf16 (rounded at random, so that a decay near 1 moves them); those of f64 parameters are f64.
    betas: (beta1, beta2) at once.

    States: exp_avg (moving average of the gradient); exp_avg_sq (moving average of the squared gradient)."""

    def __init__(
        self, model: Module | ShardGroup | Sequence[ShardGroup], *, lr: float = 1e-3, beta1: float = 0.9,
        beta2: float = 0.999, betas: tuple[float, float] | None = None, eps: float = 1e-8, weight_decay: float = 0.0,
        schedule: ScheduleLike = "constant", moment_dtype: DTypeLike = "f32", ema_decay: float = 0.0,
        warmup_steps: int = 0, total_steps: int = 0, last_lr_ratio: float = 0.0, decay_steps: int = 0,
        rules: Sequence[Rule] = (), loss_scale: float = 0.0, initial_loss_scale: float = 65536.0,
        loss_scale_interval: int = 2000,
    ) -> None:
        beta1, beta2 = betas or (beta1, beta2)
        super().__init__(
            "adamw", model, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay,
            schedule=member(Schedule, schedule, "schedule"), moment_dtype=dtype_of(moment_dtype), ema_decay=ema_decay,
            warmup_steps=warmup_steps, total_steps=total_steps, last_lr_ratio=last_lr_ratio, decay_steps=decay_steps,
            rules=rules, loss_scale=loss_scale, initial_loss_scale=initial_loss_scale,
            loss_scale_interval=loss_scale_interval)


class AdamW8bit(Optimizer):
    """AdamW with averages of 8 bits (Dettmers and others, 2022). 64 elements of a row of the whole tensor share a
    scale, their largest magnitude; a code is one of 256 values, of the two next to the number at random by their
    distance, so that averages move by less than a code: 0, 1, and seven decades 10^(d - 6) (0.1 + 0.9 (k + 1/2) / n),
    d from 0 to 6, k below n, which is 2^d with either sign for the gradient's average and 2^(d + 1) for that of its
    square. A tensor parallel cut inside of 64 elements is refused. Averages of 1-d parameters are f32. The other
    options are those of every optimizer: see Optimizer.

    beta1: decay of the average of the gradient, in [0, 1).
    beta2: decay of the average of the squared gradient, in [0, 1).
    eps: added to the root of that average, in (0, 1).
    betas: (beta1, beta2) at once.

    States: exp_avg (moving average of the gradient: codes (u8), of 1-d parameters f32); exp_avg_sq (moving average of
    the squared gradient, likewise); exp_avg_scale (largest magnitude of each block of 64 elements of a row of
    exp_avg); exp_avg_sq_scale (of exp_avg_sq)."""

    def __init__(
        self, model: Module | ShardGroup | Sequence[ShardGroup], *, lr: float = 1e-3, beta1: float = 0.9,
        beta2: float = 0.999, betas: tuple[float, float] | None = None, eps: float = 1e-8, weight_decay: float = 0.0,
        schedule: ScheduleLike = "constant", ema_decay: float = 0.0, warmup_steps: int = 0, total_steps: int = 0,
        last_lr_ratio: float = 0.0, decay_steps: int = 0, rules: Sequence[Rule] = (), loss_scale: float = 0.0,
        initial_loss_scale: float = 65536.0, loss_scale_interval: int = 2000,
    ) -> None:
        beta1, beta2 = betas or (beta1, beta2)
        super().__init__(
            "adamw8bit", model, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay,
            schedule=member(Schedule, schedule, "schedule"), ema_decay=ema_decay, warmup_steps=warmup_steps,
            total_steps=total_steps, last_lr_ratio=last_lr_ratio, decay_steps=decay_steps, rules=rules,
            loss_scale=loss_scale, initial_loss_scale=initial_loss_scale, loss_scale_interval=loss_scale_interval)


class Lion(Optimizer):
    """Lion (Chen and others, 2023): steps by the sign of an average, with decoupled weight decay. The other options
    are those of every optimizer: see Optimizer.

    beta1: weight of the average in the direction of a step, in [0, 1).
    beta2: decay of the average of the gradient, in [0, 1).
    moment_dtype: of the average: f32 or bf16 (rounded at random, so that a decay near 1 moves it); that of f64 parameters is f64.
    betas: (beta1, beta2) at once.

    States: exp_avg (moving average of the gradient)."""

    def __init__(
        self, model: Module | ShardGroup | Sequence[ShardGroup], *, lr: float = 1e-4, beta1: float = 0.9,
        beta2: float = 0.99, betas: tuple[float, float] | None = None, weight_decay: float = 0.0,
        schedule: ScheduleLike = "constant", moment_dtype: DTypeLike = "f32", ema_decay: float = 0.0,
        warmup_steps: int = 0, total_steps: int = 0, last_lr_ratio: float = 0.0, decay_steps: int = 0,
        rules: Sequence[Rule] = (), loss_scale: float = 0.0, initial_loss_scale: float = 65536.0,
        loss_scale_interval: int = 2000,
    ) -> None:
        beta1, beta2 = betas or (beta1, beta2)
        super().__init__(
            "lion", model, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay,
            schedule=member(Schedule, schedule, "schedule"), moment_dtype=dtype_of(moment_dtype), ema_decay=ema_decay,
            warmup_steps=warmup_steps, total_steps=total_steps, last_lr_ratio=last_lr_ratio, decay_steps=decay_steps,
            rules=rules, loss_scale=loss_scale, initial_loss_scale=initial_loss_scale,
            loss_scale_interval=loss_scale_interval)


class Muon(Optimizer):
    """Muon (Jordan and others, 2024), as torch.optim.Muon: the step of a matrix is its momentum, orthogonalised.
    AdamW steps all other parameters, and embeddings and heads, unless a rule says otherwise (its adamw). The other
    options are those of every optimizer: see Optimizer.

    momentum: decay of the average of a matrix's gradient, in [0, 1).
    ns_steps: iterations of the orthogonalisation, in [1, 100).
    eps: least norm by which a matrix is divided before them, in (0, 1).
    adamw_lr_scale: factor of the rate of parameters that AdamW steps, in [0, inf).
    beta1: AdamW's decay of the average of the gradient, in [0, 1).
    beta2: AdamW's decay of the average of the squared gradient, in [0, 1).
    adamw_eps: AdamW adds it to the root of that average, in (0, 1).
    nesterov: looks ahead along the momentum.
    match_rms: a matrix's rate is lr * 0.2 sqrt(max(rows, columns)), to go with AdamW's; else lr * sqrt(max(1, rows / columns)).
    matrix_dtype: in which matrices are gathered and orthogonalised: f32, or bf16 as PyTorch does; those of f64 parameters are f64.
    moment_dtype: of the averages: f32 or bf16; those of f64 parameters are f64.
    betas: (beta1, beta2) at once.

    States: momentum_buffer (of matrices: moving average of the gradient); exp_avg (of the others: moving average of
    the gradient); exp_avg_sq (of the others: moving average of the squared gradient)."""

    def __init__(
        self, model: Module | ShardGroup | Sequence[ShardGroup], *, lr: float = 1e-3, momentum: float = 0.95,
        ns_steps: int = 5, eps: float = 1e-7, adamw_lr_scale: float = 1.0, beta1: float = 0.9, beta2: float = 0.999,
        betas: tuple[float, float] | None = None, adamw_eps: float = 1e-8, weight_decay: float = 0.1,
        nesterov: bool = True, match_rms: bool = False, schedule: ScheduleLike = "constant",
        matrix_dtype: DTypeLike = "f32", moment_dtype: DTypeLike = "f32", ema_decay: float = 0.0,
        warmup_steps: int = 0, total_steps: int = 0, last_lr_ratio: float = 0.0, decay_steps: int = 0,
        rules: Sequence[Rule] = (), loss_scale: float = 0.0, initial_loss_scale: float = 65536.0,
        loss_scale_interval: int = 2000,
    ) -> None:
        beta1, beta2 = betas or (beta1, beta2)
        super().__init__(
            "muon", model, lr=lr, momentum=momentum, ns_steps=ns_steps, eps=eps, adamw_lr_scale=adamw_lr_scale,
            beta1=beta1, beta2=beta2, adamw_eps=adamw_eps, weight_decay=weight_decay, nesterov=nesterov,
            match_rms=match_rms, schedule=member(Schedule, schedule, "schedule"), matrix_dtype=dtype_of(matrix_dtype),
            moment_dtype=dtype_of(moment_dtype), ema_decay=ema_decay, warmup_steps=warmup_steps,
            total_steps=total_steps, last_lr_ratio=last_lr_ratio, decay_steps=decay_steps, rules=rules,
            loss_scale=loss_scale, initial_loss_scale=initial_loss_scale, loss_scale_interval=loss_scale_interval)


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if wanted. Weight decay is added to the gradient. The other options
    are those of every optimizer: see Optimizer.

    momentum: how much of the velocity a step keeps; 0: plain gradient descent, in [0, 1).
    nesterov: looks ahead along the velocity; needs a momentum.

    States: momentum (the velocity; absent where momentum is 0)."""

    def __init__(
        self, model: Module | ShardGroup | Sequence[ShardGroup], *, lr: float = 1e-3, momentum: float = 0.0,
        weight_decay: float = 0.0, nesterov: bool = False, schedule: ScheduleLike = "constant",
        ema_decay: float = 0.0, warmup_steps: int = 0, total_steps: int = 0, last_lr_ratio: float = 0.0,
        decay_steps: int = 0, rules: Sequence[Rule] = (), loss_scale: float = 0.0,
        initial_loss_scale: float = 65536.0, loss_scale_interval: int = 2000,
    ) -> None:
        super().__init__(
            "sgd", model, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov,
            schedule=member(Schedule, schedule, "schedule"), ema_decay=ema_decay, warmup_steps=warmup_steps,
            total_steps=total_steps, last_lr_ratio=last_lr_ratio, decay_steps=decay_steps, rules=rules,
            loss_scale=loss_scale, initial_loss_scale=initial_loss_scale, loss_scale_interval=loss_scale_interval)
