"""What a training would need, before it runs."""

from __future__ import annotations

import inspect
from typing import Any, Iterable, Mapping

from . import _low as c
from .arrays import DTypeLike, dtype_of
from .fp8 import fp8_options
from .lora import lora_options
from .module import Module
from .options import parallel_options
from .structs import block, fields_of, fill, struct
from .train import written

_AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
_PARALLEL = {name: parameter.default for name, parameter in inspect.signature(Module.parallelize).parameters.items()
             if parameter.kind is inspect.Parameter.KEYWORD_ONLY}


def _known(given: Mapping[str, Any], names: Iterable[str], argument: str) -> Mapping[str, Any]:
    known = set(names)
    for name in given:
        if name not in known:
            raise TypeError(f"{argument} has no option {name}; it has {', '.join(sorted(known))}")
    return given


def parallel_of(given: Mapping[str, Any] | None) -> Any:
    """gw_parallel_options from some of the keywords of parallelize()."""
    return parallel_options(**{**_PARALLEL, **_known(given or {}, _PARALLEL, "parallel")})


def plan_memory(
    decoder: Mapping[str, Any], *, mesh: Mapping[str, int] | None = None, parallel: Mapping[str, Any] | None = None,
    ranks: int = 1, microbatches: int = 0, rows: int = 1, sequence: int = 0, moment_dtype: DTypeLike = "f32",
    one_host: bool = False, lora: Mapping[str, Any] | None = None, fp8: Mapping[str, Any] | None = None,
    optimizer: str | None = None, optimizer_options: Mapping[str, Any] | None = None,
) -> tuple[int, dict[str, int]]:
    """Local. The rank that uses the most memory in a training, and its bytes by use, as in Module.memory(). They are exact: the
    library builds the model, splits it and trains it on a device without memory, by the code of a real run. That takes
    some seconds for large models.

        rank, use = gw.plan_memory(gw.Decoder.options_from("folder"), ranks=8, mesh={"tp": 2}, parallel={"recompute": "full"})

    decoder: the keywords of Decoder. mesh: those of Gangs.create; None: all ranks are dp_shard. parallel: those of parallelize().
    microbatches: of a step; 0: one, and twice pp over pp. rows: of a microbatch of a rank. sequence: tokens of a row; 0: the
    decoder's max_positions. moment_dtype: of AdamW's averages, without `optimizer`. one_host: the ranks are processes of one CPU
    host, and share gathered weights. lora, fp8: the keywords of lora_apply() and fp8_apply(); None: the whole model is trained, and
    no layer computes in FP8. optimizer, optimizer_options: a kind and its keywords, as for gw.optimizer(); None: AdamW."""
    model = struct("gw_decoder_options")
    _known(decoder, fields_of(model), "decoder")
    c.gw_decoder_options_from_family(decoder.get("family") or "llama", model)
    fill(model, **decoder)
    axes = None if mesh is None else struct("gw_mesh_options", **_known(mesh, _AXES, "mesh"))
    if optimizer is None and optimizer_options:
        raise TypeError("optimizer_options are given without an optimizer")
    chosen = optimizer_options or {}
    use = struct("gw_memory_use")
    rank = int(c.gw_plan_memory(struct(
        "gw_plan_options", decoder=model, mesh=axes, parallel=parallel_of(parallel), ranks=ranks, microbatches=microbatches, rows=rows,
        sequence=sequence, moment_dtype=dtype_of(moment_dtype), one_host=one_host,
        lora=None if lora is None else lora_options(**lora), fp8=None if fp8 is None else fp8_options(**fp8), optimizer=optimizer,
        option_names=block("t", list(chosen)), option_values=block("t", [written(name, value) for name, value in chosen.items()]),
        option_count=len(chosen)), use))
    return rank, {name: getattr(use, name) for name in fields_of(use)}
