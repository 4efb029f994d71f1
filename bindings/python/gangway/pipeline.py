"""Pipelines of stages that you compute by yourself: you pull actions, compute them, and hand the results back; the library
runs the schedule and moves what goes between the stages. A model of this library needs none of this: parallelize() over a
mesh with pp cuts it into stages.

    with gw.Pipeline(gangs["pp"], schedule="zb-h1", microbatches=8) as pipe:
        for action in pipe:                                  # one pass
            m = action.microbatch
            if action.kind is gw.ActionKind.FORWARD:
                x[m] = batch[m] if action.first_stage else action.inputs[0]
                y = stage(x[m])
                pipe.done(*([] if action.last_stage else [y]))
            ...
        pipe.run(compute)                                    # or: compute(action) -> outputs, for each action of a pass

PyTorch modules as stages, with their autograd: TorchStages.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Callable, Iterator, Sequence, Union

from . import _low as c
from .arrays import ANY, Array, NewArray, kind_of, known_kind
from .enums import ActionKind
from .gang import Gang
from .names import Kind, PipelineSchedule
from .structs import block, handle_of, struct
from .tensors import Tensor


@dataclass(frozen=True, repr=False)
class Action:
    """What to compute next.

    FORWARD: inputs are what the stage before made, none on the first stage; the results are the stage's outputs, none on
    the last stage. BACKWARD and INPUT_GRADIENT: inputs are gradients of those outputs (None: of no floating type), none on
    the last stage; the results are the gradients of the forward's inputs, none on the first stage. WEIGHT_GRADIENT, UNSHARD,
    RESHARD and REDUCE_GRAD have neither inputs nor results. Inputs may be kept as long as you want."""

    kind: ActionKind
    stage: int
    microbatch: int | None
    first_stage: bool
    last_stage: bool
    training: bool
    inputs: tuple[NewArray | None, ...] = ()

    def __repr__(self) -> str:
        place = f"stage {self.stage}" + ("" if self.microbatch is None else f", microbatch {self.microbatch}")
        shapes = ["None" if x is None else str(list(x.shape)) for x in self.inputs]
        return f"<Action {self.kind.name}: {place}{', inputs ' if shapes else ''}{', '.join(shapes)}>"


Results = Union[Array, Sequence[Union[Array, None]], None]
"""What a computed action gives: nothing, an array, or several of which some may be None."""


class Pipeline:
    """Collective over the gang, whose rank r does row r of the schedule.

    schedule: "gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2", "zbv" or "dualpipev"; None: "1f1b"; or a
    whole one as schedule_csv, a row for each rank, with cells like 2F0, 0SEND_B3, 1UNSHARD.
    microbatches: of a pass; those of a schedule_csv are its own.
    stages_per_rank: 0: the schedule's own.
    most_unsharded: adds UNSHARD, RESHARD and REDUCE_GRAD, with so many stages of a rank unsharded at a time; 0: none.
    kind: the framework of the inputs: "numpy" (on a GPU copies on the host), "torch", "jax" or "tensor".

    One thread at a time. All ranks pass together. A rank that releases its pipeline in the middle of a pass, or leaves its
    `with` there, ends the pass on all ranks: their calls raise Aborted."""

    def __init__(
        self, gang: Gang, *, schedule: PipelineSchedule | None = None, microbatches: int = 0, stages_per_rank: int = 0,
        most_unsharded: int = 0, schedule_csv: str | None = None, kind: Kind = "numpy",
    ) -> None:
        options = struct("gw_pipeline_options", schedule=schedule, schedule_csv=schedule_csv, microbatches=microbatches,
                         stages_per_rank=stages_per_rank, shard_actions=most_unsharded)
        self.kind = known_kind(kind)  # before any peer waits for this rank
        self._h = c.gw_pipeline_create(handle_of(gang, Gang, "gang"), options)
        self._action = struct("gw_pipeline_action")
        info = struct("gw_pipeline_info")
        c.gw_pipeline_describe(self._h, info)
        self.gang = gang
        self.schedule = schedule or ("csv" if schedule_csv is not None else "1f1b")
        self.stages: int = info.stages
        self.microbatches: int = info.microbatches
        self.rank: int = info.rank
        self.has_shard_actions = most_unsharded > 0 or "UNSHARD" in (schedule_csv or "")
        self.local_stages = tuple(s for s in range(self.stages) if self.stage_rank(s) == self.rank)
        self._training = True

    def __repr__(self) -> str:
        if self._h is c.RELEASED:
            return "<Pipeline: released>"
        own = ", ".join(map(str, self.local_stages))
        return f"<Pipeline {self.schedule}: {self.stages} stages, {self.microbatches} microbatches; rank {self.rank} has {own}>"

    def stage_rank(self, stage: int) -> int:
        """Local. The rank of the gang that runs a stage."""
        return int(c.gw_pipeline_stage_rank(self._h, stage))

    @property
    def training(self) -> bool:
        """False: the passes that follow are forwards alone. Equal on all ranks; set between passes."""
        return self._training

    @training.setter
    def training(self, training: bool) -> None:
        c.gw_pipeline_set_training(self._h, int(training))
        self._training = bool(training)

    def next(self) -> Action | None:
        """Waits for the inputs of the next action; None: the pass is over, and the next call begins another one."""
        raw = self._action
        c.gw_pipeline_next(self._h, self.gang._place.stream, raw)
        if raw.kind == c.GW_ACTION_END:
            return None
        handles = [c.gw_pipeline_input(self._h, i) for i in range(raw.input_count)]
        return Action(ActionKind(raw.kind), raw.stage, None if raw.microbatch < 0 else raw.microbatch, bool(raw.first_stage),
                      bool(raw.last_stage), bool(raw.training),
                      tuple(None if handle is None else Tensor(handle).to(self.kind) for handle in handles))

    def done(self, *outputs: Array | None) -> None:
        """Local. Ends the action of the last next() with its results, which are copied. After a refusal the action is still
        to be done."""
        place = self.gang._place
        views = [None if x is None else place.borrow(_plain(x), f"outputs[{i}]", ANY) for i, x in enumerate(outputs)]
        c.gw_pipeline_done(self._h, block("v", views), len(views), place.stream)

    def __iter__(self) -> Iterator[Action]:
        """The actions of one pass; each is ended by done()."""
        while (action := self.next()) is not None:
            yield action

    def run(self, compute: Callable[[Action], Results]) -> None:
        """One pass: done() with what compute(action) gives, for each action."""
        for action in self:
            found: Any = compute(action)
            if found is None:
                self.done()
            elif isinstance(found, (tuple, list)):
                self.done(*found)
            else:
                self.done(found)

    def release(self) -> None:
        """Drops the handle now. Never waits."""
        self._h = c.RELEASED

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def _plain(array: Any) -> Any:
    """PyTorch gives out no memory of a tensor that autograd follows."""
    return array.detach() if kind_of(array) == "torch" else array
