"""PyTorch modules as the stages of a pipeline."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from .arrays import Array
from .enums import ActionKind
from .errors import InvalidArgument
from .numpy_arrays import refuse_masked
from .pipeline import Action, Pipeline
from .structs import handle_of, told
from .torch_modules import TorchGroup

Tensors = tuple[Any, ...]


@dataclass
class _Kept:
    """Of one microbatch on one stage, from its forward to its last backward half."""

    inputs: Tensors  # none on the first stage, whose data need no gradient
    outputs: Tensors  # that have a gradient
    gradients: Tensors = ()  # of the outputs, for the weight half


class TorchStages:
    """Trains PyTorch modules as the stages of a pipeline, with their own autograd:

        pipe = gw.Pipeline(gangs["pp"], schedule="zbv", microbatches=8, kind="torch")
        stages = gw.TorchStages(pipe, {s: make_stage(s) for s in pipe.local_stages}, loss=loss)
        total = stages.step(tokens, targets=labels)       # the gradients are in the modules' parameters
        optimizer.step()

    stages: the modules of this rank's stages by number, or their shard groups (gw.shard over the data ranks of a stage, as
    of gw.Gangs.create(gangs["dp"])). Groups are unsharded and resharded as the schedule says (without such actions:
    for the whole pass), and a pass reduces their gradients. Gradients of plain modules are this rank's own: sum them over
    the data ranks yourself. A stage takes one tensor or several and returns one or a tuple; tensors of integers travel, too.
    loss(*outputs, *targets): a scalar for each microbatch. Nothing divides: gradients are of the sum over the microbatches,
    so a loss that sums over items goes with opt.step(scale=1 / items). Groups in float16 need one loss scale over all stages:
    give each optimizer the same fixed loss_scale and multiply the loss by it.

    Schedules with input and weight halves go through a stage's graph twice, once to its inputs and once to its parameters:
    the halves cost together up to 1.5 backwards.

    When a rank raises in a step, all of them do: the pipeline is released, and its gang and those of the groups are aborted.
    Gradients that the pass had already made stay: zero them if the modules are used on."""

    def __init__(self, pipeline: Pipeline, stages: Mapping[int, Any], *, loss: Callable[..., Any]) -> None:
        try:
            self._torch = importlib.import_module("torch")
        except ImportError:
            raise ImportError("gw.TorchStages takes PyTorch modules, and PyTorch is not installed: pip install torch") from None
        handle_of(pipeline, Pipeline, "pipeline")
        if pipeline.kind != "torch":
            raise InvalidArgument(f'the pipeline gives arrays of "{pipeline.kind}": make it with kind="torch"')
        if sorted(stages) != list(pipeline.local_stages):
            raise InvalidArgument(f"stages has {sorted(stages)}, but this rank runs {list(pipeline.local_stages)}")
        self._pipe, self._loss = pipeline, loss
        self._groups = {s: stage for s, stage in stages.items() if isinstance(stage, TorchGroup)}
        self._modules = {s: self._module(s, stage) for s, stage in stages.items()}
        self._unsharded: set[int] = set()
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._inputs: list[Tensors] = []
        self._targets: list[Tensors] = []
        self._total = 0.0
        self._refusal: Exception | None = None

    def _module(self, stage: int, given: Any) -> Any:
        module = given.module_of_torch if isinstance(given, TorchGroup) else given
        if not isinstance(module, self._torch.nn.Module):
            raise TypeError(f"stages[{stage}] is a {type(module).__name__}, not a torch.nn.Module or a group by gw.shard")
        return module

    def __repr__(self) -> str:
        modules = ", ".join(f"{s}: {type(module).__name__}" for s, module in self._modules.items())
        return f"<TorchStages {modules}; {self._pipe!r}>"

    def step(self, *inputs: Array, targets: Array | Sequence[Array] = ()) -> float:
        """Collective. One pass, forward and backward; the sum of the losses, on every rank. `inputs` are for the rank of the
        first stage, `targets` for that of the last; others may leave them out. Each is split over dim 0 into the
        microbatches."""
        return self._pass(inputs, targets, True)

    def eval_step(self, *inputs: Array, targets: Array | Sequence[Array] = ()) -> float:
        """Collective. As step(), without gradients."""
        return self._pass(inputs, targets, False)

    def _pass(self, inputs: Sequence[Array], targets: Array | Sequence[Array], training: bool) -> float:
        self._total = 0.0
        try:
            if self._pipe.training != training:
                self._pipe.training = training
            self._refusal = None
            try:
                self._prepare(inputs, targets)
            except Exception as error:
                self._refusal = error
            self._pipe.run(self._compute)
            if not self._pipe.has_shard_actions:
                self._all_groups(ActionKind.REDUCE_GRAD, ActionKind.RESHARD)
            return self._pipe.gang.all_sum(self._total)
        except BaseException as error:
            self._give_up(error)
            raise

    def _prepare(self, inputs: Sequence[Array], targets: Array | Sequence[Array]) -> None:
        self._inputs = self._split(inputs)
        self._targets = self._split(targets if isinstance(targets, (tuple, list)) else (targets,))
        if not self._pipe.has_shard_actions:
            self._all_groups(ActionKind.UNSHARD)

    def _split(self, given: Sequence[Array]) -> list[Tensors]:
        count = self._pipe.microbatches
        for i, x in enumerate(given):
            refuse_masked(x, f"array {i}")
        parts = [self._torch.as_tensor(x).tensor_split(count) for x in given]
        return [tuple(part[m] for part in parts) for m in range(count)]

    def _all_groups(self, *kinds: ActionKind) -> None:
        for stage in self._groups:
            for kind in kinds:
                self._drive(stage, kind)

    def _drive(self, stage: int, kind: ActionKind) -> None:
        group = self._groups.get(stage)
        if group is None:
            return
        if kind is ActionKind.UNSHARD:
            group.unshard()
            self._unsharded.add(stage)
        elif kind is ActionKind.RESHARD:
            self._unsharded.discard(stage)
            group.reshard()
        elif self._pipe.training:
            group.reduce()

    def _give_up(self, error: BaseException) -> None:
        """Peers may wait for this rank, in the pass, over the data ranks or in the sum of the losses: all of it breaks."""
        why = f"TorchStages, pipeline rank {self._pipe.rank}: {told(error)}"
        self._pipe.release()
        self._pipe.gang.abort(why)
        for group in self._groups.values():
            group.abandon(why)
        self._kept.clear()
        self._unsharded.clear()

    def _compute(self, action: Action) -> Sequence[Array | None]:
        if self._refusal is not None:  # only a pass that has begun can be ended on all ranks
            raise self._refusal
        if action.microbatch is None:
            self._drive(action.stage, action.kind)
            return ()
        place = (action.stage, action.microbatch)
        if action.kind is ActionKind.FORWARD:
            return self._forward(action, place)
        if action.kind is ActionKind.WEIGHT_GRADIENT:
            self._with_weights(action.stage, lambda: self._weight_gradient(action.stage, self._kept.pop(place)))
            return ()
        kept = self._kept[place]
        given = self._seeds(kept) if action.last_stage else tuple(g for g in action.inputs if g is not None)
        if action.kind is ActionKind.BACKWARD:
            del self._kept[place]
            return self._backward(kept, given)
        kept.gradients = given
        return self._input_gradient(kept)

    def _seeds(self, kept: _Kept) -> Tensors:
        return tuple(self._torch.ones_like(loss) for loss in kept.outputs)

    def _forward(self, action: Action, place: tuple[int, int]) -> Sequence[Array]:
        if action.first_stage:
            given = self._inputs[place[1]]
        else:  # leaves that autograd follows
            given = tuple(x.requires_grad_(action.training and x.is_floating_point()) for x in action.inputs if x is not None)
        with self._torch.set_grad_enabled(action.training):
            made = self._modules[action.stage](*given)
            outputs = tuple(made) if isinstance(made, (tuple, list)) else (made,)
            if action.last_stage:
                outputs = (self._loss(*outputs, *self._targets[place[1]]),)
                self._total += float(outputs[0].detach())
        if action.training:
            self._kept[place] = _Kept(() if action.first_stage else given, tuple(y for y in outputs if y.is_floating_point()))
        return () if action.last_stage else outputs

    def _followed(self, kept: _Kept, gradients: Tensors) -> tuple[list[Any], list[Any]]:
        """The outputs that depend on something with a gradient, and their gradients."""
        pairs = [(y, g) for y, g in zip(kept.outputs, gradients) if y.requires_grad]
        return [y for y, _ in pairs], [g for _, g in pairs]

    def _of_inputs(self, kept: _Kept, gradients: Mapping[int, Any]) -> list[Array | None]:
        """For each input its gradient: zeros where the outputs do not depend on it, None where it is no floating tensor."""
        found: list[Array | None] = []
        for i, x in enumerate(kept.inputs):
            gradient = gradients.get(i)
            found.append(None if not x.is_floating_point() else self._torch.zeros_like(x) if gradient is None else gradient)
        return found

    def _backward(self, kept: _Kept, gradients: Tensors) -> Sequence[Array | None]:
        outputs, seeds = self._followed(kept, gradients)
        if outputs:
            self._torch.autograd.backward(outputs, seeds)
        return self._of_inputs(kept, {i: x.grad for i, x in enumerate(kept.inputs) if x.requires_grad})

    def _input_gradient(self, kept: _Kept) -> Sequence[Array | None]:
        outputs, seeds = self._followed(kept, kept.gradients)
        wanted = {i: x for i, x in enumerate(kept.inputs) if x.requires_grad}
        found: Sequence[Any] = ()
        if outputs and wanted:
            found = self._torch.autograd.grad(outputs, list(wanted.values()), seeds, retain_graph=True, allow_unused=True)
        return self._of_inputs(kept, dict(zip(wanted, found)))

    def _with_weights(self, stage: int, body: Callable[[], None]) -> None:
        """A schedule takes a weight half to need no weights; autograd goes through the whole stage and does."""
        if stage not in self._groups or stage in self._unsharded:
            return body()
        self._drive(stage, ActionKind.UNSHARD)
        body()
        self._drive(stage, ActionKind.RESHARD)

    def _weight_gradient(self, stage: int, kept: _Kept) -> None:
        outputs, seeds = self._followed(kept, kept.gradients)
        parameters = [p for p in self._modules[stage].parameters() if p.requires_grad]
        if not (outputs and parameters):
            return
        for p, gradient in zip(parameters, self._torch.autograd.grad(outputs, parameters, seeds, allow_unused=True)):
            if gradient is not None:
                p.grad = gradient if p.grad is None else p.grad + gradient
