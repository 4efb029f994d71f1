"""Tensor parallel plans: which modules are split over tp, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence, Union

from . import _low as c
from .enums import Style
from .members import member
from .names import StyleLike
from .structs import block, struct


@dataclass(frozen=True)
class Placement:
    """How a value is placed over the ranks of tp: Shard(dim), Replicate(), Varying() or Partial()."""

    kind: int
    dim: int = 0


def Shard(dim: int) -> Placement:
    """Each rank has its part of a dim; -1: the last one."""
    return Placement(c.GW_PLACEMENT_SHARD, dim)


def Replicate() -> Placement:
    """One value, on all ranks; its gradient is one value, too."""
    return Placement(c.GW_PLACEMENT_REPLICATE)


def Varying() -> Placement:
    """All ranks have the value; its gradient is the sum of theirs."""
    return Placement(c.GW_PLACEMENT_VARYING)


def Partial() -> Placement:
    """The value is the sum of the ranks' parts."""
    return Placement(c.GW_PLACEMENT_PARTIAL)


@dataclass(frozen=True)
class PlanRow:
    """A row of a tensor parallel plan: modules whose whole path matches ("*" does not match a dot, "**" does), and how they are
    split. Styles: "colwise", "rowwise", "sequence_parallel", "replicate", "prepare_input", "prepare_output". input: how the first
    input comes; output: how the first output is wanted; None: the style's. prepare_input and prepare_output move a value from
    `input` to `output`."""

    pattern: str
    style: StyleLike
    input: Placement | None = None
    output: Placement | None = None

    def struct(self) -> Any:
        """For C."""
        default = Placement(c.GW_PLACEMENT_DEFAULT)
        before, after = self.input or default, self.output or default
        return struct("gw_plan_row", pattern=self.pattern, style=member(Style, self.style, "style"), input=before.kind,
                      input_dim=before.dim, output=after.kind, output_dim=after.dim)


Plan = Union[str, Sequence[PlanRow], None]


def plan_options(plan: Plan, sequence_parallel: bool, loss_parallel: bool, overlap_chunks: int) -> Any:
    """gw_tensor_parallel_options from the keywords of tensor_parallel()."""
    rows = [] if plan is None or isinstance(plan, str) else [row.struct() for row in plan]
    return struct("gw_tensor_parallel_options", plan=plan if isinstance(plan, str) else None, rows=block("s", rows),
                  row_count=len(rows), sequence_parallel=sequence_parallel, loss_parallel=loss_parallel,
                  overlap_chunks=overlap_chunks)
