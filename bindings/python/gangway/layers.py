"""Layers with Hugging Face's names, and the Llama made of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from . import _low as c
from .arrays import DTypeLike
from .enums import ContextMethod, Recompute, StageSplit, Strategy
from .mesh import Gangs
from .module import Module
from .options import gangs_of, parallel_options
from .plan import Plan
from .structs import block, fields_of, handle_of, struct

if TYPE_CHECKING:
    from typing_extensions import Self


class Llama(Module):
    """inputs {tokens i64 [B, S]} -> logits [B, S, vocab]; with labels i64 [B, S], shifted already -> {loss sum, weight}.

    The options are those of a Hugging Face config.json: dim is hidden_size, ffn is intermediate_size (0: 8/3 dim up to a
    multiple of 32), eps is rms_norm_eps; kv_heads 0: heads; head_dim 0: dim / heads; rope_factor 1: no scaling, else Llama 3's
    with the next three; tied: lm_head.weight is model.embed_tokens.weight."""

    def __init__(
        self, *, vocab: int = 256, dim: int = 256, layers: int = 4, heads: int = 8, kv_heads: int = 0, head_dim: int = 0,
        ffn: int = 0, max_positions: int = 2048, eps: float = 1e-5, rope_theta: float = 10000.0, rope_factor: float = 1.0,
        rope_low_frequency_factor: float = 1.0, rope_high_frequency_factor: float = 4.0,
        rope_original_positions: int = 8192, initializer_range: float = 0.02, qkv_bias: bool = False,
        out_bias: bool = False, mlp_bias: bool = False, tied: bool = False,
    ) -> None:
        super().__init__(c.gw_llama_create(struct(
            "gw_llama_options", vocab=vocab, dim=dim, layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
            ffn=ffn, max_positions=max_positions, eps=eps, rope_theta=rope_theta, rope_factor=rope_factor,
            rope_low_frequency_factor=rope_low_frequency_factor, rope_high_frequency_factor=rope_high_frequency_factor,
            rope_original_positions=rope_original_positions, initializer_range=initializer_range, qkv_bias=qkv_bias,
            out_bias=out_bias, mlp_bias=mlp_bias, tied=tied)))

    @staticmethod
    def options_from(folder: str | os.PathLike[str]) -> dict[str, Any]:
        """Local. The options that a Hugging Face folder's config.json stands for: Llama(**Llama.options_from(folder))."""
        made = struct("gw_llama_options")
        c.gw_llama_options_from_folder(os.fspath(folder), made)
        return {name: getattr(made, name) for name in fields_of(made)}

    @classmethod
    def from_pretrained(
        cls, folder: str | os.PathLike[str], gangs: Gangs | None = None, *, strategy: Strategy | str = "full_shard",
        reshard_after_forward: bool | int | None = None, param_dtype: DTypeLike = None, reduce_dtype: DTypeLike = None,
        output_dtype: DTypeLike = None, cast_forward_inputs: bool = True, cpu_offload: bool = False,
        prefetch_forward: int = 1, prefetch_backward: int = 1, accumulate_unsharded: bool | None = None,
        bucket_cap_mb: float = 25.0, dtype_rules: Mapping[str, DTypeLike] | None = None, master_dtype: DTypeLike = None,
        recompute: Recompute | str = "none", recompute_every: int = 2, recompute_ratio: float = 1.0,
        activation_offload: bool = False, seed: int = 0,
        plan: Plan = None, sequence_parallel: bool = False, loss_parallel: bool = True, overlap_chunks: int = 1,
        context_method: ContextMethod | str = "ring", schedule: str | None = None, schedule_csv: str | None = None,
        microbatches: int = 0, stages_per_rank: int = 0, most_unsharded: int = 0,
        stage_split: StageSplit | str = "even", first_layers: Sequence[int] = (),
    ) -> Self:
        """Collective. A Hugging Face folder (families llama, qwen2 and mistral) as a model that trains and generates. The
        options are those of parallelize()."""
        made = parallel_options(
            strategy=strategy, reshard_after_forward=reshard_after_forward, param_dtype=param_dtype,
            reduce_dtype=reduce_dtype, output_dtype=output_dtype, cast_forward_inputs=cast_forward_inputs,
            cpu_offload=cpu_offload, prefetch_forward=prefetch_forward, prefetch_backward=prefetch_backward,
            accumulate_unsharded=accumulate_unsharded, bucket_cap_mb=bucket_cap_mb, dtype_rules=dtype_rules,
            master_dtype=master_dtype, recompute=recompute, recompute_every=recompute_every,
            recompute_ratio=recompute_ratio, activation_offload=activation_offload, seed=seed, plan=plan,
            sequence_parallel=sequence_parallel, loss_parallel=loss_parallel, overlap_chunks=overlap_chunks, context_method=context_method,
            schedule=schedule, schedule_csv=schedule_csv, microbatches=microbatches, stages_per_rank=stages_per_rank, most_unsharded=most_unsharded,
            stage_split=stage_split, first_layers=first_layers)
        model = cls.__new__(cls)
        Module.__init__(model, c.gw_llama_from_folder(gangs_of(gangs), os.fspath(folder), made))
        return model._over(gangs)


class Linear(Module):
    """x [..., input_dim] -> x W^T + b [..., output_dim]; weight [output_dim, input_dim]."""

    def __init__(self, input_dim: int, output_dim: int, bias: bool = True) -> None:
        super().__init__(c.gw_linear_create(input_dim, output_dim, bias))


class Embedding(Module):
    """ids i64 [...] -> rows of weight [rows, dim]: [..., dim]."""

    def __init__(self, rows: int, dim: int) -> None:
        super().__init__(c.gw_embedding_create(rows, dim))


class RMSNorm(Module):
    """{x} or {x, residual}, each [..., dim] -> {y, sum}."""

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__(c.gw_rmsnorm_create(dim, eps))


class Attention(Module):
    """x [B, S, dim] -> the same, with rotary positions. kv_heads 0: heads; head_dim 0: dim / heads."""

    def __init__(
        self, dim: int, heads: int, *, kv_heads: int = 0, head_dim: int = 0, rope_theta: float = 10000.0,
        initializer_range: float = 0.02, qkv_bias: bool = False, out_bias: bool = False, causal: bool = True,
    ) -> None:
        super().__init__(c.gw_attention_create(struct(
            "gw_attention_options", dim=dim, heads=heads, kv_heads=kv_heads, head_dim=head_dim, rope_theta=rope_theta,
            initializer_range=initializer_range, qkv_bias=qkv_bias, out_bias=out_bias, causal=causal)))


class Mlp(Module):
    """SwiGLU: x [..., dim] -> the same, by way of ffn."""

    def __init__(self, dim: int, ffn: int, bias: bool = False) -> None:
        super().__init__(c.gw_mlp_create(dim, ffn, bias))


class Block(Module):
    """Norm, attention, norm, SwiGLU: x [B, S, dim] -> the same. Options as in Attention."""

    def __init__(
        self, dim: int, heads: int, ffn: int, eps: float = 1e-5, *, kv_heads: int = 0, head_dim: int = 0,
        rope_theta: float = 10000.0, initializer_range: float = 0.02, qkv_bias: bool = False, out_bias: bool = False,
        causal: bool = True,
    ) -> None:
        attention = struct(
            "gw_attention_options", dim=dim, heads=heads, kv_heads=kv_heads, head_dim=head_dim, rope_theta=rope_theta,
            initializer_range=initializer_range, qkv_bias=qkv_bias, out_bias=out_bias, causal=causal)
        super().__init__(c.gw_block_create(attention, ffn, eps))


class Sequential(Module):
    """One after the other, children "0", "1", ..."""

    def __init__(self, *modules: Module) -> None:
        handles = [handle_of(m, Module, f"modules[{i}]") for i, m in enumerate(modules)]
        super().__init__(c.gw_sequential_create(block("gw_module", handles), len(modules)))
