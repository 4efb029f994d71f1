"""Modules: what a model is made of, with Hugging Face's names. A module describes until parallelize() or materialize()
gives it memory."""

from __future__ import annotations

import os
from typing import Any, Iterator, Sequence

from . import _low as c
from ._low import View
from .arrays import Array, as_kind, borrow, dtype_of, kind_of
from .enums import DType, Part, Recompute, Strategy, member
from .mesh import Gangs
from .structs import block, fields_of, struct


class Tensor:
    """A tensor of the library; NumPy, PyTorch and JAX take it by from_dlpack, without a copy."""

    def __init__(self, handle: Any, read_only: bool = False) -> None:
        self._view: View = c.gw_tensor_view(handle)  # keeps the handle
        self._view.read_only = read_only or c.gw_tensor_is_read_only(handle) == 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Of this rank's part."""
        return self._view.shape

    @property
    def dtype(self) -> DType:
        """Of the elements."""
        return DType(self._view.dtype)

    def __dlpack__(self, **request: Any) -> Any:
        return self._view.__dlpack__(**request)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._view.__dlpack_device__()

    def to(self, kind: str) -> Array:
        """The same memory as an array: "numpy", "torch" or "jax"."""
        return as_kind(self._view, kind)


class Parameter:
    """One parameter of a model."""

    def __init__(self, handle: Any) -> None:
        self._h = handle
        info = struct("gw_parameter_info")
        c.gw_parameter_describe(handle, info)
        self.name: str = info.name
        self.shape: tuple[int, ...] = tuple(info.dims)[: info.ndim]
        self.dtype = DType(info.dtype)
        self.is_buffer = bool(info.is_buffer)
        self.trainable = bool(info.trainable)
        self.rows: tuple[int, int] = (info.first_row, info.last_row)

    def __repr__(self) -> str:
        return f"<Parameter {self.name} {list(self.shape)} {self.dtype.name}, {self.layout or 'whole'}>"

    @property
    def layout(self) -> str:
        """Like "dp_shard: Shard(0)"."""
        info = struct("gw_parameter_info")
        c.gw_parameter_describe(self._h, info)
        return str(info.layout)

    def value(self, kind: str = "numpy") -> Array:
        """This rank's rows, read-only, without a copy. Arrays outlive the model."""
        return Tensor(c.gw_parameter_tensor(self._h, Part.VALUE), read_only=True).to(kind)

    def gradient(self, kind: str = "numpy") -> Array:
        """This rank's rows of the gradient, without a copy."""
        return Tensor(c.gw_parameter_tensor(self._h, Part.GRADIENT)).to(kind)

    def state(self, optimizer: Any, name: str, kind: str = "numpy") -> Array:
        """This rank's rows of an optimizer's state: "exp_avg", "exp_avg_sq", "momentum"."""
        return Tensor(c.gw_parameter_state_tensor(self._h, optimizer._h, name)).to(kind)

    def gather(self, kind: str = "numpy") -> Array:
        """Collective. The whole value on every rank."""
        return Tensor(c.gw_parameter_gather(self._h, None)).to(kind)

    def gather_gradient(self, kind: str = "numpy") -> Array:
        """Collective. The whole gradient on every rank."""
        return Tensor(c.gw_parameter_gather_gradient(self._h, None)).to(kind)

    def assign(self, whole: Array) -> None:
        """Collective. New values from an array of the global shape."""
        c.gw_parameter_assign(self._h, borrow(whole, "whole"), None)


class Frame:
    """The activations of one forward, kept for its backward. `loss_scale` is what the backward of a loss starts with."""

    def __init__(self, model: Module, *, loss_scale: float = 1.0, step: int = 0, microbatch: int = 0) -> None:
        options = struct("gw_frame_options", loss_scale=loss_scale, step=step, microbatch=microbatch)
        self._h = c.gw_frame_create(model._h, options)

    def reset(self) -> None:
        """Forgets what was saved."""
        c.gw_frame_reset(self._h)


def parallel_options(kind: str, strategy: Strategy | str, options: dict[str, Any]) -> Any:
    """gw_parallel_options or gw_shard_options from keywords: *_dtype takes dtypes, dtype_rules {pattern: dtype}."""
    fields: dict[str, Any] = {n: dtype_of(v) if n.endswith("_dtype") else v for n, v in options.items()}
    if "recompute" in fields:
        fields["recompute"] = member(Recompute, fields["recompute"], "recompute")
    rules = fields.pop("dtype_rules", None)
    if rules:
        made = [struct("gw_dtype_rule", pattern=pattern, dtype=dtype_of(dtype)) for pattern, dtype in rules.items()]
        fields["rules"], fields["rule_count"] = block("s", made), len(made)
    return struct(kind, strategy=member(Strategy, strategy, "strategy"), **fields)


class Module:
    """A module of the library."""

    def __init__(self, handle: Any) -> None:
        self._h = handle

    def release(self) -> None:
        """Drops the handle now."""
        self._h = c.RELEASED

    # --- wrapping (collective)

    def parallelize(self, gangs: Gangs | None = None, *, strategy: Strategy | str = "full_shard", **options: Any) -> Module:
        """Checks all, then shards, wraps and fills this rank's rows; once, before the optimizer. Options are those of
        gw_parallel_options: recompute, param_dtype, reduce_dtype, master_dtype, seed, ..."""
        c.gw_parallelize(self._h, _gangs(gangs), parallel_options("gw_parallel_options", strategy, options))
        return self

    def fully_shard(self, pattern: str = "", gangs: Gangs | None = None, *, strategy: Strategy | str = "full_shard",
                    **options: Any) -> Module:
        """Each match of a pattern of whole paths becomes a unit; "" is the root, the last. materialize() follows."""
        c.gw_fully_shard(self._h, pattern, _gangs(gangs), parallel_options("gw_shard_options", strategy, options))
        return self

    def replicate(self, gangs: Gangs | None = None, **options: Any) -> Module:
        """Plain data parallel. materialize() follows."""
        c.gw_replicate(self._h, _gangs(gangs), parallel_options("gw_shard_options", "no_shard", options))
        return self

    def recompute(self, kind: Recompute | str = "full", *, every: int = 2, ratio: float = 1.0) -> Module:
        """Local, before fully_shard()."""
        c.gw_recompute(self._h, member(Recompute, kind, "kind"), every, ratio)
        return self

    def materialize(self, gangs: Gangs | None = None, *, seed: int = 0, master_dtype: Any = None) -> Module:
        """Memory and first values; parallelize() does it by itself."""
        c.gw_module_materialize(self._h, _gangs(gangs), seed, dtype_of(master_dtype))
        return self

    def freeze(self, pattern: str) -> Module:
        """Parameters whose whole name matches get no gradient; before the wrapping."""
        c.gw_module_freeze(self._h, pattern)
        return self

    def no_sync(self, on: bool = True) -> None:
        """On: backward adds up without reducing over replicas, until the first backward after off."""
        c.gw_module_set_no_sync(self._h, int(on))

    # --- computing (collective)

    def forward(self, *inputs: Array, frame: Frame | None = None) -> list[Array]:
        """Outputs, as arrays of the first input's framework. Without a frame: evaluation."""
        views = [borrow(x, f"inputs[{i}]") for i, x in enumerate(inputs)]
        made = c.gw_module_forward(self._h, block("v", views), len(views), frame._h if frame else None, None)
        kind = kind_of(inputs[0])
        return [Tensor(t).to(kind) for t in made]

    def backward(self, *output_grads: Array | None, frame: Frame, kind: str = "numpy") -> list[Array | None]:
        """Input gradients (None where there is none) from those of the outputs (none for a loss)."""
        views = [None if g is None else borrow(g, f"output_grads[{i}]") for i, g in enumerate(output_grads)]
        made = c.gw_module_backward(self._h, block("v", views), len(views), frame._h, None)
        return [None if t is None else Tensor(t).to(kind) for t in made]

    def generate(self, prompt: Sequence[int] | bytes, count: int = 64, **options: Any) -> list[int]:
        """Token ids that continue a prompt: temperature, top_k, seed."""
        room = bytearray(8 * max(count, 0))
        c.gw_generate(self._h, block("l", prompt), len(prompt), struct("gw_generate_options", token_count=count, **options),
                      None, room, len(room) // 8)
        return memoryview(room).cast("q").tolist()

    def zero_grad(self) -> None:
        """Local. Empties the local gradients."""
        c.gw_zero_grad(self._h, None)

    def clip_grad_norm(self, max_norm: float, p: float = 2.0) -> float:
        """Scales the local gradients; the norm before it."""
        return float(c.gw_clip_grad_norm(self._h, max_norm, p, None))

    # --- looking in

    def __len__(self) -> int:
        return int(c.gw_module_parameter_count(self._h))

    def __iter__(self) -> Iterator[Parameter]:
        return (Parameter(c.gw_module_parameter(self._h, i)) for i in range(len(self)))

    def __getitem__(self, name: str) -> Parameter:
        """A parameter by whole name."""
        return Parameter(c.gw_module_find_parameter(self._h, name))

    def __bool__(self) -> bool:
        return True

    def memory(self) -> dict[str, int]:
        """Bytes by use."""
        use = struct("gw_memory_use")
        c.gw_module_memory(self._h, use)
        return {name: getattr(use, name) for name in fields_of(use)}

    # --- files (collective)

    def save(self, folder: str | os.PathLike[str], *, dtype: Any = None) -> None:
        """folder/model.safetensors with Hugging Face's names, and config.json for a Llama. One commit: readers find all of
        the earlier checkpoint or all of the new one, whenever the save ends or is killed."""
        c.gw_module_save(self._h, os.fspath(folder), struct("gw_save_options", dtype=dtype_of(dtype)))

    def load(
        self, path: str | os.PathLike[str], *, ignore_extra: bool = False, ignore_config: bool = False
    ) -> Module:
        """A file or a folder of f64, f32, bf16 or f16, on any mesh. `ignore_extra`: tensors that the model has no place for
        are no error. `ignore_config`: the folder's config.json may describe another model. A missing file or folder is a
        FileNotFoundError with its `filename`."""
        options = struct("gw_load_options", ignore_extra=ignore_extra, ignore_config=ignore_config)
        c.gw_module_load(self._h, os.fspath(path), options)
        return self


def _gangs(gangs: Gangs | None) -> Any:
    return None if gangs is None else gangs._h


class Llama(Module):
    """inputs {tokens i64 [B, S]} -> logits. Options are those of gw_llama_options: vocab, dim, layers, heads, ..."""

    def __init__(self, **options: Any) -> None:
        super().__init__(c.gw_llama_create(struct("gw_llama_options", **options)))

    @staticmethod
    def options_from(folder: str | os.PathLike[str]) -> dict[str, Any]:
        """Local. The options that a Hugging Face folder's config.json stands for: Llama(**Llama.options_from(folder))."""
        made = struct("gw_llama_options")
        c.gw_llama_options_from_folder(os.fspath(folder), made)
        return {name: getattr(made, name) for name in fields_of(made)}

    @classmethod
    def from_pretrained(
        cls, folder: str | os.PathLike[str], gangs: Gangs | None = None, *, strategy: Strategy | str = "full_shard",
        **options: Any,
    ) -> Llama:
        """Collective. A Hugging Face folder (families llama, qwen2 and mistral) as a model that trains and generates. Options
        are those of parallelize()."""
        made = parallel_options("gw_parallel_options", strategy, options)
        model = cls.__new__(cls)
        Module.__init__(model, c.gw_llama_from_folder(_gangs(gangs), os.fspath(folder), made))
        return model


class Linear(Module):
    """y = x W^T + b."""

    def __init__(self, input_dim: int, output_dim: int, bias: bool = True) -> None:
        super().__init__(c.gw_linear_create(input_dim, output_dim, int(bias)))


class Embedding(Module):
    """ids i64 -> rows of weight [rows, dim]."""

    def __init__(self, rows: int, dim: int) -> None:
        super().__init__(c.gw_embedding_create(rows, dim))


class RMSNorm(Module):
    """{x} or {x, residual} -> {y, sum}."""

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__(c.gw_rmsnorm_create(dim, eps))


class Attention(Module):
    """x [B, S, dim] -> the same. Options are those of gw_attention_options."""

    def __init__(self, dim: int, heads: int, **options: Any) -> None:
        super().__init__(c.gw_attention_create(struct("gw_attention_options", dim=dim, heads=heads, **options)))


class Mlp(Module):
    """SwiGLU."""

    def __init__(self, dim: int, ffn: int, bias: bool = False) -> None:
        super().__init__(c.gw_mlp_create(dim, ffn, int(bias)))


class Block(Module):
    """Pre-norm block."""

    def __init__(self, dim: int, heads: int, ffn: int, eps: float = 1e-5, **options: Any) -> None:
        attention = struct("gw_attention_options", dim=dim, heads=heads, **options)
        super().__init__(c.gw_block_create(attention, ffn, eps))


class Sequential(Module):
    """One after the other, children "0", "1", ..."""

    def __init__(self, *modules: Module) -> None:
        super().__init__(c.gw_sequential_create(block("gw_module", [m._h for m in modules]), len(modules)))
