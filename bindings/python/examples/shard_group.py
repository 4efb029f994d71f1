"""A program with its own compute and its own loop, in NumPy; gangway only shards: y = x w + b, two microbatches a step.

    python -m gangway.run -n 2 python shard_group.py
"""

import numpy as np

import gangway as gw

ROWS, MICROBATCHES = 32, 2
truth = np.arange(10, dtype=np.float32) * 0.1


def compute(full, x, y):
    """The caller's own model: loss sum and gradients of the squared error."""
    error = x @ full["w"] + full["b"] - y
    return 0.5 * float(error @ error), {"w": x.T @ error, "b": error.sum(keepdims=True)}


with gw.init() as gangs:
    group = gw.ShardGroup(gangs, "line", {"w": np.zeros(10, np.float32), "b": np.zeros(1, np.float32)})
    opt = gw.AdamW(group, lr=0.05)
    items = ROWS * MICROBATCHES * gangs.size  # of a step, over all ranks
    random = np.random.default_rng(11 + gangs.rank)
    for step in range(1, 201):
        loss = 0.0
        for _ in range(MICROBATCHES):
            x = random.random((ROWS, 10), np.float32) - 0.5
            with group.unsharded() as full:
                part, gradients = compute(full, x, x @ truth + 0.5)
                group.add_gradients(gradients)
            loss += part
        group.reduce()
        opt.step(scale=1 / items, max_grad_norm=1.0)
        mean = gangs.root.all_sum(loss) / items
        if gangs.rank == 0 and step % 50 == 0:
            print(f"step {step}  loss {mean:.6f}")
    assert mean < 0.001
