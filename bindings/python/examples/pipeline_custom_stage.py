"""PyTorch modules as the stages of a pipeline: gangway runs the schedule and moves tensors, PyTorch computes. Over 4 ranks
they are pp 2 x dp 2, and the stages are sharded over dp.

    python -m gangway.run -n 4 python pipeline_custom_stage.py
"""

import importlib.util
import sys

import gangway as gw

if importlib.util.find_spec("torch") is None:
    print("skipped: torch is not installed")
    sys.exit(0)

import torch  # noqa: E402

ROWS, WIDTH, MICROBATCHES = 32, 16, 4  # rows of a data rank
torch.set_num_threads(1)


class Stage(torch.nn.Module):
    def __init__(self, stage):
        super().__init__()
        torch.manual_seed(stage)  # the same first values on each rank
        self.up, self.down = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


def batch(step, shard):
    random = torch.Generator().manual_seed(1000 * step + shard)
    x = torch.randn(ROWS, WIDTH, generator=random)
    return x, x.roll(1, dims=1) / 2  # to be learned


def loss(y, target):
    return torch.nn.functional.mse_loss(y, target, reduction="sum")


with gw.init(pp=2) as gangs:
    data = gw.Gangs.create(gangs["dp"])
    # Two stages on each rank, backward in halves; at most one stage is unsharded at a time.
    pipe = gw.Pipeline(gangs["pp"], schedule="zbv", microbatches=MICROBATCHES, most_unsharded=1, kind="torch")
    groups = {s: gw.shard(Stage(s), data, name=f"stage{s}") for s in pipe.local_stages}
    stages = gw.TorchStages(pipe, groups, loss=loss)
    opt = gw.AdamW(list(groups.values()), lr=5e-3)
    items = ROWS * WIDTH * data.size
    for step in range(1, 81):
        x, target = batch(step, data.rank)
        mean = data.root.all_sum(stages.step(x, targets=target)) / items
        opt.step(scale=1 / items)
        if gangs.rank == 0 and step % 20 == 0:
            print(f"step {step}  loss {mean:.4f}", flush=True)
    assert mean < 0.3
