"""The buffers of a sharded PyTorch module, such as a BatchNorm's running statistics. The module computes with its own tensors, of
which every rank has the whole; a shard group holds copies for state dicts, files and checkpoints."""

from __future__ import annotations

import importlib
from typing import Any, Iterable, Iterator, NamedTuple

from .enums import Part
from .errors import InvalidArgument
from .groups import ShardGroup
from .mesh import Gangs
from .objects import agree
from .parameters import Spec, spec_of


def names_of_tied(named: Iterable[tuple[str, Any]]) -> dict[str, list[str]]:
    """By the first name of each tensor all further ones, as module.state_dict() has them."""
    first: dict[int, str] = {}
    names: dict[str, list[str]] = {}
    for name, tensor in named:
        own = first.setdefault(id(tensor), name)
        if own == name:
            names[name] = []
        else:
            names[own].append(name)
    return names


class Home(NamedTuple):
    """Where a buffer is found: its module may put another tensor there at any time."""

    module: Any
    key: str

    def tensor(self) -> Any:
        """The present one; None where there is none any more."""
        return self.module._buffers.get(self.key)


def persistent_buffers(module: Any, prefix: str) -> Iterator[tuple[str, Home]]:
    """Those that module.state_dict() has, by whole name; a shared one under each of its names."""
    for path, owner in module.named_modules(prefix=prefix, remove_duplicate=False):
        for key, tensor in owner._buffers.items():
            if tensor is not None and key not in owner._non_persistent_buffers_set:
                yield f"{path}.{key}" if path else key, Home(owner, key)


class TorchBuffers(ShardGroup):
    """The copies of a module's buffers. Floating ones are f32, or f64 where the buffer is; counters and masks are f64, which has
    every integer up to 2**53. A state dict, a save and a checkpoint have the buffers of rank 0, as DDP does; a load gives them to
    every rank."""

    def __init__(self, homes: dict[str, Home], gangs: Gangs | None) -> None:
        self._torch = importlib.import_module("torch")
        tied = names_of_tied((name, home.tensor()) for name, home in homes.items())
        self._homes = {name: homes[name] for name in tied}
        self._shapes = {name: tuple(home.tensor().shape) for name, home in self._homes.items()}
        super().__init__(gangs, "", {name: self._spec(name, aliases) for name, aliases in tied.items()}, kind="torch")
        self._rows = {p.name: p.rows for p in ShardGroup.module(self)}

    def _spec(self, name: str, aliases: list[str]) -> Spec:
        tensor = self._homes[name].tensor()
        if tensor.is_complex() or tensor.is_quantized or tensor.layout != self._torch.strided:
            raise InvalidArgument(f"buffer {name} is {tensor.dtype}, {tensor.layout}, which files do not hold: convert it, or "
                                  "register it with persistent=False")
        first = spec_of(self._wide(tensor).cpu())
        return Spec(first.shape, first.dtype, first.init, is_buffer=True, aliases=aliases)

    def _wide(self, tensor: Any) -> Any:
        torch = self._torch
        narrow = tensor.is_floating_point() and tensor.dtype != torch.float64
        return tensor.detach().to(torch.float32 if narrow else torch.float64)

    def _present(self) -> dict[str, Any]:
        """The buffers as they are now, wide."""
        made = {}
        for name, home in self._homes.items():
            tensor, shape = home.tensor(), self._shapes[name]
            if tensor is None or tuple(tensor.shape) != shape:
                now = "not there" if tensor is None else f"{list(tensor.shape)}"
                raise InvalidArgument(f"buffer {name} is {now}, and was {list(shape)} when its module was sharded, which is what "
                                      "files have a place for")
            made[name] = self._wide(tensor)
            if not (tensor.is_floating_point() or self._torch.equal(made[name].to(tensor.dtype), tensor.detach())):
                raise InvalidArgument(f"buffer {name} has integers above 2**53, which files do not hold")
        return made

    def _store_buffers(self) -> None:
        root = None if self._mesh is None else self._mesh.root
        present: dict[str, Any] = {}
        refusal: Exception | None = None
        try:
            present = self._present()
        except InvalidArgument as error:
            refusal = error
        agree(root, refusal)
        if root is not None and root.size > 1:
            whole = self._torch.cat([value.reshape(-1).double() for value in present.values()])
            parts = root.broadcast_(whole).split([value.numel() for value in present.values()])
            present = {name: part.reshape(value.shape) for (name, value), part in zip(present.items(), parts)}
        with self.updating() as mine:
            self._write(mine, present)

    def _store_own_buffers(self) -> None:
        self._write(self._all(Part.VALUE, False), self._present())

    def _write(self, mine: dict[str, Any], present: dict[str, Any]) -> None:
        for name, (first, last) in self._rows.items():
            value = present[name]
            mine[name].copy_((value if value.dim() else value.reshape(1))[first:last])

    def _fetch_buffers(self) -> None:
        with self.unsharded() as full, self._torch.no_grad():
            for name, home in self._homes.items():
                tensor = home.tensor()
                if tensor is not None and tuple(tensor.shape) == self._shapes[name]:
                    tensor.copy_(full[name])

    def _forms(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        made = {name: (str(home.tensor().dtype).rpartition(".")[2], self._shapes[name]) for name, home in self._homes.items()}
        return {**made, **{alias: made[name] for alias, name in self._aliases.items()}}
