"""Layers with Hugging Face's names, and the decoders made of them."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from . import _low as c
from .arrays import DTypeLike
from .enums import Activation, BlockNorms, QkNorm, RopeScaling
from .members import member
from .mesh import Gangs
from .module import Module
from .names import (
    ActivationLike, BlockNormsLike, ContextMethodLike, Family, PipelineSchedule, QkNormLike, RecomputeLike, RopeScalingLike,
    StageSplitLike, StrategyLike)
from .options import gangs_of, parallel_options
from .plan import Plan
from .structs import PathLike, block, fields_of, fill, handle_of, path_of, struct


class Decoder(Module):
    """A decoder: {tokens i64 [B, S]} -> logits [B, S, vocab]; with labels i64 [B, S], the next tokens -> {loss sum, weight}.

    family is the model_type of a Hugging Face config.json, in whose keys the model is saved; Llama, Mistral, Qwen2,
    Qwen3, Gemma, Gemma2, Gemma3, Olmo2, GPT2 and Phi3 are Decoder with that family. The other options are those of a
    config.json, and None is the family's default:
    vocab 256, dim (hidden_size) 256, layers 4, heads 8, kv_heads 0 (heads), head_dim 0 (dim / heads), ffn
    (intermediate_size) 0 (8/3 dim up to a multiple of 32), max_positions 2048, window 0 (none), eps (rms_norm_eps) 1e-5,
    rope_theta 10000, rope_factor 1 (no scaling), rope_scaling "llama3", "linear", "yarn" or "longrope", with the rope_...
    options of the C struct; rope_short_factors and rope_long_factors are numbers with spaces between them;
    initializer_range 0.02; tied: lm_head.weight is model.embed_tokens.weight; qk_norm: RMS norms of q and k, over each "head"
    or the whole "width".
    window_layers: the layers with the window, a letter for each, repeated: "wwf" (w: window, f: full attention), "" (all);
    window_rope_theta 0 (rope_theta): of those layers. norms "before", "after" or on "both" sides of each half of a block;
    norm_offset 0, or 1: weights of norms count from 1; activation "silu"; embedding_scale 1, 0: sqrt(dim); score_scale 0
    (1 / sqrt(head_dim)); score_cap and logit_cap 0 (none): x becomes cap tanh(x / cap); sinks: a score for each head;
    layer_norm, learned_positions, and gated_mlp False: as in gpt2. embedding_dropout and residual_dropout (embd_pdrop and
    resid_pdrop of a gpt2) act in training; attention_dropout (attn_pdrop) is kept, but a model trains only if it is 0."""

    _family: Family = "llama"
    _takes_ids = True

    def __init__(
        self, *, family: Family | None = None, vocab: int | None = None, dim: int | None = None, layers: int | None = None,
        heads: int | None = None, kv_heads: int | None = None, head_dim: int | None = None, ffn: int | None = None,
        max_positions: int | None = None, window: int | None = None, eps: float | None = None,
        rope_theta: float | None = None, rope_factor: float | None = None,
        rope_low_frequency_factor: float | None = None, rope_high_frequency_factor: float | None = None,
        rope_original_positions: int | None = None, initializer_range: float | None = None,
        qkv_bias: bool | None = None, out_bias: bool | None = None, mlp_bias: bool | None = None,
        tied: bool | None = None, qk_norm: QkNormLike | None = None, window_layers: str | None = None,
        norms: BlockNormsLike | None = None, activation: ActivationLike | None = None, sinks: bool | None = None,
        norm_offset: float | None = None, embedding_scale: float | None = None, score_scale: float | None = None,
        score_cap: float | None = None, logit_cap: float | None = None, window_rope_theta: float | None = None,
        rope_scaling: RopeScalingLike | None = None, rope_truncate: bool | None = None, rope_partial: float | None = None,
        rope_attention_factor: float | None = None, rope_beta_fast: float | None = None, rope_beta_slow: float | None = None,
        rope_mscale: float | None = None, rope_mscale_all_dim: float | None = None, rope_short_factors: str | None = None,
        rope_long_factors: str | None = None, layer_norm: bool | None = None, gated_mlp: bool | None = None,
        learned_positions: bool | None = None, embedding_dropout: float | None = None,
        residual_dropout: float | None = None, attention_dropout: float | None = None,
    ) -> None:
        made = struct("gw_decoder_options")
        c.gw_decoder_options_from_family(self._family if family is None else family, made)
        super().__init__(c.gw_decoder_create(fill(
            made, vocab=vocab, dim=dim, layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn=ffn,
            max_positions=max_positions, window=window, eps=eps, rope_theta=rope_theta, rope_factor=rope_factor,
            rope_low_frequency_factor=rope_low_frequency_factor, rope_high_frequency_factor=rope_high_frequency_factor,
            rope_original_positions=rope_original_positions, initializer_range=initializer_range, qkv_bias=qkv_bias,
            out_bias=out_bias, mlp_bias=mlp_bias, tied=tied,
            qk_norm=None if qk_norm is None else member(QkNorm, qk_norm, "qk_norm"), window_layers=window_layers,
            norms=None if norms is None else member(BlockNorms, norms, "norms"),
            activation=None if activation is None else member(Activation, activation, "activation"), sinks=sinks,
            norm_offset=norm_offset, embedding_scale=embedding_scale, score_scale=score_scale, score_cap=score_cap,
            logit_cap=logit_cap, window_rope_theta=window_rope_theta,
            rope_scaling=None if rope_scaling is None else member(RopeScaling, rope_scaling, "rope_scaling"),
            rope_truncate=rope_truncate, rope_partial=rope_partial, rope_attention_factor=rope_attention_factor,
            rope_beta_fast=rope_beta_fast, rope_beta_slow=rope_beta_slow, rope_mscale=rope_mscale,
            rope_mscale_all_dim=rope_mscale_all_dim, rope_short_factors=rope_short_factors,
            rope_long_factors=rope_long_factors, layer_norm=layer_norm, gated_mlp=gated_mlp,
            learned_positions=learned_positions, embedding_dropout=embedding_dropout, residual_dropout=residual_dropout,
            attention_dropout=attention_dropout)))

    @staticmethod
    def options_from(folder: PathLike) -> dict[str, Any]:
        """Local. The options that a Hugging Face folder's config.json stands for: Decoder(**Decoder.options_from(folder))."""
        made = struct("gw_decoder_options")
        c.gw_decoder_options_from_folder(path_of(folder, "folder"), made)
        return {name: getattr(made, name) for name in fields_of(made)}


class Llama(Decoder):
    """A Decoder of the family llama."""


class Mistral(Decoder):
    """A Decoder of the family mistral."""

    _family: Family = "mistral"


class Qwen2(Decoder):
    """A Decoder of the family qwen2."""

    _family: Family = "qwen2"


class Qwen3(Decoder):
    """A Decoder of the family qwen3."""

    _family: Family = "qwen3"


class Gemma(Decoder):
    """A Decoder of the family gemma."""

    _family: Family = "gemma"


class Gemma2(Decoder):
    """A Decoder of the family gemma2."""

    _family: Family = "gemma2"


class Gemma3(Decoder):
    """A Decoder of the family gemma3_text."""

    _family: Family = "gemma3_text"


class Olmo2(Decoder):
    """A Decoder of the family olmo2."""

    _family: Family = "olmo2"


class GPT2(Decoder):
    """A Decoder of the family gpt2."""

    _family: Family = "gpt2"


class Phi3(Decoder):
    """A Decoder of the family phi3."""

    _family: Family = "phi3"


def from_pretrained(
    folder: PathLike, gangs: Gangs | None = None, *, strategy: StrategyLike = "full_shard",
    reshard_after_forward: bool | int | None = None, param_dtype: DTypeLike = None, reduce_dtype: DTypeLike = None,
    output_dtype: DTypeLike = None, cast_forward_inputs: bool = True, cpu_offload: bool = False,
    prefetch_forward: int = 1, prefetch_backward: int = 1, accumulate_unsharded: bool | None = None,
    bucket_cap_mb: float = 25.0, dtype_rules: Mapping[str, DTypeLike] | None = None, master_dtype: DTypeLike = None,
    recompute: RecomputeLike = "none", recompute_every: int = 2, recompute_ratio: float = 1.0,
    activation_offload: bool = False, seed: int = 0,
    plan: Plan = None, sequence_parallel: bool = False, loss_parallel: bool = True, overlap_chunks: int = 1,
    context_method: ContextMethodLike = "ring", schedule: PipelineSchedule | None = None, schedule_csv: str | None = None,
    microbatches: int = 0, stages_per_rank: int = 0, most_unsharded: int = 0,
    stage_split: StageSplitLike = "even", first_layers: Sequence[int] = (), attention_dropout: float | None = None,
) -> Decoder:
    """Collective. A Hugging Face folder of any family of this library as a model that trains and generates. The
    options are those of parallelize(). attention_dropout: in place of that of config.json, attn_pdrop of a gpt2; a model
    trains only if it is 0."""
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
    model = Decoder.__new__(Decoder)
    if attention_dropout is None:
        Module.__init__(model, c.gw_model_from_folder(gangs_of(gangs), path_of(folder, "folder"), made))
        return model._over(gangs)
    options = struct("gw_decoder_options")
    c.gw_decoder_options_from_folder(path_of(folder, "folder"), options)
    Module.__init__(model, c.gw_decoder_create(fill(options, attention_dropout=attention_dropout)))
    c.gw_parallelize(model._h, gangs_of(gangs), made)
    model._over(gangs).load(folder)
    return model


class Linear(Module):
    """x [..., input_dim] -> x W^T + b [..., output_dim]; weight [output_dim, input_dim]. skip_bias_add: the bias is not added,
    but the second output, for compute of your own that adds it."""

    def __init__(self, input_dim: int, output_dim: int, bias: bool = True, *, skip_bias_add: bool = False) -> None:
        super().__init__(c.gw_linear_create(input_dim, output_dim, 2 if bias and skip_bias_add else int(bias)))


class Embedding(Module):
    """ids i64 [...] -> rows of weight [rows, dim]: [..., dim]."""

    _takes_ids = True

    def __init__(self, rows: int, dim: int) -> None:
        super().__init__(c.gw_embedding_create(rows, dim))


class RMSNorm(Module):
    """{x} or {x, residual}, each [..., dim] -> {y, sum}."""

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__(c.gw_rmsnorm_create(dim, eps))


class LayerNorm(Module):
    """{x} or {x, residual}, each [..., dim] -> {y, sum}."""

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__(c.gw_layernorm_create(dim, eps))


class Attention(Module):
    """x [B, S, dim] -> the same, with rotary positions. kv_heads 0: heads; head_dim 0: dim / heads; the other options are
    those of Decoder."""

    def __init__(
        self, dim: int, heads: int, *, kv_heads: int = 0, head_dim: int = 0, rope_theta: float = 10000.0,
        initializer_range: float = 0.02, eps: float = 1e-5, qkv_bias: bool = False, out_bias: bool = False,
        causal: bool = True, qk_norm: QkNormLike = "none", window: int = 0, norm_offset: float = 0.0,
        score_scale: float = 0.0, score_cap: float = 0.0, sinks: bool = False,
    ) -> None:
        super().__init__(c.gw_attention_create(struct(
            "gw_attention_options", dim=dim, heads=heads, kv_heads=kv_heads, head_dim=head_dim, rope_theta=rope_theta,
            initializer_range=initializer_range, eps=eps, qkv_bias=qkv_bias, out_bias=out_bias, causal=causal,
            qk_norm=member(QkNorm, qk_norm, "qk_norm"), window=window, norm_offset=norm_offset, score_scale=score_scale,
            score_cap=score_cap, sinks=sinks)))


class Mlp(Module):
    """SwiGLU: x [..., dim] -> the same, by way of ffn."""

    def __init__(self, dim: int, ffn: int, bias: bool = False) -> None:
        super().__init__(c.gw_mlp_create(dim, ffn, bias))


class FeedForward(Module):
    """x [..., dim] -> down(activation(gate(x)) * up(x)); with plain: down(activation(up(x)))."""

    def __init__(
        self, dim: int, ffn: int, *, activation: ActivationLike = "silu", bias: bool = False, plain: bool = False,
        initializer_range: float = 0.02,
    ) -> None:
        super().__init__(c.gw_feed_forward_create(struct(
            "gw_feed_forward_options", dim=dim, ffn=ffn, activation=member(Activation, activation, "activation"), bias=bias,
            plain=plain, initializer_range=initializer_range)))


class Activate(Module):
    """x [..., D] -> activation(x), number by number."""

    def __init__(self, activation: ActivationLike) -> None:
        super().__init__(c.gw_activation_create(member(Activation, activation, "activation")))


class Dropout(Module):
    """x [..., D] -> x, of which each number is zero with this probability in training, and else divided by 1 - probability.
    A recomputation, and all ranks of tp, have the same random bits."""

    def __init__(self, probability: float) -> None:
        super().__init__(c.gw_dropout_create(probability))


class Block(Module):
    """Norm, attention, norm, SwiGLU: x [B, S, dim] -> the same. Options as in Attention."""

    def __init__(
        self, dim: int, heads: int, ffn: int, eps: float = 1e-5, *, kv_heads: int = 0, head_dim: int = 0,
        rope_theta: float = 10000.0, initializer_range: float = 0.02, qkv_bias: bool = False, out_bias: bool = False,
        causal: bool = True, qk_norm: QkNormLike = "none", window: int = 0, norm_offset: float = 0.0,
        score_scale: float = 0.0, score_cap: float = 0.0, sinks: bool = False,
    ) -> None:
        attention = struct(
            "gw_attention_options", dim=dim, heads=heads, kv_heads=kv_heads, head_dim=head_dim, rope_theta=rope_theta,
            initializer_range=initializer_range, eps=eps, qkv_bias=qkv_bias, out_bias=out_bias, causal=causal,
            qk_norm=member(QkNorm, qk_norm, "qk_norm"), window=window, norm_offset=norm_offset, score_scale=score_scale,
            score_cap=score_cap, sinks=sinks)
        super().__init__(c.gw_block_create(attention, ffn, eps))


class Sequential(Module):
    """One after the other, children "0", "1", ..."""

    def __init__(self, *modules: Module) -> None:
        handles = [handle_of(m, Module, f"modules[{i}]") for i, m in enumerate(modules)]
        self._takes_ids = bool(modules) and modules[0]._takes_ids
        super().__init__(c.gw_sequential_create(block("gw_module", handles), len(modules)))
