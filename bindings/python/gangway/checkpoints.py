"""The checkpoints of a run: everything that changes the next step."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Mapping, Protocol, Union

from . import _low as c
from .arrays import DTypeLike, dtype_of
from .groups import FORMS, ShardGroup
from .module import Module
from .options import gangs_of
from .structs import PathLike, block, handle_of, path_of, path_or_none, struct, text
from .train import Optimizer

if TYPE_CHECKING:
    from .mesh import Gangs

_DATA = "data"  # the text that has the position of the data


class Position(Protocol):
    """Data that knows where it is, such as a Dataset."""

    def position(self) -> str:
        """Where it is, equal on every rank."""

    def restore(self, position: str) -> Any:
        """Goes there."""


Models = Union[Module, ShardGroup, Mapping[str, Union[Module, ShardGroup]]]
Optimizers = Union[Optimizer, Mapping[str, Optimizer], None]


@dataclass(frozen=True)
class Restored:
    """What a checkpoint had besides the values. notes: a line for each thing that the restore did not take over, such as
    "lr: 0.001 in the checkpoint, 0.002 now"."""

    step: int
    tokens: int
    user_bytes: bytes
    notes: tuple[str, ...]

    @property
    def user(self) -> Any:
        """What save() was given as user; None: nothing."""
        return json.loads(self.user_bytes) if self.user_bytes else None


def _by_name(models: Models) -> dict[str, Module]:
    named = dict(models) if isinstance(models, Mapping) else {"": models}
    return {name: ShardGroup.module(model) if isinstance(model, ShardGroup) else model for name, model in named.items()}


def _parts(models: Models, optimizers: Optimizers, carry_from: bytes | None) -> list[Any]:
    named = _by_name(models)
    steps = dict(optimizers) if isinstance(optimizers, Mapping) else {} if optimizers is None else {"": optimizers}
    for name in steps:
        if name not in named:
            raise ValueError(f"optimizer[{name!r}] has no model of this name")
    return [struct("gw_checkpoint_part", name=name, model=handle_of(model, Module, "model"),
                   optimizer=handle_of(steps[name], Optimizer, "optimizer") if name in steps else None,
                   carry_from=carry_from if i == 0 else None)
            for i, (name, model) in enumerate(named.items())]


class Checkpoints:
    """The folder of a run, which one job holds at a time:

        run = gw.Checkpoints("run", keep=3, every=500)
        state = run.restore(model, opt, data)     # None: a new run
        ...
        if run.due(data.batches_taken):
            run.save(model, opt, data, user={"note": "..."})
        ...
        run.wait()

    keep: the newest complete ones stay; 0: all. every: what due() answers. synchronous: save() returns after the commit, and
    needs no memory for a copy. max_file_bytes: of a safetensors file; 0: no limit. model_dtype: of the model's files; None:
    the masters'. job: names the holder of the folder. timeout: seconds for the writing of one save. carry_from: a folder whose
    tokenizer and generation files are copied into each checkpoint."""

    def __init__(self, folder: PathLike, *, gangs: Gangs | None = None, keep: int = 3, every: int = 0, synchronous: bool = False,
                 max_file_bytes: int = 5 << 30, model_dtype: DTypeLike = None, job: str | None = None,
                 timeout: float = 3600.0, carry_from: PathLike | None = None) -> None:
        options = struct("gw_checkpoints_options", keep=keep, every=every, synchronous=synchronous,
                         max_file_bytes=max_file_bytes, model_dtype=dtype_of(model_dtype), job=job,
                         timeout_ms=round(timeout * 1000))
        self._folder, self._carry_from = path_of(folder, "folder"), path_or_none(carry_from, "carry_from")
        self._h = c.gw_checkpoints_create(gangs_of(gangs), self._folder, options)

    def __repr__(self) -> str:
        return f"<Checkpoints: {'released' if self._h is c.RELEASED else os.fsdecode(self._folder)}>"

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due at this step."""
        return bool(c.gw_checkpoints_due(self._h, step))

    def save(self, model: Models, optimizer: Optimizers = None, data: Position | None = None, *, step: int | None = None,
             tokens: int = 0, user: Any = None, texts: Mapping[str, str] | None = None) -> None:
        """Collective. Returns when the values are copied; a thread writes them beside training. First waits for the save before,
        and raises its error.

        model, optimizer: one, or several by name; each model has a folder of its name. step: names the checkpoint; None:
        data.batches_taken, else the steps of the optimizer. user: anything of JSON, or bytes of JSON; rank 0's is saved. texts:
        further texts by name, equal on every rank, such as {"metrics": metrics.position()}; text("metrics") gives it back."""
        if step is None:
            first = next(iter(optimizer.values()), None) if isinstance(optimizer, Mapping) else optimizer
            step = getattr(data, "batches_taken", None)
            step = step if step is not None else first.steps if first is not None else 0
        written = dict(texts or {})
        if data is not None:
            written[_DATA] = data.position()
        own = b"" if user is None else user if isinstance(user, bytes) else json.dumps(user).encode()
        parts = _parts(model, optimizer, self._carry_from)
        models = _by_name(model)
        for one in models.values():
            one._before_reading()
        forms = {name: one._forms() for name, one in models.items() if one._forms()}
        if forms:
            written[FORMS] = json.dumps(forms)
        made = [struct("gw_checkpoint_text", name=name, text=value) for name, value in written.items()]
        state = struct("gw_checkpoint_state", step=step, tokens=tokens, texts=block("s", made), text_count=len(made),
                       user=own or None, user_size=len(own))
        c.gw_checkpoints_save(self._h, block("s", parts), len(parts), state)

    def wait(self) -> None:
        """Collective. Waits until the last save has ended, and raises its error, once."""
        c.gw_checkpoints_wait(self._h)

    def restore(self, model: Models, optimizer: Optimizers = None, data: Position | None = None, *, step: int | None = None,
                verify: bool = True, strict: bool = True) -> Restored | None:
        """Collective. Restores the newest complete checkpoint, or that of a step, on any mesh; None: there is none.

        verify: checks every hash before a value changes. strict: refuses what has no place or no value; else it is left out, and
        listed in notes. Options of the optimizer hold; moments, steps and loss scale come from the checkpoint."""
        options = struct("gw_restore_options", step=step, no_verify=not verify, partial=not strict)
        parts = _parts(model, optimizer, None)
        found, tokens = c.gw_checkpoints_restore(self._h, block("s", parts), len(parts), options)
        if found < 0:
            return None
        for one in _by_name(model).values():
            one._after_writing()
        if data is not None:
            data.restore(self.text(_DATA))
        own = bytearray(c.gw_checkpoints_user(self._h, None, 0))
        if own:
            c.gw_checkpoints_user(self._h, own, len(own))
        return Restored(found, tokens, bytes(own), tuple(text(c.gw_checkpoints_notes, self._h).splitlines()))

    def text(self, name: str) -> str:
        """A text of the checkpoint that was restored last."""
        return text(c.gw_checkpoints_text, self._h, name)

    @property
    def buffer_bytes(self) -> int:
        """Host memory that is kept for copies."""
        return int(c.gw_checkpoints_buffer_bytes(self._h))

    def release(self) -> None:
        """Waits for a save in progress, and gives the folder back."""
        self._h = c.RELEASED


def load_optimizer(optimizer: Optimizer, path: PathLike) -> None:
    """Collective. Loads states from a safetensors file: tensors STATE.PARAMETER such as exp_avg.model.norm.weight, and `step`. A
    PyTorch state_dict loads if its states are saved under these names."""
    c.gw_optimizer_load(handle_of(optimizer, Optimizer, "optimizer"), path_of(path, "path"))
