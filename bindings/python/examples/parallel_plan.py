"""Tensor parallelism of a model of your own: a plan says which modules are split over the ranks, and how. The model
learns the same on any number of ranks.

    python -m gangway.run -n 2 parallel_plan.py
"""

import numpy as np

import gangway as gw

ROWS, INPUTS = 16, 8
PLAN = [
    gw.PlanRow("0", "colwise", output=gw.Replicate()),  # outputs are gathered
    gw.PlanRow("1.gate_proj", "colwise"),  # columns, then rows: one sum at the end of the MLP brings the ranks together
    gw.PlanRow("1.up_proj", "colwise"),
    gw.PlanRow("1.down_proj", "rowwise"),
    gw.PlanRow("2", "rowwise", input=gw.Replicate()),  # each takes its part
]

with gw.init(dp_shard=1, tp=-1) as gangs:  # all ranks are those of tp
    model = gw.Sequential(gw.Linear(INPUTS, 32), gw.Mlp(32, 64), gw.Linear(32, 1))  # named "0", "1" and "2"
    model.tensor_parallel(gangs, plan=PLAN)
    model.fully_shard("", gangs)  # what tp has left of each parameter
    model.materialize(gangs, seed=1, master_dtype="f64")
    if gangs.rank == 0:
        for parameter in model:
            print(f"{parameter.name:<18} {parameter.layout}")
    opt = gw.AdamW(model, lr=0.01)
    frame = gw.Frame(model)
    numbers = np.arange(ROWS * INPUTS)
    for step in range(1, 101):
        x = ((step * 131 + numbers * numbers) * 7919 % 2003 / 1000 - 1).reshape(ROWS, 1, INPUTS)  # rows of one token
        (y,) = model.forward(x, frame=frame)
        differences = y[:, 0, 0] - (x[:, 0, 0] - x[:, 0, 1])  # from x0 - x1
        loss = sum(differences**2 / ROWS)
        model.backward((2 * differences / ROWS).reshape(ROWS, 1, 1), frame=frame)
        opt.step()
        if gangs.rank == 0 and (step == 1 or step % 25 == 0):
            print(f"step {step}  loss {loss:.9f}")
