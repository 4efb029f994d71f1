"""Options of sharding, from the keywords of parallelize() and its like."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from .arrays import DTypeLike, dtype_of
from .enums import ContextMethod, Recompute, StageSplit, Strategy
from .members import member
from .mesh import Gangs
from .names import ContextMethodLike, PipelineSchedule, RecomputeLike, StageSplitLike, StrategyLike
from .plan import Plan, plan_options
from .structs import block, handle_of, struct


def shard_options(*, strategy: StrategyLike, dtype_rules: Mapping[str, DTypeLike] | None, **fields: Any) -> Any:
    """gw_shard_options from the keywords of fully_shard()."""
    for name in [name for name in fields if name.endswith("_dtype")]:
        fields[name] = dtype_of(fields[name])
    rules = [struct("gw_dtype_rule", pattern=pattern, dtype=dtype_of(dtype)) for pattern, dtype in (dtype_rules or {}).items()]
    return struct("gw_shard_options", strategy=member(Strategy, strategy, "strategy"), rules=block("s", rules),
                  rule_count=len(rules), **fields)


def parallel_options(
    *, master_dtype: DTypeLike, recompute: RecomputeLike, recompute_every: int, recompute_ratio: float,
    activation_offload: bool, seed: int,
    plan: Plan, sequence_parallel: bool, loss_parallel: bool, overlap_chunks: int,
    context_method: ContextMethodLike, schedule: PipelineSchedule | None,
    schedule_csv: str | None, microbatches: int, stages_per_rank: int, most_unsharded: int, stage_split: StageSplitLike,
    first_layers: Sequence[int], **shard: Any,
) -> Any:
    """gw_parallel_options from the keywords of parallelize()."""
    pipeline = struct("gw_pipeline_options", schedule=schedule, schedule_csv=schedule_csv, microbatches=microbatches,
                      stages_per_rank=stages_per_rank, shard_actions=most_unsharded)
    layers = list(first_layers)
    return struct(
        "gw_parallel_options", shard=shard_options(**shard), master_dtype=dtype_of(master_dtype),
        recompute=member(Recompute, recompute, "recompute"), recompute_every=recompute_every,
        recompute_ratio=recompute_ratio, activation_offload=activation_offload, seed=seed,
        tensor_parallel=plan_options(plan, sequence_parallel, loss_parallel, overlap_chunks),
        context_method=member(ContextMethod, context_method, "context_method"), pipeline=pipeline,
        stage_split=member(StageSplit, stage_split, "stage_split"), first_layers=block("l", layers),
        first_layer_count=len(layers))


def gangs_of(gangs: Gangs | None) -> Any:
    """Their handle; None: the library decides."""
    return None if gangs is None else handle_of(gangs, Gangs, "gangs")
