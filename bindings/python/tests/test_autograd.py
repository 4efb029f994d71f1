"""Gradients through movements and collectives, by PyTorch and by JAX: gradcheck in f64, and <F x, y> = <x, F* y>."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from thread_ranks import PATIENCE, together

import gangway as gw
from gangway import autograd

COUNT = 4


def movement(make):
    """An operator of all ranks: make(gang) gives what each calls."""
    return lambda gang: make(gw.Partition(gang))


def column(workers):
    return workers.inclusive([0, 3]).cartesian(2, 1)


def counts_of(gang):
    return [2, 0, 1, 3]


# What a rank calls, and the shape of its input. A rank that is no worker has an array without elements.
OPERATORS = {
    "AllGather": (movement(lambda w: gw.AllGather(w.cartesian(2, 2), 1)), lambda r: (2, 1 + r % 2)),
    "ReduceScatter": (movement(lambda w: gw.ReduceScatter(w.cartesian(2, 2), 0, backward_scale=1.0)), lambda r: (3, 1)),
    "AllSumReduce": (movement(lambda w: gw.AllSumReduce(w.cartesian(2, 2), (0, 1))), lambda r: (3,)),
    "Broadcast": (movement(lambda w: gw.Broadcast(column(w), w.cartesian(2, 2))), lambda r: (1, 2) if r in (0, 3) else (0,)),
    "SumReduce": (movement(lambda w: gw.SumReduce(w.cartesian(2, 2), column(w))), lambda r: (1, 2)),
    "Repartition": (movement(lambda w: gw.Repartition(w.cartesian(4, 1), w.cartesian(2, 2))),
                    lambda r: (1 if r == 3 else 2, 2)),
    "all_reduce": (lambda gang: lambda x: autograd.all_reduce(gang, x), lambda r: (3,)),
    "all_reduce of means": (lambda gang: lambda x: autograd.all_reduce(gang, x, "mean"), lambda r: (1,)),
    "all_gather": (lambda gang: lambda x: autograd.all_gather(gang, x), lambda r: (2,)),
    "all_gather by counts": (lambda gang: lambda x: autograd.all_gather(gang, x, counts=counts_of(gang)),
                             lambda r: ((2, 0, 1, 3)[r], 1)),
    "reduce_scatter": (lambda gang: lambda x: autograd.reduce_scatter(gang, x), lambda r: (COUNT, 1)),
    "reduce_scatter of means": (lambda gang: lambda x: autograd.reduce_scatter(gang, x, "mean"), lambda r: (COUNT,)),
    "reduce_scatter by counts": (lambda gang: lambda x: autograd.reduce_scatter(gang, x, counts=counts_of(gang)),
                                 lambda r: (6,)),
    "broadcast": (lambda gang: lambda x: autograd.broadcast(gang, x, 2), lambda r: (3,)),
    "reduce": (lambda gang: lambda x: autograd.reduce(gang, x, 1), lambda r: (2,)),
    "reduce to a mean": (lambda gang: lambda x: autograd.reduce(gang, x, 3, "mean"), lambda r: (2,)),
    "gather": (lambda gang: lambda x: autograd.gather(gang, x, 1), lambda r: (2,)),
    "gather by counts": (lambda gang: lambda x: autograd.gather(gang, x, 1, counts=counts_of(gang)),
                         lambda r: ((2, 0, 1, 3)[r],)),
    "scatter": (lambda gang: lambda x: autograd.scatter(gang, x, (2,), 1), lambda r: (COUNT, 2) if r == 1 else (0,)),
    "scatter by counts": (lambda gang: lambda x: autograd.scatter(gang, x, ((2, 0, 1, 3)[gang.rank],), 1,
                                                                  counts=counts_of(gang)),
                          lambda r: (6,) if r == 1 else (0,)),
    "all_to_all": (lambda gang: lambda x: autograd.all_to_all(gang, x), lambda r: (COUNT, 1)),
    "all_to_all by counts": (
        lambda gang: lambda x: autograd.all_to_all(gang, x, counts=[gang.rank] * COUNT, got=[0, 1, 2, 3]),
        lambda r: (r * COUNT,)),
}
every_operator = pytest.mark.parametrize("name", OPERATORS)


class Ranks:
    """Ranks that are threads, each of which keeps its operator: run(body) runs body(rank, operator) on each."""

    def __init__(self, make):
        self._gangs = gw.Gang.create_threads(COUNT, timeout=PATIENCE, threads=1)
        self._threads = [ThreadPoolExecutor(1) for _ in range(COUNT)]
        self._operators = self._on_each(lambda rank: make(self._gangs[rank]))

    def _on_each(self, body):
        futures = [thread.submit(body, rank) for rank, thread in enumerate(self._threads)]
        return [future.result(PATIENCE) for future in futures]

    def run(self, body):
        return self._on_each(lambda rank: body(rank, self._operators[rank]))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for thread in self._threads:
            thread.shutdown()


@every_operator
def test_gradcheck_of_all_ranks_as_one_function(name):
    torch = pytest.importorskip("torch")
    make, shape = OPERATORS[name]
    with Ranks(make) as ranks:
        class Whole(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *xs):
                ctx.xs = [x.detach().requires_grad_() for x in xs]
                ctx.ys = ranks.run(lambda rank, operator: operator(ctx.xs[rank]))
                return tuple(y.detach() for y in ctx.ys)

            @staticmethod
            def backward(ctx, *dys):
                return tuple(ranks.run(lambda rank, operator: torch.autograd.grad(
                    ctx.ys[rank], ctx.xs[rank], dys[rank], retain_graph=True)[0]))

        generator = torch.Generator().manual_seed(3)
        xs = [torch.randn(shape(r), dtype=torch.float64, generator=generator, requires_grad=True) for r in range(COUNT)]
        assert torch.autograd.gradcheck(Whole.apply, xs)


@every_operator
def test_torch_goes_back_by_the_adjoint(name):
    torch = pytest.importorskip("torch")
    make, shape = OPERATORS[name]

    def body(gang):
        generator = torch.Generator().manual_seed(gang.rank)
        x = torch.randn(shape(gang.rank), dtype=torch.float64, generator=generator, requires_grad=True)
        y = make(gang)(x)
        dy = torch.randn(y.shape, dtype=torch.float64, generator=generator)
        (y * dy).sum().backward()
        left, right = gang.all_sum(float((y.detach() * dy).sum())), gang.all_sum(float((x.detach() * x.grad).sum()))
        assert left == pytest.approx(right, rel=1e-12, abs=1e-12) and left != 0
    together(COUNT, body)


@every_operator
def test_jax_goes_back_by_the_adjoint(name):
    jax = pytest.importorskip("jax")
    make, shape = OPERATORS[name]

    def body(gang):
        random = np.random.default_rng(gang.rank)
        x = jax.numpy.asarray(random.normal(size=shape(gang.rank)).astype(np.float32))
        y, back = jax.vjp(make(gang), x)
        dy = jax.numpy.asarray(random.normal(size=y.shape).astype(np.float32))
        dx, = back(dy)
        assert isinstance(y, jax.Array) and dx.shape == x.shape and dx.dtype == x.dtype
        left, right = gang.all_sum(float((y * dy).sum())), gang.all_sum(float((x * dx).sum()))
        assert left == pytest.approx(right, rel=1e-5, abs=1e-5) and left != 0
    together(COUNT, body)


def test_several_forwards_of_other_shapes_come_before_their_backwards():
    torch = pytest.importorskip("torch")

    def body(gang):
        gather = gw.AllGather(gw.Partition(gang), 0)
        first = torch.ones(2 + gang.rank, dtype=torch.float64, requires_grad=True)
        second = torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)
        none = torch.ones((0,), dtype=torch.float64, requires_grad=True)
        outputs = [gather(first), gather(second), gather(none), gather(first)]
        assert [tuple(y.shape) for y in outputs] == [(14,), (12,), (0,), (14,)]
        sum((n + 1) * (y * y).sum() for n, y in enumerate(outputs)).backward()
        # d/dx of w * sum over ranks of the sum of squares: 2 * w * COUNT * x.
        assert torch.equal(first.grad, torch.full_like(first, (1 + 4) * 2 * COUNT))
        assert torch.equal(second.grad, torch.full_like(second, 2 * 2 * COUNT * 2.0))
        assert none.grad.shape == (0,)
    together(COUNT, body)


def test_a_graph_that_is_kept_goes_back_twice_and_a_backward_by_hand_has_its_own_forward():
    torch = pytest.importorskip("torch")

    def body(gang):
        gather = gw.AllGather(gw.Partition(gang), 0)
        gather(np.ones(3))
        x = torch.ones(2, requires_grad=True)
        y = gather(x).sum()
        y.backward(retain_graph=True)
        y.backward()
        assert x.grad.tolist() == [4.0, 4.0]
        assert gather.backward(np.ones(6)).tolist() == [2.0, 2.0, 2.0]
        with torch.no_grad():
            assert not gather(x).requires_grad
    together(2, body)


def test_numpy_goes_through_and_what_is_not_linear_is_refused():
    def body(gang):
        assert autograd.all_reduce(gang, np.ones(2)).tolist() == [2.0, 2.0]
        with pytest.raises(gw.NotSupported, match="autograd.all_reduce: op is max, but gradients go through sum and mean"):
            autograd.all_reduce(gang, np.ones(2), "max")
    together(2, body)


def test_inside_of_jit_jax_is_told_why_not():
    jax = pytest.importorskip("jax")

    def body(gang):
        with pytest.raises(gw.NotSupported, match="arrays inside of jax.jit, jax.vmap and the like do not have"):
            jax.jit(lambda x: autograd.all_reduce(gang, x))(jax.numpy.ones(2))
    together(1, body)
