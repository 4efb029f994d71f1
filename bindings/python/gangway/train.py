"""Optimizers and training steps."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from . import _low as c
from . import low
from .arrays import ANY, HOST, Array, Place, dtype_of
from .dataset import DataBatch
from .enums import Open, SkipReason
from .groups import ShardGroup
from .module import Module
from .structs import block, handle_of, struct


@dataclass(frozen=True)
class Rule:
    """For parameters whose whole name matches ("*" stands for characters but dots, "**" for any characters: "**.bias"); the
    last match wins. weight_decay -1: the optimizer's. adamw, of Muon alone: 1: AdamW steps the parameter; 0: Muon does; -1: as
    without a rule."""

    pattern: str
    lr_scale: float = 1.0
    weight_decay: float = -1.0
    frozen: bool = False
    adamw: int = -1


@dataclass(frozen=True)
class StepResult:
    """What a step did. `loss` is the global mean, on every rank; `grad_norm` that before clipping, -1: not taken; both are
    unscaled. `weight_sum`: what the loss was divided by. `loss_scale`: that the step used, 1: none. `tokens`: of the batches of
    all data ranks, padding included. `stop`: a rank asked all ranks to stop after this step; equal on every rank."""

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
    loss_scale: float
    tokens: int
    stop: bool
    weight_sum: float


def _result(made: Any) -> StepResult:
    return StepResult(made.loss, made.grad_norm, made.tokens_per_second, made.seconds, made.wait_seconds, made.lr,
                      made.weight, made.step, bool(made.skipped), SkipReason(made.skip_reason), made.loss_scale, made.tokens,
                      bool(made.stop), made.weight_sum)


class Optimizer:
    """Steps the shards of a model, or of shard groups: AdamW(model), SGD(model). All optimizers have these options:

    lr: the learning rate after a warm-up of warmup_steps. schedule: "constant", or a fall to last_lr_ratio of
    lr at total_steps (see Schedule).
    weight_decay: leaves 1-d parameters (biases, norms) alone; a Rule that matches one says otherwise.
    rules: by name pattern; the last match wins.
    ema_decay: decay of an average of the parameters, for evaluations inside averaged(); 0: none.

    loss_scale: what the loss is multiplied by for backward, and gradients divided by. 0: where a parameter is computed in f16 a
    dynamic one, from initial_loss_scale, by the rule of torch.amp.GradScaler: a step whose gradients are not finite is skipped
    and halves it, loss_scale_interval finite steps in a row double it, within 1 and 2**24; elsewhere none. 1: none."""

    def __init__(self, kind: str, model: Module | ShardGroup | Sequence[ShardGroup], *, rules: Sequence[Rule],
                 **fields: Any) -> None:
        self.model = model if isinstance(model, Module) else ShardGroup.module(model)
        made = [struct("gw_optimizer_rule", **vars(rule)) for rule in rules]
        options = struct(f"gw_{kind}_options", rules=block("s", made), rule_count=len(made), **fields)
        self._h = getattr(c, f"gw_{kind}_create")(self.model._h, options)

    def __repr__(self) -> str:
        if self._h is c.RELEASED:
            return f"<{type(self).__name__}: released>"
        return f"<{type(self).__name__}: lr {self.lr:g}, {self.steps} steps>"

    def step(self, *, scale: float = 1.0, max_grad_norm: float = 0.0, norm_type: float = 2.0,
             allow_non_finite: bool = False, stop: bool = False, gradient_norms: bool = False) -> StepResult:
        """Collective, for loops of your own. Divides the gradients by loss_scale, scales them, clips their norm (max_grad_norm 0:
        no clipping), steps, and empties them. norm_type: over 0 and at most 64 (32 beside a loss scale), or math.inf. A gradient
        that is not finite skips the step on every rank, unless allow_non_finite, which a dynamic loss scale refuses. stop,
        gradient_norms: as in train_step()."""
        made = struct("gw_step_result")
        step = struct("gw_step_options", scale=scale, max_grad_norm=max_grad_norm, norm_type=norm_type,
                      allow_non_finite=allow_non_finite, stop=stop, gradient_norms=gradient_norms)
        c.gw_optimizer_step(self._h, step, self.model._place.stream, made)
        return _result(made)

    @property
    def steps(self) -> int:
        """Steps taken; set it alike on every rank, for checkpoints of your own."""
        return int(c.gw_optimizer_steps(self._h))

    @steps.setter
    def steps(self, steps: int) -> None:
        c.gw_optimizer_set_steps(self._h, steps)

    @property
    def base_lr(self) -> float:
        """What the schedule multiplies."""
        return float(c.gw_optimizer_base_lr(self._h))

    @property
    def lr(self) -> float:
        """The learning rate of the next step; set it alike on every rank."""
        return float(c.gw_optimizer_lr(self._h))

    @lr.setter
    def lr(self, lr: float) -> None:
        c.gw_optimizer_set_lr(self._h, lr)

    def set_schedule(self, factor: Callable[[int], float]) -> None:
        """Takes factor(step) in the place of schedule and warm-up: what lr is multiplied by; step counts from 1. Every rank must
        give equal factors."""
        c.gw_optimizer_set_schedule(self._h, low.py_schedule, factor, low.py_free)

    @property
    def loss_scale(self) -> float:
        """The factor of the loss in the next step; 1: none. A loop of your own multiplies its loss by it, or starts its backward
        from it: Frame(model, loss_scale=opt.loss_scale / items). Set it alike on every rank, between step and backward."""
        return float(c.gw_optimizer_loss_scale(self._h))

    @loss_scale.setter
    def loss_scale(self, loss_scale: float) -> None:
        c.gw_optimizer_set_loss_scale(self._h, loss_scale)

    @property
    def finite_steps(self) -> int:
        """In a row, since a dynamic loss scale changed."""
        return int(c.gw_optimizer_finite_steps(self._h))

    def restore_loss_scale(self, loss_scale: float, finite_steps: int) -> None:
        """For checkpoints of your own: the loss scale with its counter."""
        c.gw_optimizer_restore_loss_scale(self._h, loss_scale, finite_steps)

    def swap_ema(self) -> None:
        """Collective. Exchanges the parameters and their averages (ema_decay); a second call swaps back, and no step is taken
        before. See averaged()."""
        c.gw_optimizer_swap_ema(self._h, self.model._place.stream)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Collective. Inside, the model has the averages of its parameters: with opt.averaged(): eval_step(model, x)."""
        self.swap_ema()
        try:
            yield
        finally:
            self.swap_ema()

    def release(self) -> None:
        """Drops the handle now."""
        self._h = c.RELEASED


def optimizer(kind: str, model: Module | ShardGroup | Sequence[ShardGroup], **options: Any) -> Optimizer:
    """An optimizer by the name of its kind, for programs that read it from a file: optimizer("adamw", model, lr=1e-3,
    schedule="cosine"). A kind is the name of its class in lower case. The options are the keywords of that class without rules
    and betas; InvalidArgument lists them where the kind has no such option."""
    made = Optimizer.__new__(Optimizer)
    made.model = model if isinstance(model, Module) else ShardGroup.module(model)
    values = [written(name, value) for name, value in options.items()]
    made._h = c.gw_optimizer_create(made.model._h, kind, block("t", list(options)), block("t", values), len(values))
    return made


def written(name: str, value: Any) -> str:
    """An option as the library reads it from a text."""
    if name.endswith("dtype"):
        return str(c.gw_dtype_name(dtype_of(value)))
    if isinstance(value, bool):
        return str(value).lower()
    return value.name.lower() if isinstance(value, Open) else str(value)


def _batch(place: Place, inputs: Any, targets: Any, weight: int | None, shift_labels: bool, documents: Any, positions: Any,
           token_weights: Any = None) -> Any:
    if isinstance(inputs, DataBatch):
        given = (targets, weight, documents, positions, token_weights)
        if shift_labels or any(one is not None for one in given):
            raise TypeError("a batch of a Dataset has its own targets, weight and documents, and nothing is to be shifted")
        return inputs.raw_batch()
    sides: dict[str, Any] = {}
    for name, given in (("input", inputs), ("target", targets)):
        arrays = given if isinstance(given, (tuple, list)) else () if given is None else (given,)
        views = [place.borrow(a, f"{name}s[{i}]" if len(arrays) > 1 else f"{name}s", ANY) for i, a in enumerate(arrays)]
        sides[f"{name}s"], sides[f"{name}_count"] = block("v", views), len(views)
    for name, given in (("documents", documents), ("positions", positions)):
        if given is not None:
            sides[name] = block("v", [HOST.borrow(given, name, ANY)])
    if token_weights is not None:
        sides["token_weights"] = block("v", [place.borrow(token_weights, "token_weights", ANY)])
    return struct("gw_batch", weight=-1 if weight is None else weight, shift_labels=shift_labels, **sides)


def train_step(
    model: Module, optimizer: Optimizer, inputs: Array | Sequence[Array] | DataBatch,
    targets: Array | Sequence[Array] | None = None, *, weight: int | None = None, shift_labels: bool = False,
    documents: Array | None = None, positions: Array | None = None, token_weights: Array | None = None,
    microbatches: int = 1, max_grad_norm: float = 0.0, norm_type: float = 2.0, label_smoothing: float = 0.0, z_loss: float = 0.0,
    allow_non_finite: bool = False, stop: bool = False, replay: bool = False, gradient_norms: bool = False,
) -> StepResult:
    """Collective. One step over the rows of this rank's data coordinate; dim 0 of every array is the batch. A batch of a
    Dataset comes by itself.

    weight: items that count; None: labels that are not -100.
    targets: of a language model, labels (int64). None: the library makes them of the tokens, each of which predicts the next.
    Labels are used as they are: labels[i] is what tokens[i] must predict, -100 does not count.
    shift_labels: labels[i] belongs to tokens[i] itself, as Hugging Face's collators make labels; the library shifts them.
    documents: for rows that hold several: a number for each token, int32 or int64 [rows, sequence], on the host. Consecutive
    tokens with one number are a document, which attention does not leave; a negative number is padding. Labels that the library
    makes or shifts do not count at the last token of a document and in padding.
    positions: of the tokens, likewise; None: they count from 0 in each document.
    token_weights: of the labels, float32 or float64 of their shape: each multiplies the loss of its label, and may be zero or
    negative; shifted labels take theirs with them. The loss is divided by their sum, or by the sum of `weight` over the ranks.
    label_smoothing: this share of a decoder's loss is the mean over all ids. z_loss: adds this times the squared log of the
    softmax's sum.
    max_grad_norm, norm_type: clips the norm of the gradients; 0: no clipping. norm_type: over 0 and at most 64 (32
    beside a loss scale), or math.inf.
    allow_non_finite: else a loss or gradient that is not finite skips the step on every rank; not beside a dynamic loss scale.
    stop: this rank asks all ranks to stop after this step, for instance since it got a signal. The step runs as usual, and `stop`
    of its result is True on every rank.
    replay: computes loss and gradients twice and compares their bits; others are a Mismatch on every rank, with rank and parameter.
    gradient_norms: the step computes the norm of each parameter's gradient, for model.gradient_norms()."""
    made = struct("gw_step_result")
    options = struct("gw_step_options", microbatches=microbatches, max_grad_norm=max_grad_norm, norm_type=norm_type,
                     label_smoothing=label_smoothing, z_loss=z_loss, allow_non_finite=allow_non_finite, stop=stop,
                     replay=replay, gradient_norms=gradient_norms)
    c.gw_train_step(handle_of(model, Module, "model"), handle_of(optimizer, Optimizer, "optimizer"),
                    _batch(model._place, inputs, targets, weight, shift_labels, documents, positions, token_weights), options,
                    model._place.stream, made)
    return _result(made)


def eval_step(
    model: Module, inputs: Array | Sequence[Array] | DataBatch, targets: Array | Sequence[Array] | None = None, *,
    weight: int | None = None, shift_labels: bool = False, documents: Array | None = None, positions: Array | None = None,
    token_weights: Array | None = None, label_smoothing: float = 0.0, z_loss: float = 0.0, microbatches: int = 1,
) -> StepResult:
    """Collective. The loss of a batch; changes nothing. Arguments as in train_step()."""
    made = struct("gw_step_result")
    c.gw_eval_step(handle_of(model, Module, "model"),
                   _batch(model._place, inputs, targets, weight, shift_labels, documents, positions, token_weights),
                   struct("gw_step_options", microbatches=microbatches, label_smoothing=label_smoothing, z_loss=z_loss),
                   model._place.stream, made)
    return _result(made)


def log_probs(
    model: Module, inputs: Array | Sequence[Array] | DataBatch, targets: Array | Sequence[Array] | None = None, *,
    shift_labels: bool = False, documents: Array | None = None, positions: Array | None = None, microbatches: int = 1,
) -> np.ndarray[Any, Any]:
    """Collective. The log-probability that a decoder gives each label, float64 in the shape of the labels; 0 where a label does
    not count. Whole logits never exist. Arguments as in train_step(). The gradients of a loss of these numbers are those of a
    train_step() of the same labels with token_weights, which are the negative derivatives of the loss by them, and with the
    number of rows or pairs as weight."""
    if isinstance(inputs, DataBatch):
        shape: tuple[int, ...] = inputs.labels.shape
    else:
        labels: Any = inputs if targets is None else targets
        labels = labels[0] if isinstance(labels, (tuple, list)) else labels
        shape = tuple(np.shape(labels))
    count = int(np.prod(shape))
    room = bytearray(8 * count)
    c.gw_log_probs(handle_of(model, Module, "model"),
                   _batch(model._place, inputs, targets, None, shift_labels, documents, positions),
                   struct("gw_step_options", microbatches=microbatches), model._place.stream, room, count)
    return np.frombuffer(room, np.float64).reshape(shape)
