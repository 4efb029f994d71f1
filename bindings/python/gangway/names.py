"""The names that calls take, as types: mypy finds a name that does not exist."""

from __future__ import annotations

from typing import Literal, Union

from .enums import (
    Activation, BlockNorms, ContextMethod, Fp8Scaling, Init, Packing, QkNorm, Recompute, Reduce, RopeScaling, StageSplit,
    Strategy, Style)

StrategyLike = Union[Strategy, Literal["full_shard", "shard_grad_op", "no_shard"]]
RecomputeLike = Union[Recompute, Literal["none", "full", "selective", "every", "ratio"]]
ContextMethodLike = Union[ContextMethod, Literal["ring", "all_gather", "all_to_all"]]
Fp8ScalingLike = Union[Fp8Scaling, Literal["tensor", "delayed", "row"]]
ActivationLike = Union[Activation, Literal["silu", "gelu_tanh", "gelu", "relu", "tanh"]]
QkNormLike = Union[QkNorm, bool, Literal["none", "head", "width"]]
RopeScalingLike = Union[RopeScaling, Literal["llama3", "linear", "yarn", "longrope"]]
BlockNormsLike = Union[BlockNorms, Literal["before", "after", "both"]]
StageSplitLike = Union[StageSplit, Literal["even", "by_cost", "given"]]
ReduceLike = Union[Reduce, Literal["sum", "mean", "product", "min", "max"]]
PackingLike = Union[Packing, Literal["stream", "documents"]]
StyleLike = Union[Style, Literal["replicate", "colwise", "rowwise", "sequence_parallel", "prepare_input", "prepare_output",
                                 "headwise"]]
InitLike = Union[Init, Literal["normal", "zeros", "ones"]]
PipelineSchedule = Literal["gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2", "zbv", "dualpipev"]
"""The schedules of pipelines; others go as schedule_csv."""
Kind = Literal["numpy", "torch", "jax", "mlx", "tensor"]
"""A framework of arrays; "tensor": the library's own."""
Family = Literal["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "olmo2", "gpt2", "phi3"]
MeshPreset = Literal["single", "ddp", "fsdp", "hsdp", "tp", "tp+fsdp", "pp", "3d"]
DataFormat = Literal["u8", "u16", "u32", "llm.c", "megatron", "npy"]
