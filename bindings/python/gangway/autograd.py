"""Collectives with gradients, for the automatic differentiation of PyTorch and JAX:

    from gangway import autograd
    y = autograd.all_gather(gang, x)         # a tensor of PyTorch, or an array of JAX under jax.grad
    loss(y).backward()                       # the gradient of x comes by the adjoint, a reduce_scatter

The movements of a partition (gw.AllGather and so on) do the same when they are called: movement(x).

The inner product is the sum over all ranks, so the gradient is that of the sum of all ranks' losses. Forward and backward are
collective: every rank of the gang runs both, in the same order, and x requires a gradient on every rank or on none. A rank
that gets nothing has an array without elements, which belongs into its loss, too: y.sum(). JAX differentiates outside of
jax.jit, where arrays have values. Arrays of NumPy go through without a gradient."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Callable, Sequence

from .arrays import Array, NewArray, kind_of
from .enums import Reduce
from .errors import NotSupported
from .gang import Gang
from .members import member
from .names import ReduceLike

Run = Callable[[NewArray], tuple[NewArray, Callable[[NewArray], NewArray]]]
"""Takes x, gives F(x) and the adjoint of F, with what that needs of this x."""


def is_tracked(x: NewArray) -> bool:
    """Whether a framework wants to know the gradient of what is made of x."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(x, torch.Tensor):
        return bool(x.requires_grad)
    return jax is not None and isinstance(x, jax.core.Tracer)


def differentiated(x: NewArray, run: Run) -> NewArray:
    """F(x), as an operation of x's framework."""
    if not is_tracked(x):
        return run(x)[0]
    module = importlib.import_module("._torch_gradients" if kind_of(x) == "torch" else "._jax_gradients", __package__)
    return module.apply(x, run)


def _filled_with_zeros(like: NewArray, shape: Sequence[int]) -> NewArray:
    kind = kind_of(like)
    if kind == "torch":
        return like.new_zeros(tuple(shape))
    return importlib.import_module("jax.numpy" if kind == "jax" else "numpy").zeros(tuple(shape), like.dtype)


def _linear(op: ReduceLike, call: str) -> Reduce:
    word = member(Reduce, op, "op")
    if word not in (Reduce.SUM, Reduce.MEAN):
        raise NotSupported(f"autograd.{call}: op is {word.name.lower()}, but gradients go through sum and mean alone")
    return Reduce(word)


def all_reduce(gang: Gang, x: Array, op: ReduceLike = Reduce.SUM) -> NewArray:
    """The sum or mean on every rank; its own adjoint."""
    word = _linear(op, "all_reduce")
    return differentiated(x, lambda a: (gang.all_reduce(a, word), lambda dy: gang.all_reduce(dy, word)))


def all_gather(gang: Gang, x: Array, *, counts: Sequence[int] | None = None) -> NewArray:
    """As gang.all_gather(); backward sums, and each rank keeps its part."""
    return differentiated(x, lambda a: (gang.all_gather(a, counts=counts),
                                        lambda dy: gang.reduce_scatter(dy, counts=counts)))


def reduce_scatter(gang: Gang, x: Array, op: ReduceLike = Reduce.SUM, *, counts: Sequence[int] | None = None) -> NewArray:
    """As gang.reduce_scatter(); backward gathers."""
    word = _linear(op, "reduce_scatter")
    scale = gang.size if word == Reduce.MEAN else 1
    return differentiated(x, lambda a: (gang.reduce_scatter(a, word, counts=counts),
                                        lambda dy: gang.all_gather(dy if scale == 1 else dy / scale, counts=counts)))


def all_to_all(gang: Gang, x: Array, *, counts: Sequence[int] | None = None, got: Sequence[int] | None = None) -> NewArray:
    """As gang.all_to_all(); backward sends each part back."""
    return differentiated(x, lambda a: (gang.all_to_all(a, counts=counts, got=got),
                                        lambda dy: gang.all_to_all(dy, counts=got, got=counts)))


def broadcast(gang: Gang, x: Array, root: int = 0) -> NewArray:
    """As gang.broadcast(); backward sums on the root, and gives zeros elsewhere."""
    def run(a: NewArray) -> tuple[NewArray, Callable[[NewArray], NewArray]]:
        def adjoint(dy: NewArray) -> NewArray:
            sum_of_all = gang.reduce(dy, root)
            return _filled_with_zeros(dy, dy.shape) if sum_of_all is None else sum_of_all
        return gang.broadcast(a, root), adjoint
    return differentiated(x, run)


def reduce(gang: Gang, x: Array, root: int = 0, op: ReduceLike = Reduce.SUM) -> NewArray:
    """The sum or mean on the root, an array of shape [0] elsewhere; backward broadcasts."""
    word = _linear(op, "reduce")
    scale = gang.size if word == Reduce.MEAN else 1

    def run(a: NewArray) -> tuple[NewArray, Callable[[NewArray], NewArray]]:
        y, shape = gang.reduce(a, root, word), tuple(a.shape)

        def adjoint(dy: NewArray) -> NewArray:
            dx = gang.broadcast(dy if gang.rank == root else _filled_with_zeros(dy, shape), root)
            return dx if scale == 1 else dx / scale
        return _filled_with_zeros(a, (0,)) if y is None else y, adjoint
    return differentiated(x, run)


def gather(gang: Gang, x: Array, root: int = 0, *, counts: Sequence[int] | None = None) -> NewArray:
    """As gang.gather() on the root, an array of shape [0] elsewhere; backward scatters."""
    def run(a: NewArray) -> tuple[NewArray, Callable[[NewArray], NewArray]]:
        y, shape = gang.gather(a, root, counts=counts), tuple(a.shape)
        return (_filled_with_zeros(a, (0,)) if y is None else y,
                lambda dy: _scattered(gang, dy, shape, root, counts))
    return differentiated(x, run)


def scatter(gang: Gang, x: Array, shape: Sequence[int], root: int = 0, *, counts: Sequence[int] | None = None) -> NewArray:
    """This rank's part, of `shape`, of the root's x [size, ...]; with counts: of x [sum(counts), ...]. Other ranks pass an array
    without elements, of the same type. Backward gathers on the root."""
    def run(a: NewArray) -> tuple[NewArray, Callable[[NewArray], NewArray]]:
        given = tuple(a.shape)

        def adjoint(dy: NewArray) -> NewArray:
            dx = gang.gather(dy, root, counts=counts)
            return _filled_with_zeros(dy, given) if dx is None else dx
        return _scattered(gang, a, tuple(shape), root, counts), adjoint
    return differentiated(x, run)


def _scattered(gang: Gang, x: NewArray, shape: tuple[int, ...], root: int, counts: Sequence[int] | None) -> NewArray:
    """A new array of the root's x; elsewhere x gives the type alone."""
    given = x if gang.rank == root else None
    if kind_of(x) != "jax":
        return gang.scatter_(_filled_with_zeros(x, shape), given, root, counts=counts)
    numpy = importlib.import_module("numpy")
    return importlib.import_module("jax.numpy").asarray(
        gang.scatter_(numpy.zeros(shape, x.dtype), given, root, counts=counts))
