"""A program with its own compute and its own loop, in NumPy; gangway only shards: y = x w, two microbatches a step.

    python -m gangway.run -n 2 python shard_group.py
"""

import numpy as np

import gangway as gw

FEATURES, ROWS, MICROBATCHES = 10, 32, 2
TRUTH = np.float32(0.1) * np.arange(FEATURES, dtype=np.float32)


def own_compute(full, x):
    """Half the sum of squared errors, and its gradient."""
    error = x @ (full["w"] - TRUTH)
    return 0.5 * float(error @ error), {"w": x.T @ error}


with gw.init() as gangs:
    group = gw.ShardGroup(gangs, "line", {"w": gw.Spec((FEATURES,))}, seed=1)
    opt = gw.AdamW(group, lr=0.05)
    items = ROWS * MICROBATCHES * gangs.size  # of a step, over all ranks
    random = np.random.default_rng(11 + gangs.rank)
    for step in range(1, 201):
        loss = 0.0
        for _ in range(MICROBATCHES):
            x = random.random((ROWS, FEATURES), np.float32) - np.float32(0.5)
            with group.unsharded() as full:
                part, gradients = own_compute(full, x)
                group.add_gradients(gradients)
            loss += part
        group.reduce()
        opt.step(scale=1 / items, max_grad_norm=1.0)
        mean = gangs.root.all_sum(loss) / items
        if gangs.rank == 0 and step % 50 == 0:
            print(f"step {step}  loss {mean:.6f}")
    assert mean < 0.001
