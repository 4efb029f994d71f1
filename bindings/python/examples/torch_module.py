"""A PyTorch module trained with its parameters sharded over the ranks, equal to the unsharded run.

    python -m gangway.run -n 4 python torch_module.py
"""

import importlib.util
import sys

import gangway as gw

if importlib.util.find_spec("torch") is None:
    print("skipped: torch is not installed")
    sys.exit(0)

import torch  # noqa: E402


def make():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))


def batch(step):
    random = torch.Generator().manual_seed(step)
    return torch.randn(32, 16, generator=random), torch.randn(32, 4, generator=random)


torch.set_num_threads(1)
with gw.init() as gangs:
    module = make()  # computes with the sharded values; its own are only the first ones
    group = gw.ShardGroup(gangs, "net", {n: p.detach() for n, p in module.named_parameters()})
    opt = gw.AdamW(group, lr=1e-2)
    reference = make()
    reference_opt = torch.optim.AdamW(reference.parameters(), lr=1e-2, weight_decay=0.0)
    for step in range(20):
        x, y = batch(step)
        mine = slice(32 * gangs.rank // gangs.size, 32 * (gangs.rank + 1) // gangs.size)
        with group.unsharded() as full:
            values = {n: v.requires_grad_() for n, v in full.items()}
            out = torch.func.functional_call(module, values, x[mine])
            torch.nn.functional.mse_loss(out, y[mine], reduction="sum").backward()
            group.add_gradients({n: v.grad for n, v in values.items()})
        group.reduce()
        opt.step(scale=1 / y.numel())

        reference_opt.zero_grad()
        torch.nn.functional.mse_loss(reference(x), y).backward()
        reference_opt.step()
    with group.unsharded() as full:
        worst = max((full[n] - p).abs().max().item() for n, p in reference.named_parameters())
    print(f"rank {gangs.rank}: differs from the unsharded run by at most {worst:.1e}")
    assert worst < 1e-5
