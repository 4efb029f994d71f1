"""Pieces [3, 7, 4], one of each worker, are joined along the last dim; then the adjoint.

    python -m gangway.run -n 2 partition_all_gather.py
"""

import numpy as np

import gangway as gw


def numbers(shape, first, factor, modulus):
    """Made-up numbers that differ between ranks and places."""
    i = np.arange(1, np.prod(shape) + 1)
    return ((gangs.rank + first) * i * factor % modulus / 1000 - 1).reshape(shape)


with gw.init() as gangs:
    workers = gangs.size
    gather = gw.AllGather(gw.Partition(gangs.root).cartesian(1, 1, workers), axes=2)
    x = numbers((3, 7, 4), 3, 7919, 2003)
    y = numbers((3, 7, 4 * workers), 5, 6271, 1999)
    joined = gather(x)  # [3, 7, 4 * workers]
    dx = gather.backward(y)  # [3, 7, 4]

    # The inner product is the sum over all workers.
    left, right = gangs.root.all_sum(float((joined * y).sum())), gangs.root.all_sum(float((x * dx).sum()))
    if gangs.rank == 0:
        print(f"{list(joined.shape)}: <F x, y> = {left:.9f}, <x, F* y> = {right:.9f}")
    assert abs(left - right) < 1e-9
