"""Modules: what a model is made of. A module describes until parallelize() or materialize() gives it memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence, overload

import numpy as np

from . import _low as c
from . import low
from ._low import View
from .arrays import FLOATING, HOST, Array, DTypeLike, NewArray, Place, as_numpy, dtype_of, first_kind, known_kind
from .enums import ContextMethod, DType, Part, Recompute
from .errors import InvalidArgument, NotFound
from .fp8 import Fp8Methods
from .lora import LoraMethods
from .members import member
from .mesh import Gangs, current_gangs
from .names import ContextMethodLike, Kind, PipelineSchedule, RecomputeLike, StageSplitLike, StrategyLike
from .objects import agree
from .options import gangs_of, parallel_options, shard_options
from .plan import Plan, plan_options
from .structs import PathLike, block, fields_of, handle_of, path_of, struct
from .tensors import Parameter, Tensor, one_row

if TYPE_CHECKING:
    from typing_extensions import Self


class Frame:
    """The activations of one forward, kept for its backward. `loss_scale` is the value from which the backward of a
    loss starts: for a mean over N items the optimizer's loss_scale (1 where it has none) / N. Over cp inputs and outputs are
    whole sequences, or with `sequence_parts` this rank's parts of them."""

    def __init__(
        self, model: Module, *, loss_scale: float = 1.0, step: int = 0, microbatch: int = 0, sequence_parts: bool = False,
    ) -> None:
        options = struct("gw_frame_options", loss_scale=loss_scale, step=step, microbatch=microbatch,
                         sequence_parts=sequence_parts)
        self._h = c.gw_frame_create(handle_of(model, Module, "model"), options)
        self._facts = f"step {step}, microbatch {microbatch}, loss_scale {loss_scale:g}"

    def __repr__(self) -> str:
        return f"<Frame: {self._facts}>"

    def reset(self) -> None:
        """Forgets what was saved."""
        c.gw_frame_reset(self._h)


class Module(LoraMethods, Fp8Methods):
    """A module of the library."""

    _takes_ids = False  # inputs are token ids: int64, and narrower integers are taken for them

    def __init__(self, handle: Any, gangs: Gangs | None = None) -> None:
        self._h = handle
        self._mesh = gangs  # what it is sharded over
        self._place = self._place_in(gangs)

    def _place_in(self, gangs: Gangs | None) -> Place:
        place = HOST if gangs is None else gangs.root._place
        return place.for_ids() if self._takes_ids else place

    def _over(self, gangs: Gangs | None) -> Self:
        """What a call over these gangs leaves; None: the library took those of the calls before, or the thread's."""
        self._mesh = gangs or self._mesh or current_gangs()
        self._place = self._place_in(self._mesh)
        return self

    def _before_reading(self) -> None:
        """Collective. What lies outside of the library, such as buffers of a PyTorch module, comes into it."""

    def _before_reading_rows(self) -> None:
        """Local. Likewise, before this rank's rows alone are read."""

    def _after_writing(self) -> None:
        """Collective. And goes out again."""

    def _aliases(self) -> dict[str, str]:
        """Further names of tied parameters, and the first one of each, where state dicts have every name."""
        return {}

    def _forms(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """By name the dtype and the shape of what has others in its framework than in files."""
        return {}

    def release(self) -> None:
        """Drops the handle now."""
        self._h = c.RELEASED

    def __repr__(self) -> str:
        if self._h is c.RELEASED:
            return f"<{type(self).__name__}: released>"
        return f"<{type(self).__name__}: {self.num_parameters():,} elements in {len(self)} parameters>"

    # --- wrapping (collective)

    def parallelize(
        self, gangs: Gangs | None = None, *, strategy: StrategyLike = "full_shard",
        reshard_after_forward: bool | int | None = None, param_dtype: DTypeLike = None, reduce_dtype: DTypeLike = None,
        output_dtype: DTypeLike = None, cast_forward_inputs: bool = True, cpu_offload: bool = False,
        prefetch_forward: int = 1, prefetch_backward: int = 1, accumulate_unsharded: bool | None = None,
        bucket_cap_mb: float = 25.0, dtype_rules: Mapping[str, DTypeLike] | None = None, master_dtype: DTypeLike = None,
        recompute: RecomputeLike = "none", recompute_every: int = 2, recompute_ratio: float = 1.0,
        activation_offload: bool = False, seed: int = 0,
        plan: Plan = None, sequence_parallel: bool = False, loss_parallel: bool = True, overlap_chunks: int = 1,
        context_method: ContextMethodLike = "ring", schedule: PipelineSchedule | None = None, schedule_csv: str | None = None,
        microbatches: int = 0, stages_per_rank: int = 0, most_unsharded: int = 0,
        stage_split: StageSplitLike = "even", first_layers: Sequence[int] = (),
    ) -> Self:
        """Collective. Checks everything, then shards, wraps and fills this rank's rows; once, before the optimizer. No gangs:
        one rank.

        strategy: "full_shard" (unshard for each use), "shard_grad_op" (keep after forward), "no_shard" (plain data
        parallel).
        reshard_after_forward, accumulate_unsharded: None: the strategy's. A number of ranks over 1: after forward values stay
        split over so many consecutive ranks, and backward gathers them from those.
        param_dtype: of compute; None: the master's. dtype_rules: param_dtype by pattern of whole parameter names; the last
        match wins.
        reduce_dtype: of gradients on the way; None: f32 (f64 for f64). output_dtype: of each parameter group; None: as
        computed.
        prefetch_forward, prefetch_backward: parameter groups. bucket_cap_mb: for "no_shard".
        master_dtype: f32 or f64; None: f32.
        recompute: "none", "full", "selective", "every" (each recompute_every-th block), "ratio" (recompute_ratio of the
        blocks).
        activation_offload: on a GPU, what blocks save lies in pinned memory of the host until their backward.
        seed: of the first values.
        Over tp: plan, sequence_parallel, loss_parallel, overlap_chunks as in tensor_parallel().
        Over cp: context_method: "ring", "all_gather" or "all_to_all".
        Over pp: schedule: "gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2", "zbv" or "dualpipev"; None:
        "1f1b"; or a whole one as schedule_csv. microbatches: of each step; 0: those of train_step. stages_per_rank: 0: the
        schedule's own. most_unsharded: stages of a rank that are unsharded at a time; 0: 3. stage_split: "even", "by_cost",
        or "given" by first_layers, the layer that each stage begins with."""
        c.gw_parallelize(self._h, gangs_of(gangs), parallel_options(
            strategy=strategy, reshard_after_forward=reshard_after_forward, param_dtype=param_dtype,
            reduce_dtype=reduce_dtype, output_dtype=output_dtype, cast_forward_inputs=cast_forward_inputs,
            cpu_offload=cpu_offload, prefetch_forward=prefetch_forward, prefetch_backward=prefetch_backward,
            accumulate_unsharded=accumulate_unsharded, bucket_cap_mb=bucket_cap_mb, dtype_rules=dtype_rules,
            master_dtype=master_dtype, recompute=recompute, recompute_every=recompute_every,
            recompute_ratio=recompute_ratio, activation_offload=activation_offload, seed=seed, plan=plan,
            sequence_parallel=sequence_parallel, loss_parallel=loss_parallel, overlap_chunks=overlap_chunks, context_method=context_method,
            schedule=schedule, schedule_csv=schedule_csv, microbatches=microbatches, stages_per_rank=stages_per_rank, most_unsharded=most_unsharded,
            stage_split=stage_split, first_layers=first_layers))
        return self._over(gangs)

    def fully_shard(
        self, pattern: str = "", gangs: Gangs | None = None, *, strategy: StrategyLike = "full_shard",
        reshard_after_forward: bool | int | None = None, param_dtype: DTypeLike = None, reduce_dtype: DTypeLike = None,
        output_dtype: DTypeLike = None, cast_forward_inputs: bool = True, cpu_offload: bool = False,
        prefetch_forward: int = 1, prefetch_backward: int = 1, accumulate_unsharded: bool | None = None,
        bucket_cap_mb: float = 25.0, dtype_rules: Mapping[str, DTypeLike] | None = None,
    ) -> Self:
        """Collective. Each match of a pattern of whole paths becomes a parameter group ("*" does not match a dot, "**"
        does); "" is the root, the last. materialize() follows. Options as in parallelize()."""
        c.gw_fully_shard(self._h, pattern, gangs_of(gangs), shard_options(
            strategy=strategy, reshard_after_forward=reshard_after_forward, param_dtype=param_dtype,
            reduce_dtype=reduce_dtype, output_dtype=output_dtype, cast_forward_inputs=cast_forward_inputs,
            cpu_offload=cpu_offload, prefetch_forward=prefetch_forward, prefetch_backward=prefetch_backward,
            accumulate_unsharded=accumulate_unsharded, bucket_cap_mb=bucket_cap_mb, dtype_rules=dtype_rules))
        return self._over(gangs)

    def replicate(
        self, gangs: Gangs | None = None, *, param_dtype: DTypeLike = None, reduce_dtype: DTypeLike = None,
        output_dtype: DTypeLike = None, cast_forward_inputs: bool = True, accumulate_unsharded: bool | None = None,
        bucket_cap_mb: float = 25.0, dtype_rules: Mapping[str, DTypeLike] | None = None,
    ) -> Self:
        """Collective. Plain data parallel. materialize() follows. Options as in parallelize()."""
        c.gw_replicate(self._h, gangs_of(gangs), shard_options(
            strategy="no_shard", param_dtype=param_dtype, reduce_dtype=reduce_dtype,
            output_dtype=output_dtype, cast_forward_inputs=cast_forward_inputs, accumulate_unsharded=accumulate_unsharded,
            bucket_cap_mb=bucket_cap_mb, dtype_rules=dtype_rules))
        return self._over(gangs)

    def tensor_parallel(self, gangs: Gangs | None = None, *, plan: Plan = None, sequence_parallel: bool = False,
                        loss_parallel: bool = True, overlap_chunks: int = 1) -> Self:
        """Collective, before recompute(), fully_shard() and replicate(). Splits modules over tp.

        plan: a PlanRow for each, or as text, a line for each: "model.layers.*.mlp.up_proj -> colwise". Its rows win over those
        of a custom module's parallel_plan and of a model family's plan. sequence_parallel: norms of a decoder work on parts of the
        sequence; loss_parallel: its logits stay split over the vocabulary. overlap_chunks: over 1: where a sequence is gathered
        for a linear or summed into parts, each rank's part goes in so many chunks, and the product of one chunk runs while
        another travels."""
        c.gw_tensor_parallel(
            self._h, gangs_of(gangs), plan_options(plan, sequence_parallel, loss_parallel, overlap_chunks))
        return self._over(gangs)

    def context_parallel(self, gangs: Gangs | None = None, method: ContextMethodLike = "ring") -> Self:
        """Collective, before recompute(), fully_shard() and replicate(). Attention runs over the parts of the sequence
        that the ranks of cp have: "ring", "all_gather" or "all_to_all"."""
        c.gw_context_parallel(self._h, gangs_of(gangs), member(ContextMethod, method, "method"))
        return self._over(gangs)

    def recompute(self, kind: RecomputeLike = "full", *, every: int = 2, ratio: float = 1.0) -> Self:
        """Local, before fully_shard(). Kinds as in parallelize()."""
        c.gw_recompute(self._h, member(Recompute, kind, "kind"), every, ratio)
        return self

    def materialize(self, gangs: Gangs | None = None, *, seed: int = 0, master_dtype: DTypeLike = None) -> Self:
        """Collective. Memory and first values; parallelize() does it by itself."""
        c.gw_module_materialize(self._h, gangs_of(gangs), seed, dtype_of(master_dtype))
        return self._over(gangs)

    def freeze(self, pattern: str) -> Self:
        """Local. Parameters whose whole name matches get no gradient; before the wrapping."""
        c.gw_module_freeze(self._h, pattern)
        return self

    def no_sync(self, on: bool = True) -> None:
        """On: backward adds up without reducing over replicas, until the first backward after off."""
        c.gw_module_set_no_sync(self._h, int(on))

    # --- computing (collective)

    def forward(self, *inputs: Array, frame: Frame | None = None) -> list[NewArray]:
        """The list of outputs, also where there is one, as arrays of the first input's framework. Without a frame: evaluation."""
        views = [self._place.borrow(x, f"inputs[{i}]") for i, x in enumerate(inputs)]
        held = None if frame is None else handle_of(frame, Frame, "frame")
        made = c.gw_module_forward(self._h, block("v", views), len(views), held, self._place.stream)
        kind = first_kind(inputs)
        return [Tensor(t).to(kind) for t in made]

    def backward(self, *output_grads: Array | None, frame: Frame, kind: Kind | None = None) -> list[NewArray | None]:
        """Input gradients (None where there is none) from those of the outputs (none for a loss). kind: of what comes out;
        None: the framework of the first gradient that is given, NumPy without one."""
        views = [None if g is None else self._place.borrow(g, f"output_grads[{i}]") for i, g in enumerate(output_grads)]
        made_kind = known_kind(kind or first_kind(output_grads))  # before anything runs
        held = handle_of(frame, Frame, "frame")
        made = c.gw_module_backward(self._h, block("v", views), len(views), held, self._place.stream)
        return [None if t is None else Tensor(t).to(made_kind) for t in made]

    @overload
    def generate(self, prompt: Sequence[int] | bytes, token_count: int = ..., *, temperature: float = ..., top_k: int = ...,
                 top_p: float = ..., min_p: float = ..., repetition_penalty: float = ..., stop_tokens: Sequence[int] = ...,
                 seed: int = ..., on_token: Callable[[int, int], Any] | None = ...) -> list[int]: ...
    @overload
    def generate(self, prompt: Sequence[Sequence[int]], token_count: int = ..., *, temperature: float = ..., top_k: int = ...,
                 top_p: float = ..., min_p: float = ..., repetition_penalty: float = ..., stop_tokens: Sequence[int] = ...,
                 seed: int = ..., on_token: Callable[[int, int], Any] | None = ...) -> list[list[int]]: ...
    def generate(self, prompt: Any, token_count: int = 64, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
                 min_p: float = 0.0, repetition_penalty: float = 1.0, stop_tokens: Sequence[int] = (), seed: int = 0,
                 on_token: Callable[[int, int], Any] | None = None) -> Any:
        """Collective. The `token_count` ids with which a decoder continues the ids of a prompt, the same on every rank; of a
        list of prompts, whose lengths may differ, a list for each. A cache keeps the keys and values of earlier tokens.
        temperature: 0: the most likely token. top_k: of so many likely ones; 0: of all. top_p: of the fewest whose
        probabilities reach it together. min_p: not of those below this times the likeliest one's probability.
        repetition_penalty: divides positive logits of tokens that are there already, and multiplies others.
        stop_tokens: a row ends with the first of these. on_token: gets (row, token) of each new token on this rank; False ends
        the generation on all ranks."""
        several = not isinstance(prompt, (bytes, bytearray)) and len(prompt) > 0 and hasattr(prompt[0], "__len__")
        prompts = list(prompt) if several else [prompt]
        options = struct("gw_generate_options", token_count=token_count, temperature=temperature, top_k=top_k, top_p=top_p,
                         min_p=min_p, repetition_penalty=repetition_penalty, stop_tokens=block("l", stop_tokens),
                         stop_count=len(stop_tokens), seed=seed, on_token=None if on_token is None else low.py_token,
                         user=on_token)
        room = bytearray(8 * max(options.token_count, 0) * len(prompts))
        counts = bytearray(8 * len(prompts))
        c.gw_generate_rows(self._h, block("l", [i for p in prompts for i in p]), block("l", [len(p) for p in prompts]),
                           len(prompts), options, self._place.stream, room, len(room) // 8, counts)
        tokens = memoryview(room).cast("q").tolist()
        made = [tokens[row * options.token_count:][:count] for row, count in enumerate(memoryview(counts).cast("q"))]
        return made if several else made[0]

    def gradient_norms(self) -> dict[str, float]:
        """The norms of the gradients of the last train_step(gradient_norms=True), by parameter: over all ranks, unscaled and
        before clipping; NaN for a frozen one."""
        count = c.gw_module_gradient_norms(self._h, None, 0)
        room = bytearray(8 * count)
        c.gw_module_gradient_norms(self._h, room, count)
        return {parameter.name: norm for parameter, norm in zip(self, memoryview(room).cast("d").tolist())}

    def zero_grad(self) -> None:
        """Local. Empties the local gradients."""
        c.gw_zero_grad(self._h, self._place.stream)

    def clip_grad_norm(self, max_norm: float, p: float = 2.0) -> float:
        """Scales the local gradients; the norm before it."""
        return float(c.gw_clip_grad_norm(self._h, max_norm, p, self._place.stream))

    # --- looking in

    def __len__(self) -> int:
        return int(c.gw_module_parameter_count(self._h))

    def __iter__(self) -> Iterator[Parameter]:
        return (Parameter(c.gw_module_parameter(self._h, i), self._place) for i in range(len(self)))

    def __getitem__(self, name: str) -> Parameter:
        """A parameter by whole name; NotFound, a KeyError, where there is none."""
        return Parameter(c.gw_module_find_parameter(self._h, name), self._place)

    def __contains__(self, name: object) -> bool:
        """Whether there is a parameter of this whole name, also as a tied one's other name."""
        return isinstance(name, str) and self._knows(name)

    def __bool__(self) -> bool:
        return True

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Whole names and parameters; tied ones once."""
        return ((parameter.name, parameter) for parameter in self)

    def num_parameters(self, *, trainable_only: bool = False) -> int:
        """Elements of all parameters together, over all ranks; buffers do not count."""
        return sum(p.count for p in self if not p.is_buffer and (p.trainable or not trainable_only))

    def state_dict(self, *, local: bool = False, kind: Kind = "numpy") -> dict[str, NewArray]:
        """Copies of all values by name, as arrays of "numpy", "torch", "jax" or "tensor". Collective: the whole ones, on every
        rank. `local`: this rank's rows alone, on the host, and the call is local."""
        known_kind(kind)  # before anything runs
        if local:
            self._before_reading_rows()
            made = {p.name: Tensor(c.gw_tensor_to_host(c.gw_parameter_tensor(p._h, Part.VALUE), None)).to(kind) for p in self}
        else:
            self._before_reading()
            made = {p.name: p.gather(kind) for p in self}
        return {**made, **{alias: made[name] for alias, name in self._aliases().items()}}

    def load_state_dict(self, state: Mapping[str, Array], *, ignore_extra: bool = False) -> Self:
        """Collective. New values from arrays by name, whole ones or this rank's rows: what state_dict() gives, on any mesh if
        they are whole. `ignore_extra`: arrays that the model does not have are no error. A refusal on one rank is one
        on every rank, and no value has changed."""
        mine = dict(self.named_parameters())
        views: dict[str, View] = {}
        refusal: Exception | None = None
        try:
            views = {name: self._fitting(state, name, parameter) for name, parameter in mine.items()}
            extra = [] if ignore_extra else [name for name in state if name not in mine and not self._knows(name)]
            if extra:
                raise InvalidArgument(f"state has {', '.join(extra)}, for which the model has no place")
        except (InvalidArgument, TypeError) as error:
            refusal = error
        agree(None if self._mesh is None else self._mesh.root, refusal)
        for name, view in views.items():
            c.gw_parameter_assign(mine[name]._h, view, self._place.stream)
        self._after_writing()
        return self

    def _fitting(self, state: Mapping[str, Array], name: str, parameter: Parameter) -> View:
        there = [n for n in (name, *(alias for alias, first in self._aliases().items() if first == name)) if n in state]
        if not there:
            raise InvalidArgument(f"state has no {name}")
        for other in there[1:]:
            if state[other] is not state[there[0]] and as_numpy(state[other]).tobytes() != as_numpy(state[there[0]]).tobytes():
                raise InvalidArgument(f"state has another {other} than {there[0]}, but the model ties them")
        name = there[0]
        given = state[name]
        if parameter.is_buffer and dtype_of(getattr(given, "dtype", None)) not in FLOATING:  # a counter
            given = as_numpy(given).astype(np.float64)
        view = self._place.borrow(given, f'state["{name}"]')
        if view.shape == () and parameter.shape == (1,):  # a scalar is one row
            view = one_row(view)
        first, last = parameter.rows
        if view.shape not in (parameter.shape, (last - first, *parameter.shape[1:])):
            raise InvalidArgument(f'state["{name}"] has shape {list(view.shape)}, the parameter {list(parameter.shape)}, of '
                                  f"which this rank has {last - first} rows")
        if DType(view.dtype) not in FLOATING:
            raise InvalidArgument(f'state["{name}"] is {c.gw_dtype_name(view.dtype)}, not f64, f32, bf16 or f16')
        return view

    def _knows(self, name: str) -> bool:
        """Whether it names a parameter, also a tied one by its other name."""
        try:
            c.gw_module_find_parameter(self._h, name)
        except NotFound:
            return False
        return True

    def memory(self) -> dict[str, int]:
        """Bytes of this rank by use."""
        use = struct("gw_memory_use")
        c.gw_module_memory(self._h, use)
        return {name: getattr(use, name) for name in fields_of(use)}

    def check_replicas(self) -> None:
        """Collective. Compares the values of ranks that must hold the same; `Mismatch` names the first element that
        differs, with both values and ranks. `parallelize` and `load` do so by themselves."""
        c.gw_module_check_replicas(self._h, self._place.stream)

    # --- files (collective)

    def save(self, folder: PathLike, *, dtype: DTypeLike = None, max_file_bytes: int = 0) -> None:
        """folder/model.safetensors with Hugging Face's names, and config.json for a decoder; with max_file_bytes several files
        of up to so many bytes, and their index. One commit: readers find all of the earlier checkpoint or all of the new one,
        whenever the save ends or is killed."""
        where = path_of(folder, "folder")
        self._before_reading()
        c.gw_module_save(self._h, where, struct(
            "gw_save_options", dtype=dtype_of(dtype), max_file_bytes=max_file_bytes))

    def load(
        self, path: PathLike, *, ignore_extra: bool = False, ignore_config: bool = False
    ) -> Self:
        """A file or a folder of f64, f32, bf16 or f16, on any mesh. `ignore_extra`: tensors that the model does not
        have are no error. `ignore_config`: the folder's config.json may describe another model. A missing file or
        folder is a FileNotFoundError with its `filename`."""
        options = struct("gw_load_options", ignore_extra=ignore_extra, ignore_config=ignore_config)
        c.gw_module_load(self._h, path_of(path, "path"), options)
        self._after_writing()
        return self
