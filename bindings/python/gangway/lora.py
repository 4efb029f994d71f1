"""LoRA: low-rank adapters of linear layers, with the files of PEFT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from . import _low as c
from .arrays import DTypeLike, Place, dtype_of
from .structs import PathLike, path_of, struct

if TYPE_CHECKING:
    from typing_extensions import Self


def lora_options(patterns: str | Sequence[str] | None = None, *, rank: int = 8, alpha: float = 8.0, dropout: float = 0.0,
                 seed: int = 0, rank_stabilized: bool = False) -> Any:
    """gw_lora_options from the arguments of lora_apply()."""
    text = patterns if patterns is None or isinstance(patterns, str) else ", ".join(patterns)
    return struct("gw_lora_options", patterns=text, rank=rank, alpha=alpha, dropout=dropout, seed=seed,
                  rank_stabilized=rank_stabilized)


class LoraMethods:
    """What a Module has for its adapters. A layer with an adapter computes y = x W^T + b + scale (drop(x) A^T) B^T."""

    _h: Any
    _place: Place

    def lora_apply(self, patterns: str | Sequence[str] | None = None, *, rank: int = 8, alpha: float = 8.0, dropout: float = 0.0,
                   seed: int = 0, rank_stabilized: bool = False) -> Self:
        """Local, before parallelize(). Gives linear layers adapters and freezes all else.

        patterns: of module paths ("**.q_proj"), in a list or separated by commas; None: every linear layer but the head.
        scale is alpha / rank, or alpha / sqrt(rank) with rank_stabilized. dropout: of an adapter's input, in training. seed: of
        the first values of A; B begins as zeros."""
        c.gw_lora_apply(self._h, lora_options(patterns, rank=rank, alpha=alpha, dropout=dropout, seed=seed,
                                              rank_stabilized=rank_stabilized))
        return self

    def lora_apply_folder(self, folder: PathLike, *, seed: int = 0) -> Self:
        """Local, before parallelize(). lora_apply() with what the adapter_config.json of a PEFT folder says; lora_load() reads
        the values later."""
        c.gw_lora_apply_folder(self._h, path_of(folder, "folder"), seed)
        return self

    def lora_enable(self, on: bool = True) -> Self:
        """Collective. Off: the model computes without its adapters, as the reference model of DPO."""
        c.gw_lora_enable(self._h, int(on))
        return self

    def lora_save(self, folder: PathLike, *, base: str | None = None, dtype: DTypeLike = None) -> None:
        """Collective. The files that PeftModel.from_pretrained reads, in one commit. base: name or folder of the base model;
        None: the folder from which the model was loaded."""
        c.gw_lora_save(self._h, path_of(folder, "folder"), base, struct("gw_save_options", dtype=dtype_of(dtype)))

    def lora_load(self, folder: PathLike) -> Self:
        """Collective, on any mesh. The values of the adapters, from a folder of PEFT."""
        c.gw_lora_load(self._h, path_of(folder, "folder"))
        return self

    def lora_merge(self) -> Self:
        """Collective. Adds the adapters to the weights and switches them off, with B zero; save() then writes a plain folder
        of Hugging Face."""
        c.gw_lora_merge(self._h, self._place.stream)
        return self
