"""Own compute as a module."""

from __future__ import annotations

import gc
from typing import Any, Mapping, Protocol, Sequence

import numpy as np

from . import _low as c
from . import low
from ._low import View
from .arrays import Array, NewArray, as_kind, borrow, dtype_of, known_kind, write
from .enums import DType, Phase
from .errors import InvalidArgument, InvalidState
from .module import Module
from .names import Kind
from .parameters import Spec, parameter_options, spec_of
from .structs import block, struct


_PHASES = {int(phase): phase for phase in Phase}


class Call:
    """What a callback sees. Arrays show the library's memory and live as long as the callback; copy what is kept, or
    leave it in `state` for backward."""

    __slots__ = ("_frame", "_inner", "_lent", "phase", "training", "recomputing", "microbatch", "step", "seed", "loss_scale")

    def __init__(self, raw: Any, inner: _Inner, facts: tuple[Any, ...]) -> None:
        self._frame, self._inner = raw, inner
        self._lent: list[tuple[str, list[View | None]]] = []
        self.training: bool
        self.recomputing: bool
        self.microbatch: int
        self.step: int
        self.seed: int
        self.loss_scale: float
        """Loss scale / N: what the gradient of a loss starts with."""
        phase, self.training, self.recomputing, self.microbatch, self.step, self.seed, self.loss_scale = facts
        self.phase = _PHASES[phase]

    @property
    def _raw(self) -> Any:
        if self._frame is None:
            raise InvalidState(f"{self._inner.name}: {self.phase.name.lower()} has ended, and with it what its call shows")
        return self._frame

    def _arrays(self, field: str, writable: bool) -> list[NewArray | None]:
        return self._lend(field, c.call_views(self._raw, field, not writable))

    def _lend(self, name: str, views: list[View | None]) -> list[NewArray | None]:
        self._lent.append((name, views))
        arrays = []
        for view in views:
            arrays.append(None if view is None else as_kind(view, self._inner.kind))
        return arrays

    @property
    def inputs(self) -> list[NewArray | None]:
        """In forward and backward; read-only."""
        return self._arrays("inputs", False)

    @property
    def outputs(self) -> list[NewArray | None]:
        """To write in forward; as written in backward."""
        return self._arrays("outputs", self.phase == Phase.FORWARD)

    @property
    def output_grads(self) -> list[NewArray | None]:
        """In backward_input; None: zero."""
        return self._arrays("output_grads", False)

    @property
    def input_grads(self) -> list[NewArray | None]:
        """In backward_input, to write; None: not wanted."""
        return self._arrays("input_grads", True)

    @property
    def parameters(self) -> dict[str, NewArray | None]:
        """Values in the compute dtype, read-only."""
        return dict(zip(self._inner.parameters, self._arrays("parameters", False)))

    @property
    def parameter_grads(self) -> dict[str, NewArray | None]:
        """To add to; None: frozen."""
        return dict(zip(self._inner.parameters, self._arrays("parameter_grads", True)))

    def set_outputs(self, *outputs: Array | float) -> None:
        """In forward: writes the outputs, of which one with one element may be a number. For JAX, whose arrays are immutable,
        the only way; NumPy's and PyTorch's may be written in place as well."""
        self._write("outputs", outputs)

    def set_input_grads(self, *grads: Array | None) -> None:
        """In backward_input: writes the input gradients that are wanted; None: zero."""
        self._write("input_grads", grads)

    def add_gradients(self, gradients: Mapping[str, Array]) -> None:
        """In backward_input or backward_weight: adds to the gradients of parameters by name, but not of frozen ones."""
        views = dict(zip(self._inner.parameters, c.call_views(self._raw, "parameter_grads", False)))
        for name, gradient in gradients.items():
            if name not in views:
                raise InvalidArgument(f'gradients has "{name}", {self._inner.name} only {", ".join(views) or "none"}')
            view = views[name]
            if view is not None:
                write(view, gradient, f'gradients["{name}"]', add=True)

    def _write(self, field: str, arrays: Sequence[Array | float | None]) -> None:
        views = c.call_views(self._raw, field, False)
        if len(arrays) != len(views):
            raise InvalidArgument(f"{len(arrays)} {field} were given, {self._inner.name} has {len(views)}")
        described = field != "outputs" or hasattr(self._inner.behaviour, "shapes")
        why = "" if described else f", as {self._inner.name} has no shapes(), which would say another"
        for i, (view, array) in enumerate(zip(views, arrays)):
            if view is not None:
                write(view, np.zeros(view.shape) if array is None else array, f"{field}[{i}]", why=why)

    @property
    def state(self) -> Any:
        """What forward left for backward: any object."""
        return c.call_state(self._raw)

    @state.setter
    def state(self, state: Any) -> None:
        c.call_state(self._raw, state)

    def forward(self, child: int | str, *inputs: Array) -> list[NewArray | None]:
        """Runs a child's forward; call it inside of forward."""
        index = self._inner.child(child)
        views = [borrow(x, f"inputs[{i}]") for i, x in enumerate(inputs)]
        found = c.gw_call_forward(self._raw, index, block("v", views), len(views))
        return self._lend(f"child {child}'s outputs", found)

    def backward(self, child: int | str, *output_grads: Array | None) -> list[NewArray | None]:
        """A child's input gradients, inside of backward_input."""
        index = self._inner.child(child)
        views = [None if g is None else borrow(g, f"output_grads[{i}]") for i, g in enumerate(output_grads)]
        found = c.gw_call_backward(self._raw, index, block("v", views), len(views))
        return self._lend(f"child {child}'s input_grads", found)

    def _kept(self) -> list[str]:
        kept = []
        for name, views in self._lent:
            for i, view in enumerate(views):
                if view is not None and view.exports:
                    kept.append(f"{name}[{i}]")
        return kept

    def finish(self) -> None:
        """Refuses arrays that outlive the callback: their memory is used for something else then."""
        if not self._kept():
            return
        gc.collect()
        kept = self._kept()
        if kept:
            raise InvalidState(f"{self._inner.name}: {self.phase.name.lower()} kept {', '.join(kept)} after its end: "
                               f"copy what is kept, the memory is used for something else then")


class Behaviour(Protocol):
    """What a custom module does. Optional: shapes(*inputs), which gets (shape, dtype) of each input and returns the outputs'
    likewise (without it each is one f64, as a training root's are); backward_weight(call), which adds to parameter_grads
    (without it backward_input does both); accepts(dtype) -> bool for compute dtypes."""

    def forward(self, call: Call) -> None:
        """Writes call.outputs; call.state = whatever backward needs."""

    def backward_input(self, call: Call) -> None:
        """call.output_grads -> call.input_grads."""


class _Inner:
    """Calls a behaviour for the library. Holds no module: what the library owns must not own the library's handle."""

    def __init__(self, behaviour: Behaviour, name: str, kind: str, parameters: Sequence[str], children: Sequence[str]) -> None:
        self.behaviour, self.name, self.kind = behaviour, name, kind
        self.parameters, self.children = parameters, children

    def child(self, child: int | str) -> int:
        if isinstance(child, int):
            return child
        if child not in self.children:
            raise InvalidArgument(f'{self.name} has no child "{child}", only {", ".join(self.children) or "none"}')
        return list(self.children).index(child)

    def accepts(self, dtype: int) -> bool:
        answer = getattr(self.behaviour, "accepts", None)
        return True if answer is None else bool(answer(DType(dtype)))

    def __call__(self, raw: Any) -> None:
        facts = c.call_facts(raw)
        if facts[0] == Phase.SHAPES:
            self._shapes(raw)
            return
        call = Call(raw, self, facts)
        try:
            if call.phase is Phase.FORWARD:
                self.behaviour.forward(call)
            elif call.phase is Phase.BACKWARD_INPUT:
                self.behaviour.backward_input(call)
            else:
                getattr(self.behaviour, "backward_weight")(call)
        finally:
            call._frame = None  # what it shows lives no longer than this
        call.finish()

    def _shapes(self, raw: Any) -> None:
        inputs, count = c.call_shapes(raw)
        outputs = list(getattr(self.behaviour, "shapes")(*[(shape, DType(dtype)) for shape, dtype in inputs]))
        if len(outputs) != count:
            raise InvalidArgument(f"{self.name}: shapes gave {len(outputs)} outputs, the module has {count}")
        for i, (shape, dtype) in enumerate(outputs):
            c.set_shape(raw, i, tuple(shape), dtype_of(dtype))


class Custom(Module):
    """A module by a behaviour: parameters are Specs, shapes or arrays by name; children other modules by name. A training
    root has the outputs {loss sum, weight}. `kind`: the framework of the arrays that callbacks see: "numpy" (not on a GPU),
    "torch", "jax", or "tensor" for Views, which are not checked for being kept. `parallel_plan`: how its children are
    split over tp, as text as in Module.tensor_parallel(), with paths that start at this module. `parameter_groups`: which
    modules below it parallelize() makes parameter groups, as patterns of such paths, ["layers.*"]; what they leave is in the
    group around them."""

    def __init__(self, behaviour: Behaviour, *, parameters: Mapping[str, Spec | Sequence[int] | Array] | None = None,
                 inputs: int = 1, outputs: int = 1, children: Mapping[str, Module] | None = None,
                 name: str | None = None, kind: Kind = "numpy", parallel_plan: str | None = None,
                 parameter_groups: Sequence[str] | None = None) -> None:
        made, _ = parameter_options({n: spec_of(p, n) for n, p in (parameters or {}).items()})
        kids = dict(children or {})
        label = name or type(behaviour).__name__
        inner = _Inner(behaviour, label, known_kind(kind), list(parameters or {}), list(kids))
        options = struct(
            "gw_custom_options", name=label, shapes=low.py_call if hasattr(behaviour, "shapes") else None,
            forward=low.py_call, backward_input=low.py_call,
            backward_weight=low.py_call if hasattr(behaviour, "backward_weight") else None,
            accepts_dtype=low.py_accepts, user=inner, free_user=low.py_free, free_state=low.py_free,
            input_count=inputs, output_count=outputs, parameters=block("s", made), parameter_count=len(made),
            children=block("gw_module", [m._h for m in kids.values()]), child_names=block("t", list(kids)),
            child_count=len(kids), parallel_plan=parallel_plan,
            parameter_groups=None if parameter_groups is None else "\n".join(parameter_groups))
        super().__init__(c.gw_custom_create(options))
