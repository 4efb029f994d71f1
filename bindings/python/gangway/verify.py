"""A training step over a mesh against the same step on one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from . import _low as c
from . import low
from .arrays import HOST, Array
from .dataset import DataBatch
from .groups import ShardGroup
from .mesh import Gangs, current_gangs
from .module import Module
from .options import gangs_of
from .planner import parallel_of
from .structs import fields_of, handle_of, struct
from .train import _batch


@dataclass(frozen=True)
class Verified:
    """Of one rank, and with mesh_ of the mesh. parameters: that have gradients; differing: of their gradients."""

    loss: float
    mesh_loss: float
    grad_norm: float
    mesh_grad_norm: float
    parameters: int
    differing: int
    difference: float


def verify(
    build: Callable[[], Module], inputs: Array | Sequence[Array] | DataBatch,
    targets: Array | Sequence[Array] | None = None, gangs: Gangs | None = None, *, weight: int | None = None,
    shift_labels: bool = False, documents: Array | None = None, positions: Array | None = None,
    token_weights: Array | None = None, microbatches: int = 1, tolerance: float = 1e-8,
    parallel: Mapping[str, Any] | None = None,
) -> Verified:
    """Collective. Trains one step of the model that `build` describes over the gangs and on a single rank, both in f64, and
    compares losses, every gradient and the update. `Mismatch` names the first parameter whose gradient differs, in the order of
    backward, and by how much. Every rank computes the whole model alone, too, so give a small configuration of a large one.

    build: returns the same description at each call: lambda: gw.Llama(dim=64, layers=2). inputs, targets, weight, shift_labels,
    documents, positions, token_weights, microbatches: as in train_step(). parallel: the keywords of parallelize(); dtypes are
    not used."""
    over = gangs or current_gangs()
    place = HOST if over is None else over.root._place
    result = struct("gw_verify_result")
    options = struct("gw_verify_options", parallel=parallel_of(parallel), microbatches=microbatches, tolerance=tolerance)
    c.gw_verify(gangs_of(gangs), low.py_build, lambda: handle_of(build(), Module, "what build returns"),
                _batch(place, inputs, targets, weight, shift_labels, documents, positions, token_weights), options, result)
    return Verified(**{name: getattr(result, name) for name in fields_of(result)})


def verify_groups(
    step: Callable[[Gangs], tuple[float, ShardGroup | Sequence[ShardGroup]]], gangs: Gangs | None = None, *,
    tolerance: float = 1e-8,
) -> Verified:
    """Collective. The same for a program that computes by itself with shard groups: calls `step` with the gangs, and once more
    on every rank with gangs of that rank alone.

    step: makes its groups in float64 over the gangs that it gets, with equal first values each time, takes the rows of the batch
    that gangs.data_shard says, computes loss and gradients and reduces them. It returns the mean loss of the whole batch and the
    groups, and does not update them."""

    def once(handle: Any) -> tuple[float, Any]:
        loss, groups = step(Gangs(handle))
        return float(loss), handle_of(ShardGroup.module(groups), Module, "what step returns")

    result = struct("gw_verify_result")
    c.gw_verify_groups(gangs_of(gangs), low.py_groups_step, once, struct("gw_verify_options", tolerance=tolerance), result)
    return Verified(**{name: getattr(result, name) for name in fields_of(result)})
