"""PyTorch's FSDP2 over gangway: the program is FSDP2's, gangway moves the bytes. Then the same module by gw.shard, whose
optimizer and checkpoints are gangway's. Both end with the same loss.

    python -m gangway.run -n 2 fsdp2.py
"""

import importlib.util
import sys

import gangway as gw

if importlib.util.find_spec("torch") is None:
    print("skipped: torch is not installed")
    sys.exit(0)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

import gangway.torch  # noqa: E402,F401  registers the backend

torch.set_num_threads(1)
STEPS, ROWS = 20, 8


def make():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))


def batch(step, rank):
    random = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(ROWS, 16, generator=random), torch.randn(ROWS, 4, generator=random)


def by_fsdp2():
    model = make()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    for step in range(STEPS):
        x, y = batch(step, dist.get_rank())
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def by_gangway(gangs):
    model = make()
    group = gw.shard(model, gangs)  # its parameters become a shard group
    opt = gw.AdamW(group, lr=1e-2)
    for step in range(STEPS):
        x, y = batch(step, gangs.rank)
        with group.unsharded():
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
        group.reduce()
        opt.step(scale=1 / gangs.size)
    return gangs.root.all_sum(loss.item()) / gangs.size


dist.init_process_group("gangway")
with gw.init() as gangs:
    first, second = by_fsdp2(), by_gangway(gangs)
    if gangs.rank == 0:
        print(f"FSDP2 over gangway: loss {first:.6f}; gw.shard: loss {second:.6f}")
    assert abs(first - second) < 1e-5 * first
dist.destroy_process_group()
