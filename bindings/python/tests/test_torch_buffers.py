"""Buffers and tied names of PyTorch modules that gw.shard took: in state dicts, files, checkpoints and DCP."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks import over
from test_models import folder

import gangway as gw


def make_net():
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = torch.nn.Embedding(16, 4)
            self.norm = torch.nn.BatchNorm1d(4)
            self.head = torch.nn.Linear(4, 16, bias=False)
            self.head.weight = self.emb.weight
            self.scale = torch.nn.Parameter(torch.tensor(2.0))
            self.register_buffer("mask", torch.tensor([True, False]))
            self.register_buffer("table", torch.ones(3), persistent=False)

        def forward(self, t):
            return self.head(self.norm(self.emb(t)) * self.scale)

    torch.manual_seed(0)
    return Net()


def train(gangs, module, steps=3):
    """Each rank's statistics are of rows of its own."""
    import torch

    group = gw.shard(module, gangs)
    opt = gw.AdamW(group, lr=1e-2)
    for step in range(steps):
        rows = torch.randint(0, 16, (8,), generator=torch.Generator().manual_seed(100 * step + gangs.rank))
        with group.unsharded():
            module(rows).square().mean().backward()
        group.reduce()
        opt.step(scale=1 / gangs.size)
    return group, opt


def output(group, module):
    import torch

    module.eval()
    with torch.no_grad(), group.unsharded():
        return module(torch.arange(16))


@over(1, 2, needs="torch")
def test_state_dicts_files_and_checkpoints_have_buffers_and_tied_names(gangs):
    import torch

    module = make_net()
    group, opt = train(gangs, module)
    state = opt.model.state_dict(kind="torch")
    assert set(state) == set(make_net().state_dict())
    first = gangs.root.broadcast(module.norm.running_mean.clone())  # rank 0's
    torch.testing.assert_close(state["norm.running_mean"], first, rtol=0, atol=0)
    assert gangs.size == 1 or gangs.rank == 0 or not torch.equal(first, module.norm.running_mean)
    assert opt.model.num_parameters() == 16 * 4 + 4 + 4 + 1
    plain = make_net()
    plain.load_state_dict(state)
    assert int(plain.norm.num_batches_tracked) == 3 and plain.mask.tolist() == [True, False]
    where = folder(gangs)
    run = gw.Checkpoints(f"{where}/run", gangs=gangs, synchronous=True)
    run.save(gw.ShardGroup.module(group), opt, step=3)  # a model of the same parameters
    opt.model.save(f"{where}/model", dtype="bf16")
    for give in (lambda g, o: run.restore(g, o), lambda g, o: o.model.load(f"{where}/model"),
                 lambda g, o: o.model.load_state_dict(plain.state_dict())):
        again = make_net()
        other, other_opt = train(gangs, again, steps=1)
        give(other, other_opt)
        for name in ("running_mean", "running_var"):
            torch.testing.assert_close(getattr(again.norm, name), getattr(plain.norm, name), rtol=0, atol=0)
        assert again.norm.num_batches_tracked.dtype == torch.int64 and int(again.norm.num_batches_tracked) == 3
        torch.testing.assert_close(output(other, again), plain.eval()(torch.arange(16)), rtol=0.1, atol=0.05)  # bf16 of a file


@over(1, needs="torch")
def test_what_of_buffers_cannot_be_kept_is_refused_by_name(gangs):
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    group = gw.shard(module, gangs, name="net")
    model = gw.ShardGroup.module(group)
    assert {name for name in model.state_dict() if "running" in name} == {"net.1.running_mean", "net.1.running_var"}
    module[1].num_batches_tracked.fill_(2**53 + 1)
    with pytest.raises(gw.InvalidArgument, match="buffer net.1.num_batches_tracked has integers above 2\\*\\*53"):
        model.state_dict()
    module[1].num_batches_tracked.zero_()
    module[1].running_mean = torch.zeros(3)
    with pytest.raises(gw.InvalidArgument, match=r"buffer net.1.running_mean is \[3\], and was \[2\]"):
        model.save("nowhere")
    waves = torch.nn.Linear(2, 2)
    waves.register_buffer("waves", torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(gw.InvalidArgument, match="buffer waves is torch.complex64"):
        gw.shard(waves, gangs)


@over(1, needs="torch")
def test_the_state_dict_of_a_module_without_its_values_is_refused(gangs):
    module = make_net()
    group = gw.shard(module, gangs)
    with pytest.raises(gw.InvalidState, match="parameters are sharded and empty here; gw.ShardGroup.module\\(group\\).state_dict"):
        module.state_dict()
    with group.unsharded():
        assert module.state_dict()["emb.weight"].shape == (16, 4)


@over(1, needs="torch")
def test_dcp_both_ways_has_buffers_and_tied_names(gangs):
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def convert(*arguments):
        subprocess.run([sys.executable, "-m", "gangway.dcp", *arguments], check=True, capture_output=True)

    where = Path(folder(gangs))
    group, opt = train(gangs, module := make_net())
    run = gw.Checkpoints(where / "run", gangs=gangs, synchronous=True)
    run.save(opt.model, opt, step=3)
    convert("from-gangway", where / "run/step-00000003", where / "dcp")
    theirs = make_net()
    theirs_opt = torch.optim.AdamW(theirs.parameters())
    theirs(torch.arange(16)).sum().backward()
    theirs_opt.step()
    model, optim = get_state_dict(theirs, theirs_opt)
    dcp.load({"model": model, "optim": optim}, checkpoint_id=str(where / "dcp"), no_dist=True)
    set_state_dict(theirs, theirs_opt, model_state_dict=model, optim_state_dict=optim)
    assert int(theirs.norm.num_batches_tracked) == 3
    torch.testing.assert_close(theirs.eval()(torch.arange(16)), output(group, module))
    dcp.save({"model": model, "optim": optim}, checkpoint_id=str(where / "back"), no_dist=True)
    convert("to-gangway", where / "back", where / "ours")
    other, other_opt = train(gangs, again := make_net(), steps=1)
    other_opt.model.load(where / "ours")
    gw.load_optimizer(other_opt, where / "ours/optimizer.safetensors")
    assert other_opt.steps == 3 and int(again.norm.num_batches_tracked) == 3
    np.testing.assert_array_equal(other_opt.model["emb.weight"].state(other_opt, "exp_avg"), opt.model["emb.weight"].state(opt, "exp_avg"))
    shutil.rmtree(where)
