"""Options of sharding, from the keywords of parallelize() and its like."""

from __future__ import annotations

from typing import Any, Mapping

from .arrays import DTypeLike, dtype_of
from .enums import ContextMethod, Recompute, StageSplit, Strategy, member
from .mesh import Gangs
from .structs import block, handle_of, struct


def parallel_options(kind: str, *, strategy: Strategy | str, dtype_rules: Mapping[str, DTypeLike] | None,
                     recompute: Recompute | str | None = None, **fields: Any) -> Any:
    """gw_parallel_options or gw_shard_options from the keywords of parallelize()."""
    for name in [name for name in fields if name.endswith("_dtype")]:
        fields[name] = dtype_of(fields[name])
    if recompute is not None:
        fields["recompute"] = member(Recompute, recompute, "recompute")
        fields["context_method"] = member(ContextMethod, fields["context_method"], "context_method")
        fields["stage_split"] = member(StageSplit, fields["stage_split"], "stage_split")
        layers = list(fields["first_layers"])
        fields.update(first_layers=block("l", layers), first_layer_count=len(layers))
    rules = [struct("gw_dtype_rule", pattern=pattern, dtype=dtype_of(dtype)) for pattern, dtype in (dtype_rules or {}).items()]
    return struct(kind, strategy=member(Strategy, strategy, "strategy"), rules=block("s", rules), rule_count=len(rules),
                  **fields)


def gangs_of(gangs: Gangs | None) -> Any:
    """Their handle; None: the library decides."""
    return None if gangs is None else handle_of(gangs, Gangs, "gangs")
