"""Own optimizers: a function that steps this rank's rows."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any, Callable, Sequence

from . import _low as c
from . import low
from ._low import View
from .arrays import NewArray, as_kind, known_kind
from .errors import InvalidState
from .groups import ShardGroup
from .members import member
from .module import Module
from .names import Kind
from .optimizers import Schedule, ScheduleLike
from .structs import block
from .train import Optimizer, Rule


@dataclass(frozen=True)
class OptimizerCall:
    """What a step sees of one parameter: this rank's rows, to be written in place. The arrays live as long as the call.

    gradient: unscaled and clipped. states: by name, zero at first. lr: with schedule and rules. step: counts from 1."""

    name: str
    value: NewArray
    gradient: NewArray
    states: dict[str, NewArray]
    lr: float
    weight_decay: float
    step: int


class _Stepper:
    """The library's way to the function. Holds no optimizer: what the library owns must not own the library's handle."""

    def __init__(self, step: Callable[[OptimizerCall], None], name: str, kind: str, states: Sequence[str]) -> None:
        self.step, self.name, self.kind, self.states = step, name, kind, list(states)

    def __call__(self, parameter: str, own: list[View], states: list[View], lr: float, weight_decay: float, step: int) -> None:
        arrays: list[Any] = [as_kind(view, self.kind) for view in own + states]
        self.step(OptimizerCall(parameter, arrays[0], arrays[1], dict(zip(self.states, arrays[2:])), lr, weight_decay, step))
        arrays.clear()
        if any(view.exports for view in own + states):
            gc.collect()
        kept = [name for view, name in zip(own + states, ["value", "gradient"] + self.states) if view.exports]
        if kept:
            raise InvalidState(f"{self.name}: the step of {parameter} kept {', '.join(kept)} after its end: copy what is kept, "
                               f"the memory is used for something else then")


class CustomOptimizer(Optimizer):
    """An optimizer whose step is a function of yours: step(call), for each parameter that has rows on this rank (OptimizerCall).

    states: names of what it keeps for each parameter, in the parameter's shape. name: in errors. kind: the framework of the
    arrays: "numpy" (not on a GPU), "torch", or "tensor" for Views. The other options are those of every optimizer: see
    Optimizer."""

    def __init__(
        self, model: Module | ShardGroup | Sequence[ShardGroup], step: Callable[[OptimizerCall], None], *,
        states: Sequence[str] = (), name: str = "custom", kind: Kind = "numpy", lr: float = 1e-3, weight_decay: float = 0.0,
        schedule: ScheduleLike = "constant", ema_decay: float = 0.0, warmup_steps: int = 0, total_steps: int = 0,
        last_lr_ratio: float = 0.0, decay_steps: int = 0, rules: Sequence[Rule] = (), loss_scale: float = 0.0,
        initial_loss_scale: float = 65536.0, loss_scale_interval: int = 2000,
    ) -> None:
        super().__init__(
            "custom_optimizer", model, states=block("t", list(states)), state_count=len(states), name=name, step=low.py_step,
            user=_Stepper(step, name, known_kind(kind), states), free_user=low.py_free, lr=lr, weight_decay=weight_decay,
            schedule=member(Schedule, schedule, "schedule"), ema_decay=ema_decay, warmup_steps=warmup_steps,
            total_steps=total_steps, last_lr_ratio=last_lr_ratio, decay_steps=decay_steps, rules=rules, loss_scale=loss_scale,
            initial_loss_scale=initial_loss_scale, loss_scale_interval=loss_scale_interval)
