"""Optimizers and training steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

from . import _low as c
from .arrays import ANY, Array, borrow, dtype_of
from .enums import Schedule, SkipReason, member
from .groups import ShardGroup
from .module import Module
from .structs import block, struct


@dataclass(frozen=True)
class Rule:
    """For parameters whose whole name matches; the last match wins. weight_decay -1: the optimizer's."""

    pattern: str
    lr_scale: float = 1.0
    weight_decay: float = -1.0
    frozen: bool = False


@dataclass(frozen=True)
class StepResult:
    """What a step did. `loss` is the global mean, on every rank; `grad_norm` that before clipping, -1: not taken."""

    loss: float
    grad_norm: float
    tokens_per_second: float
    seconds: float
    wait_seconds: float
    lr: float
    weight: int
    step: int
    skipped: bool
    skip_reason: SkipReason


def _result(made: Any) -> StepResult:
    return StepResult(made.loss, made.grad_norm, made.tokens_per_second, made.seconds, made.wait_seconds, made.lr,
                      made.weight, made.step, bool(made.skipped), SkipReason(made.skip_reason))


class Optimizer:
    """Steps the shards of a model, or of shard groups."""

    def __init__(self, kind: str, model: Module | ShardGroup | Sequence[ShardGroup], options: dict[str, Any]) -> None:
        self.model = model if isinstance(model, Module) else ShardGroup.module(model)
        fields = dict(options)
        if "schedule" in fields:
            fields["schedule"] = member(Schedule, fields["schedule"], "schedule")
        if "moment_dtype" in fields:
            fields["moment_dtype"] = dtype_of(fields["moment_dtype"])
        rules = [struct("gw_optimizer_rule", **vars(rule)) for rule in fields.pop("rules", ())]
        fields.update(rules=block("s", rules), rule_count=len(rules))
        self._h = getattr(c, f"gw_{kind}_create")(self.model._h, struct(f"gw_{kind}_options", **fields))

    def step(self, *, scale: float = 1.0, max_grad_norm: float = 0.0, **options: Any) -> StepResult:
        """Collective. Scales, clips, steps and empties the gradients, for own loops."""
        made = struct("gw_step_result")
        step = struct("gw_step_options", scale=scale, max_grad_norm=max_grad_norm, **options)
        c.gw_optimizer_step(self._h, step, None, made)
        return _result(made)

    @property
    def steps(self) -> int:
        """Steps taken."""
        return int(c.gw_optimizer_steps(self._h))

    @property
    def lr(self) -> float:
        """Of the next step; set it alike on every rank."""
        return float(c.gw_optimizer_lr(self._h))

    @lr.setter
    def lr(self, lr: float) -> None:
        c.gw_optimizer_set_lr(self._h, lr)

    def release(self) -> None:
        """Drops the handle now."""
        self._h = c.RELEASED


class AdamW(Optimizer):
    """Options are those of gw_adamw_options: lr, beta1, beta2, eps, weight_decay, schedule, warmup_steps, rules, ..."""

    def __init__(self, model: Module | ShardGroup | Sequence[ShardGroup], **options: Any) -> None:
        if "betas" in options:
            options["beta1"], options["beta2"] = options.pop("betas")
        super().__init__("adamw", model, options)


class SGD(Optimizer):
    """Options are those of gw_sgd_options: lr, momentum, nesterov, weight_decay, schedule, rules, ..."""

    def __init__(self, model: Module | ShardGroup | Sequence[ShardGroup], **options: Any) -> None:
        super().__init__("sgd", model, options)


def _batch(inputs: Any, targets: Any, weight: int | None, shifted: bool) -> Any:
    sides: dict[str, Any] = {}
    for name, given in (("input", inputs), ("target", targets)):
        arrays = given if isinstance(given, (tuple, list)) else () if given is None else (given,)
        views = [borrow(a, f"{name}s[{i}]" if len(arrays) > 1 else f"{name}s", ANY) for i, a in enumerate(arrays)]
        sides[f"{name}s"], sides[f"{name}_count"] = block("v", views), len(views)
    return struct("gw_batch", weight=-1 if weight is None else weight, shifted=shifted, **sides)


def train_step(model: Module, optimizer: Optimizer, inputs: Array | Sequence[Array],
               targets: Array | Sequence[Array] | None = None, *, weight: int | None = None, shifted: bool = False,
               **options: Any) -> StepResult:
    """Collective. One step over the rows of this rank's data coordinate. `weight`: items that count (None: labels that
    are not -100); `shifted`: the labels are the next tokens already. Options: max_grad_norm, microbatches, ..."""
    made = struct("gw_step_result")
    c.gw_train_step(model._h, optimizer._h, _batch(inputs, targets, weight, shifted), struct("gw_step_options", **options),
                    None, made)
    return _result(made)


def eval_step(model: Module, inputs: Array | Sequence[Array], targets: Array | Sequence[Array] | None = None, *,
              weight: int | None = None, shifted: bool = False, **options: Any) -> StepResult:
    """Collective. The loss of a batch; changes nothing."""
    made = struct("gw_step_result")
    c.gw_eval_step(model._h, _batch(inputs, targets, weight, shifted), struct("gw_step_options", **options), None, made)
    return _result(made)
