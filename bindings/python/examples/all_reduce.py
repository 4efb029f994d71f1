"""All-reduce over the ranks of a gang.

    python -m gangway.run -n 4 python all_reduce.py
"""

import numpy as np

import gangway as gw

with gw.Gang.create() as gang:  # the environment decides; nothing set: one rank
    x = np.from_dlpack(gang.empty((1000,), "f32"))  # peers reach this memory directly; any other array works too
    x[:] = gang.rank + 1

    gang.all_reduce_(x)
    print(f"rank {gang.rank} of {gang.size}: sum {x[0]:g}")

    work = gang.all_reduce_async_(x, "max")  # the same, while this rank does something else
    work.wait()
    assert (x == gang.size * (gang.size + 1) / 2).all()
