"""All-reduce over the ranks of a gang.

    python -m gangway.run -n 4 python all_reduce.py
"""

import numpy as np

import gangway as gw

with gw.init() as gangs:
    gang = gangs["dp"]
    x = np.full(1000, gang.rank + 1, np.float32)
    gang.all_reduce_(x)  # in place
    print(f"rank {gang.rank} of {gang.size}: sum {x[0]:g}")
    assert x[0] == gang.size * (gang.size + 1) / 2

    largest = gang.all_reduce(np.float32([gang.rank]), "max")  # a new array
    work = gang.all_gather_async(largest)  # the same, while this rank does something else
    assert (work.wait() == gang.size - 1).all()

    shared = np.from_dlpack(gang.empty((1000,), "f32"))  # memory that peers reach directly
    shared[:] = gang.rank
    gang.broadcast_(shared, root=0)
    assert (shared == 0).all()
