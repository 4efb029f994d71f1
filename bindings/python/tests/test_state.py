"""Parameters by name, state dicts, counts."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from ranks import over, together

import gangway as gw

SMALL = dict(vocab=16, dim=8, layers=1, heads=2, ffn=32)


def test_names_are_looked_up_as_in_a_dict():
    model = gw.Llama(dim=32, layers=1, heads=4, tied=True).parallelize()
    assert "model.norm.weight" in model and "lm_head.weight" in model  # the other name of a tied one
    assert "nope" not in model and 3 not in model
    with pytest.raises(KeyError, match="nope") as caught:
        model["nope"]
    assert isinstance(caught.value, gw.NotFound) and str(caught.value) == caught.value.text
    gangs = gw.Gangs.create_fake()
    assert "dp" in gangs and "root" in gangs and "dp_shard+cp" in gangs
    assert "nope" not in gangs and "dp+dp" not in gangs and 3 not in gangs
    with pytest.raises(KeyError, match="nope"):
        gangs["nope"]


def test_parameters_have_names_and_are_counted():
    model = gw.Llama(**SMALL, tied=True).freeze("model.norm.weight")
    names = [name for name, _ in model.named_parameters()]
    assert names == [p.name for p in model] and names[0] == "model.embed_tokens.weight" and len(names) == len(model) == 11
    sizes = {name: int(np.prod(p.shape)) for name, p in model.named_parameters()}
    assert model.num_parameters() == sum(sizes.values()) == 16 * 8 + 4 * 8 * 8 + 3 * 8 * 32 + 3 * 8
    assert model.num_parameters(trainable_only=True) == model.num_parameters() - 8
    assert model["model.embed_tokens.weight"].count == 128


@together(1, 2, 3)
def test_a_state_dict_is_loaded_whole_or_by_rows(gangs):
    model = gw.Llama(**SMALL).parallelize(gangs, seed=1)
    whole, mine = model.state_dict(), model.state_dict(local=True)
    assert list(whole) == list(mine) == [p.name for p in model]
    for name, parameter in model.named_parameters():
        first, last = parameter.rows
        assert whole[name].shape == parameter.shape and whole[name].flags.writeable
        np.testing.assert_array_equal(mine[name], whole[name][first:last])
    other = gw.Llama(**SMALL).parallelize(gangs, seed=2)
    for state in (whole, mine):
        changed = {name: value + 1 for name, value in state.items()}
        assert other.load_state_dict(changed) is other
        for name, value in other.state_dict().items():
            np.testing.assert_array_equal(value, whole[name] + 1)
    kept = {name: value.copy() for name, value in mine.items()}
    model.load_state_dict(other.state_dict())
    for name, value in mine.items():
        np.testing.assert_array_equal(value, kept[name])  # a copy does not follow the parameter


@together(1, 2)
def test_a_state_dict_that_does_not_fit_is_refused_on_every_rank_and_changes_nothing(gangs):
    model = gw.Linear(3, 4).parallelize(gangs, seed=1)
    before = model.state_dict()
    good = {name: np.zeros_like(value) for name, value in before.items()}
    bad = [({"weight": good["weight"]}, "state has no bias"),
           ({**good, "bias": np.zeros(9, np.float32)}, r'state\["bias"\] has shape \[9\], the parameter \[4\]'),
           ({**good, "bias": np.zeros(4, np.int64)}, r'state\["bias"\] is i64, not f64'),
           ({**good, "more": np.zeros(4)}, "state has more, for which the model has no place")]
    for state, says in bad:
        worst = gangs.rank == gangs.size - 1
        told = says if gangs.size == 1 else f"rank {gangs.size - 1}: {says}"
        with pytest.raises(gw.InvalidArgument, match=f"^{told}"):
            model.load_state_dict(state if worst else good)
        for name, value in model.state_dict().items():
            np.testing.assert_array_equal(value, before[name])
    model.load_state_dict({**good, "more": np.zeros(4)}, ignore_extra=True)
    assert not model["weight"].gather().any()


def test_the_other_name_of_a_tied_parameter_is_no_extra():
    model = gw.Llama(**SMALL, tied=True).parallelize()
    state = model.state_dict()
    model.load_state_dict({**state, "lm_head.weight": state["model.embed_tokens.weight"]})


@over(2, needs="torch")
def test_a_module_of_torch_is_sharded_in_one_call(gangs):
    import torch

    def make():
        torch.manual_seed(5)
        return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.LayerNorm(5), torch.nn.Linear(5, 1))

    def batch(step):
        return torch.randn(8, 6, generator=torch.Generator().manual_seed(step))

    plain, steps = make(), 4
    plain[0].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        (plain(batch(step)).square().sum() / 8).backward()
        optimizer.step()

    module = make()
    module[0].bias.requires_grad_(False)
    group = gw.shard(module, gangs, name="net")
    assert repr(group) == "<TorchGroup net: 0.weight, 0.bias, 2.weight, 2.bias, 3.weight, 3.bias>"
    assert all(p.numel() == 0 for p in module.parameters())
    opt = gw.SGD(group, lr=0.1, momentum=0.9)
    for step in range(steps):
        for half in batch(step)[4 * gangs.rank:4 * gangs.rank + 4].split(2):  # two microbatches
            with group.unsharded():
                module(half).square().sum().backward()
        group.reduce()
        opt.step(scale=1 / 8)
    with group.unsharded() as full:
        for name, parameter in plain.named_parameters():
            torch.testing.assert_close(full[name], parameter.detach(), rtol=1e-5, atol=1e-6)
            assert module.get_parameter(name).data_ptr() == full[name].data_ptr()
    assert {name: value.shape for name, value in opt.model.state_dict(kind="torch").items()} == {
        f"net.{name}": p.shape for name, p in plain.named_parameters()}
    with pytest.raises(ZeroDivisionError), group.unsharded():
        module(batch(0)).sum().backward()
        1 / 0
    group.reduce()
    assert not group.gradients()["3.weight"].any()


@over(1, 2, needs="torch")
def test_a_sharded_module_keeps_its_own_shapes_and_names(gangs):
    """Also of parameters without dims and without elements; in files and state dicts, so that the module loads them."""
    import torch

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)
            self.a, self.b = torch.nn.Parameter(torch.tensor(2.0)), torch.nn.Parameter(torch.tensor(3.0))
            self.none = torch.nn.Parameter(torch.empty(3, 0))

        def forward(self, x):
            return (torch.stack([self.a, self.b]) * self.linear(x).sum()).sum() * self.a.exp()

    torch.manual_seed(1)
    module, plain = Scaled(), Scaled()
    plain.load_state_dict(module.state_dict())
    shapes = {name: p.shape for name, p in module.named_parameters()}
    group = gw.shard(module, gangs)
    opt, reference = gw.SGD(group, lr=0.01), torch.optim.SGD(plain.parameters(), lr=0.01)
    for _ in range(2):
        with group.unsharded() as full:
            assert {name: p.shape for name, p in module.named_parameters()} == shapes
            assert {name: p.shape for name, p in full.items()} == shapes
            loss = module(torch.ones(2, 4))
            assert loss.shape == () and torch.allclose(loss, plain(torch.ones(2, 4)))
            loss.backward()
        group.reduce()
        opt.step(scale=1 / gangs.size)
        reference.zero_grad()
        plain(torch.ones(2, 4)).backward()
        reference.step()
    model = gw.ShardGroup.module(group)
    back = Scaled()
    back.load_state_dict(model.state_dict(kind="torch"))
    for name, p in back.named_parameters():
        torch.testing.assert_close(p, plain.get_parameter(name))
    folder = gangs.root.broadcast_object(tempfile.mkdtemp() if gangs.rank == 0 else None)
    model.save(folder)
    content = (Path(folder) / "model.safetensors").read_bytes()
    assert set(json.loads(content[8:8 + int.from_bytes(content[:8], "little")])) - {"__metadata__"} == set(shapes)
    gangs.root.barrier()
    if gangs.rank == 0:  # as PyTorch writes a scalar
        assert content.count(b'"shape":[1]') == 2
        (Path(folder) / "model.safetensors").write_bytes(content.replace(b'"shape":[1]', b'"shape":[ ]'))
    gangs.root.barrier()
    model.load(folder)
    gangs.root.barrier()
    if gangs.rank == 0:
        shutil.rmtree(folder)


@over(1, needs="torch")
def test_a_parameter_is_sharded_once(gangs):
    import torch

    inner = torch.nn.Linear(4, 3)
    outer = torch.nn.Sequential(inner, torch.nn.Linear(3, 2))
    first = gw.shard(inner, gangs, name="0")
    for again, name in ((inner, "weight of Linear"), (outer, "0.weight of Sequential")):
        with pytest.raises(gw.InvalidArgument, match=f"{name} is sharded already"):
            gw.shard(again, gangs)
    second = gw.shard(outer[1], gangs, name="1")
    with first.unsharded(), second.unsharded():
        assert outer(torch.ones(5, 4)).shape == (5, 2)
    assert set(gw.ShardGroup.module([first, second]).state_dict()) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    alike = gw.shard(torch.nn.Linear(3, 2), gangs), gw.shard(torch.nn.Linear(3, 2), gangs)
    with pytest.raises(gw.InvalidArgument, match="weight, as another group has; give each group a name of its own"):
        gw.ShardGroup.module(alike)
    with pytest.raises(gw.InvalidArgument, match="weight of LazyLinear has no shape yet: run the module once"):
        gw.shard(torch.nn.LazyLinear(4), gangs)


@over(1, 2, needs="torch")
def test_a_module_in_float16_trains_with_a_dynamic_loss_scale(gangs):
    import torch

    torch.manual_seed(1)
    plain = torch.nn.Linear(4, 2)
    x, y = torch.randn(8, 4), torch.randn(8, 2)
    for made in ({}, {"param_dtype": torch.float16}):
        module = torch.nn.Linear(4, 2) if made else torch.nn.Linear(4, 2).half()
        module.load_state_dict(plain.state_dict())
        group = gw.shard(module, gangs, **made)
        opt = gw.SGD(group, lr=0.1, loss_scale_interval=3)
        assert opt.loss_scale == 65536
        opt.loss_scale = 256
        losses = []
        for _ in range(6):
            with group.unsharded() as full:
                assert full["weight"].dtype == torch.float16
                loss = (module(x.half()).float() - y).square().mean()
                (loss * opt.loss_scale).backward()
            losses.append(loss.item())
            group.reduce()
            assert not opt.step(scale=1 / gangs.size).skipped
        assert losses[-1] < losses[0] and opt.loss_scale == 1024
        opt.loss_scale = 2**24
        with group.unsharded():
            ((module(x.half()).float() - y).square().mean() * opt.loss_scale).backward()
        group.reduce()
        assert opt.step(scale=1 / gangs.size).skip_reason == gw.SkipReason.NON_FINITE and opt.loss_scale == 2**23


@over(1, needs="torch")
def test_what_shard_does_not_take_is_refused_by_the_reason(gangs):
    import torch

    half = gw.shard(torch.nn.Linear(4, 2).bfloat16(), gangs)
    with half.unsharded() as full:
        assert full["weight"].dtype == torch.bfloat16
        half.module_of_torch(torch.ones(3, 4).bfloat16()).sum().backward()
    half.reduce()
    assert half.gradients()["weight"].dtype == torch.float32 and half.gradients()["weight"].tolist() == [[3.0] * 4] * 2
    with pytest.raises(TypeError, match="module is a list, not a torch.nn.Module"):
        gw.shard([torch.nn.Linear(2, 2)], gangs)
    with pytest.raises(gw.InvalidArgument, match="weight is torch.complex64; shard takes float32, float64, bfloat16 and float16"):
        gw.shard(torch.nn.Linear(2, 2).to(torch.complex64), gangs)
    mixed = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).bfloat16())
    with pytest.raises(gw.InvalidArgument, match="parameters of torch.bfloat16 and torch.float32; a group computes in one type"):
        gw.shard(mixed, gangs)
    with pytest.raises(gw.InvalidArgument, match="Tanh has no parameters to shard"):
        gw.shard(torch.nn.Tanh(), gangs)


def test_without_torch_shard_says_so(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="PyTorch is not installed: pip install torch"):
        gw.shard(object())
