"""A JAX function trained with its parameters sharded over the ranks, equal to the unsharded run.

    python -m gangway.run -n 4 python jax_function.py
"""

import importlib.util
import os
import sys

import gangway as gw

if importlib.util.find_spec("jax") is None:
    print("skipped: jax is not installed")
    sys.exit(0)

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402


def loss(p, x, y):
    """Sum of squares, so that sums over ranks add up."""
    return ((jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] - y) ** 2).sum()


def batch(step):
    a, b = jax.random.split(jax.random.key(step))
    return jax.random.normal(a, (32, 16)), jax.random.normal(b, (32, 4))


keys = jax.random.split(jax.random.key(1), 2)
start = {"w1": 0.2 * jax.random.normal(keys[0], (16, 32)), "b1": jnp.zeros(32),
         "w2": 0.2 * jax.random.normal(keys[1], (32, 4))}
gradient = jax.jit(jax.grad(loss))

with gw.init() as gangs:
    group = gw.ShardGroup(gangs, "net", start)
    opt = gw.SGD(group, lr=0.1)
    reference = start
    for step in range(20):
        x, y = batch(step)
        mine = slice(32 * gangs.rank // gangs.size, 32 * (gangs.rank + 1) // gangs.size)
        with group.unsharded() as full:  # immutable JAX arrays of the library's memory
            group.add_gradients(jax.block_until_ready(gradient(full, x[mine], y[mine])))
        group.reduce()
        opt.step(scale=1 / y.size)
        g = gradient(reference, x, y)
        reference = {n: v - 0.1 / y.size * g[n] for n, v in reference.items()}
    with group.unsharded() as full:
        worst = max(float(jnp.abs(full[n] - v).max()) for n, v in reference.items())
    print(f"rank {gangs.rank}: differs from the unsharded run by at most {worst:.1e}")
    assert worst < 1e-5
