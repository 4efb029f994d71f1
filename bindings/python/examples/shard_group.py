"""A program with its own compute and its own loop, in NumPy; gangway only shards: y = x w, two microbatches a step.

    python -m gangway.run -n 2 python shard_group.py
"""

import numpy as np

import gangway as gw

FEATURES, ROWS, MICROBATCHES = 10, 32, 2
TRUTH = np.arange(FEATURES) / 8


def own_compute(full, first):
    """Half the sum of squared errors, and its gradient, over made-up rows, the same in every language."""
    n = first + np.arange(ROWS)[:, None]
    x = (n * np.arange(1, FEATURES + 1) * 97 % 1021 - 510) / 1024
    error = x @ (full["w"] - TRUTH)
    return error @ error / 2, {"w": np.float32(error @ x)}


with gw.init() as gangs:
    group = gw.ShardGroup(gangs, "line", {"w": gw.Spec((FEATURES,))}, seed=1)
    opt = gw.AdamW(group, lr=0.02)
    items = ROWS * MICROBATCHES * gangs.size  # of a step, over all ranks
    for step in range(1, 201):
        loss = 0.0
        for m in range(MICROBATCHES):
            with group.unsharded() as full:
                part, gradients = own_compute(full, ROWS * ((step * MICROBATCHES + m) * gangs.size + gangs.rank))
                group.add_gradients(gradients)
            loss += part
        group.reduce()
        opt.step(scale=1 / items, max_grad_norm=1.0)
        mean = gangs.root.all_sum(loss) / items
        if gangs.rank == 0 and step % 50 == 0:
            print(f"step {step}  loss {mean:.6f}")
    assert mean < 0.001
