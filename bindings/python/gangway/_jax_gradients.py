"""A function of JAX whose vector-Jacobian product is the adjoint of its forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from .errors import NotSupported

if TYPE_CHECKING:
    from .autograd import Run


@jax.tree_util.register_pytree_node_class
class _Kept:
    """What a forward leaves for its backward: no arrays of JAX's."""

    def __init__(self, adjoint: Any) -> None:
        self.adjoint = adjoint

    def tree_flatten(self) -> tuple[tuple[()], _Kept]:
        return (), self

    @classmethod
    def tree_unflatten(cls, kept: _Kept, children: object) -> _Kept:
        return kept


def _concrete(x: Any) -> Any:
    if isinstance(x, jax.core.Tracer):
        raise NotSupported("gangway moves values, which arrays inside of jax.jit, jax.vmap and the like do not have: call it "
                           "outside of them, where jax.grad and jax.vjp go through it")
    return x


def apply(x: Any, run: Run) -> Any:
    """run(x)[0], with its gradient."""
    @jax.custom_vjp
    def moved(a: Any) -> Any:
        return run(_concrete(a))[0]

    def forward(a: Any) -> tuple[Any, _Kept]:
        y, adjoint = run(_concrete(a))
        return y, _Kept(adjoint)

    def backward(kept: _Kept, dy: Any) -> tuple[Any]:
        return (kept.adjoint(_concrete(dy)),)

    moved.defvjp(forward, backward)
    return moved(x)
