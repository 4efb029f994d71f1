"""python -m gangway.dcp: checkpoints of PyTorch (torch.distributed.checkpoint, DCP) and of gangway, both ways.

to-gangway DCP_FOLDER OUT writes OUT/model.safetensors for Module.load, and OUT/optimizer.safetensors for load_optimizer.
from-gangway CHECKPOINT OUT writes a folder that dcp.load reads into the state_dicts that
torch.distributed.checkpoint.state_dict.get_state_dict gives, of a model and a torch.optim.AdamW.

PyTorch's own reader and writer do the work, so PyTorch must be installed. One tensor at a time is in memory on the way to
gangway; on the way from gangway the files are mapped.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import mmap
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from .groups import FORMS
from .structs import shown

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
           "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}
_MOMENTS = ("exp_avg", "exp_avg_sq")


class _Refused(Exception):
    """What cannot be done, as a text for the user."""


def _torch() -> Any:
    if importlib.util.find_spec("torch") is None:
        raise _Refused("PyTorch is missing: pip install torch")
    return importlib.import_module("torch")


def _dcp() -> Any:
    return importlib.import_module("torch.distributed.checkpoint")


def _alone(call: Callable[..., Any], values: Mapping[str, Any], folder: Path) -> None:
    """Saves or loads in this process alone. PyTorch warns that it does so, which is what is meant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(values, checkpoint_id=str(folder), no_dist=True)


def _empty(out: Path) -> None:
    """Nothing is overwritten: a folder with parts of two checkpoints would be read as one."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise _Refused(f"{out} exists and is no empty folder: name another, or remove it")
    out.mkdir(parents=True, exist_ok=True)


def _write(path: Path, sizes: Mapping[str, tuple[Any, Sequence[int]]], value: Callable[[str], Any]) -> None:
    """A safetensors file of tensors with these dtypes and shapes, whose values are asked for one by one."""
    torch = _torch()
    names = {getattr(torch, name): code for code, name in _DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in sizes.items():
        if dtype not in names:
            raise _Refused(f"{name} is {dtype}, which gangway's files do not have")
        begin, end = end, end + torch.empty(0, dtype=dtype).element_size() * torch.Size(shape).numel()
        header[name] = {"dtype": names[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in sizes:
                file.write(value(name).contiguous().reshape(-1).view(torch.uint8).numpy().data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _read_file(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file, which are mapped, not read."""
    torch = _torch()
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    begin = 8 + int.from_bytes(content[:8], "little")
    found = {}
    for name, tensor in json.loads(content[8:begin]).items():
        if name == "__metadata__":
            continue
        if tensor["dtype"] not in _DTYPES:
            raise _Refused(f"{path}: {name} is {tensor['dtype']}, which is not known here")
        dtype, shape = getattr(torch, _DTYPES[tensor["dtype"]]), torch.Size(tensor["shape"])
        if shape.numel() == 0:  # frombuffer refuses no elements
            found[name] = torch.empty(shape, dtype=dtype)
            continue
        offset = begin + tensor["data_offsets"][0]
        found[name] = torch.frombuffer(content, dtype=dtype, count=shape.numel(), offset=offset).reshape(shape)
    return found


def _read(folder: Path, stem: str) -> dict[str, Any]:
    """The tensors of one file, or of the files that an index names."""
    one = folder / f"{stem}.safetensors"
    index = folder / f"{stem}.safetensors.index.json"
    if one.is_file():
        return _read_file(one)
    if not index.is_file():
        raise _Refused(f"{folder} has neither {one.name} nor {index.name}")
    files = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    return {name: value for file in files for name, value in _read_file(folder / file).items()}


class _Found:
    """The tensors of a DCP folder by what they are: fields map a parameter's name to the name of a tensor in DCP."""

    def __init__(self, folder: Path, model_key: str | None) -> None:
        try:
            metadata = _dcp().FileSystemReader(str(folder)).read_metadata()
        except OSError as error:
            raise _Refused(f"{folder} is no DCP folder: {error}") from None
        self.sizes = {name: (entry.properties.dtype, entry.size) for name, entry in metadata.state_dict_metadata.items()
                      if hasattr(entry, "properties")}
        # Where a tensor was in the nested dicts that were saved. Names alone are ambiguous, since they have
        # dots, too.
        places = metadata.planner_data or {}
        paths = {name: tuple(map(str, places.get(name, (name,)))) for name in self.sizes}
        self.states: dict[str, dict[str, str]] = {}
        rest = {name: path for name, path in paths.items() if not self._take_state(name, path)}
        prefix = f"{model_key}." if model_key else "" if model_key == "" else self._prefix(rest)
        self.model = {".".join(path)[len(prefix):]: name for name, path in rest.items()
                      if ".".join(path).startswith(prefix) and (prefix or len(path) == 1)}
        if not self.model:
            keys = sorted({path[0] if len(path) > 1 else "" for path in rest.values()})
            raise _Refused(f"{folder} has no tensors of a model under \"{prefix}\"; it has the keys {keys}: give --model-key")

    def _take_state(self, name: str, path: tuple[str, ...]) -> bool:
        """get_state_dict nests states: (..., "state", parameter, state); flattened ones are (..., "state.parameter.state")."""
        if len(path) >= 3 and path[-3] == "state":
            parameter, state = path[-2:]
        elif found := re.fullmatch(r"(?:optim\w*\.)?state\.(.+)\.([^.]+)", path[-1]):
            parameter, state = found[1], found[2]
        else:
            return False
        self.states.setdefault(state, {})[parameter] = name
        return True

    @staticmethod
    def _prefix(paths: Mapping[str, tuple[str, ...]]) -> str:
        for path in paths.values():
            if "model" in path[:-1]:
                return ".".join(path[: path.index("model") + 1]) + "."
        return ""


def _common_step(found: _Found, load: Callable[[str], Any]) -> int:
    steps = {parameter: int(load(name)) for parameter, name in found.states["step"].items()}
    first = next(iter(steps))
    for parameter, step in steps.items():
        if step != steps[first]:
            raise _Refused(f"{first} has taken {steps[first]} steps, {parameter} {step}: gangway's file has one number for all; "
                           "--model-only leaves the optimizer out")
    return steps[first]


def _floating(dtype: Any) -> Any:
    """Counters and masks become f64, as copies of a module's buffers are."""
    return dtype if dtype.is_floating_point or dtype.is_complex else _torch().float64


def _as_floating(name: str, value: Any) -> Any:
    made = value.to(_floating(value.dtype))
    if not (made.is_complex() or _torch().equal(made.to(value.dtype), value)):
        raise _Refused(f"{name} has integers above 2**53, which gangway's files do not hold")
    return made


def to_gangway(source: Path, out: Path, *, model_key: str | None = None, model_only: bool = False) -> None:
    """Writes the model, and the states of its AdamW if there are any, of a DCP folder as gangway's files."""
    torch = _torch()
    found = _Found(source, model_key)

    def load(name: str) -> Any:
        dtype, size = found.sizes[name]
        value = {name: torch.empty(size, dtype=dtype)}
        _alone(_dcp().load, value, source)
        return value[name]

    states = {} if model_only else found.states
    unknown = sorted(set(states) - {*_MOMENTS, "step"})
    if unknown:
        raise _Refused(f"the optimizer has the state {unknown[0]}, which AdamW has not; --model-only leaves the optimizer out")
    lacking = [state for state in (*_MOMENTS, "step") if states and state not in states]
    if lacking:
        raise _Refused(f"the optimizer has no state {lacking[0]}, so it is no AdamW; --model-only leaves it out")
    step = _common_step(found, load) if states else 0
    _empty(out)
    _write(out / "model.safetensors", {name: (_floating(found.sizes[tensor][0]), found.sizes[tensor][1])
                                       for name, tensor in found.model.items()},
           lambda name: _as_floating(found.model[name], load(found.model[name])))
    if states:
        moments = {f"{state}.{parameter}": name for state in _MOMENTS for parameter, name in states[state].items()}
        sizes = {name: found.sizes[tensor] for name, tensor in moments.items()}
        _write(out / "optimizer.safetensors", {**sizes, "step": (torch.int64, (1,))},
               lambda name: torch.tensor([step]) if name == "step" else load(moments[name]))
    print(f"{shown(out)}: {len(found.model)} tensors of the model, " + (f"AdamW after {step} steps" if states else "no optimizer"))


def _tied_head(source: Path, model: Mapping[str, Any]) -> dict[str, Any]:
    """The head of a decoder that ties it: its files have the embedding alone, and a state_dict of PyTorch has both names."""
    config = source / "config.json"
    if "lm_head.weight" in model or not config.is_file():
        return {}
    embeddings = [name for name in model if name.endswith((".embed_tokens.weight", ".wte.weight"))]
    return {"lm_head.weight": model[name] for name in embeddings[:1]}


def _as_in_framework(model: Mapping[str, Any], forms: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors with the dtypes and shapes of the module that gw.shard took: counters and tensors without dims."""
    torch = _torch()
    made = dict(model)
    for name, (dtype, shape) in forms.items():
        made[name] = made[name].reshape(shape).to(getattr(torch, dtype) if dtype else made[name].dtype)
    return made


def _groups(optimizer: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Hyperparameters as a group of all parameters, and for each parameter, as the flattened form of PyTorch has them."""
    torch = _torch()
    given = optimizer["hyperparameters"]
    made = torch.optim.AdamW([torch.zeros(1)], lr=optimizer["lr"], betas=(given["beta1"], given["beta2"]), eps=given["eps"],
                             weight_decay=given["weight_decay"])
    fields = {name: value for name, value in made.state_dict()["param_groups"][0].items() if name != "params"}
    flat = {f"param_groups.{parameter}.{name}": 0.0 if name == "weight_decay" and value.dim() < 2 else field
            for parameter, value in parameters.items() for name, field in fields.items()}
    return {"param_groups": [{**fields, "params": list(parameters)}], **flat}


def from_gangway(source: Path, out: Path, *, model_key: str = "model", optimizer_key: str = "optim") -> None:
    """Writes a checkpoint's model, and the states of its AdamW if there is one, as a DCP folder."""
    torch = _torch()
    state_file = source / "state.json"
    state = json.loads(state_file.read_text(encoding="utf-8")) if state_file.is_file() else {}
    optimizer = state.get("optimizers", {}).get("")
    if optimizer is not None and optimizer["kind"] != "adamw":
        raise _Refused(f"{source} has the states of {optimizer['kind']}; only those of adamw are converted")
    forms = json.loads(state.get("texts", {}).get(FORMS, "{}")).get("", {})
    model = _as_in_framework(_read(source, "model"), forms)
    model.update(_tied_head(source, model))
    written: dict[str, Any] = {model_key: model} if model_key else dict(model)
    if optimizer is not None:
        values = _read(source, "optimizer")
        trained = {name: model[name] for name in model if f"exp_avg.{name}" in values}
        late = optimizer["first_steps"]  # of parameters that were frozen before
        if unknown := sorted(set(late) - set(model)):
            raise _Refused(f"{unknown[0]} began after the others, and the files have it under another name: one step counter for "
                           "it cannot be written")
        written[optimizer_key] = {
            "state": {name: {"step": torch.tensor(float(optimizer["steps"] - late.get(name, 0))),
                             **{moment: values[f"{moment}.{name}"].reshape(model[name].shape) for moment in _MOMENTS}} for name in trained},
            **_groups(optimizer, trained)}
    _empty(out)
    _alone(_dcp().save, written, out)
    print(f"{shown(out)}: {len(model)} tensors of the model, "
          + (f"AdamW after {optimizer['steps']} steps" if optimizer is not None else "no optimizer"))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="gangway.dcp", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    to = commands.add_parser("to-gangway", help="from a DCP folder")
    to.add_argument("source", type=Path, metavar="DCP_FOLDER")
    to.add_argument("out", type=Path, metavar="OUT")
    to.add_argument("--model-key", help="where the model is; default: model if there is such a key, else \"\"")
    to.add_argument("--model-only", action="store_true", help="leaves the optimizer out")
    back = commands.add_parser("from-gangway", help="from a folder such as run/step-00000500")
    back.add_argument("source", type=Path, metavar="CHECKPOINT")
    back.add_argument("out", type=Path, metavar="OUT")
    back.add_argument("--model-key", default="model", help="where to write the model; \"\": at the top; default: model")
    back.add_argument("--optimizer-key", default="optim", help="where to write the optimizer; default: optim")
    asked = parser.parse_args(arguments)
    try:
        if asked.command == "to-gangway":
            to_gangway(asked.source, asked.out, model_key=asked.model_key, model_only=asked.model_only)
        else:
            from_gangway(asked.source, asked.out, model_key=asked.model_key, optimizer_key=asked.optimizer_key)
    except (_Refused, OSError) as error:
        sys.exit(f"gangway.dcp: {error}")


if __name__ == "__main__":
    main()
