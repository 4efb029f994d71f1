"""PyTorch's own parallel training over gangway: losses are those over Gloo, and failures name the rank."""

import os
import signal
import time
from datetime import timedelta

import pytest
from torch_ranks import alone, group_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed; test.sh says from where it is borrowed")
dist = pytest.importorskip("torch.distributed")

STEPS = 4


def net():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16), torch.nn.Tanh(),
                               torch.nn.Linear(16, 8))


def batch(rank, step):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(6, 16, generator=generator), torch.randn(6, 8, generator=generator)


def losses(model, rank, optimizer=None):
    """Of some steps of training."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=0.01)
    found = []
    for step in range(STEPS):
        x, y = batch(rank, step)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def same(world, build):
    """The same training over both backends."""
    from torch.distributed.device_mesh import DeviceMesh

    ours = DeviceMesh.from_group(dist.group.WORLD, "cpu")
    theirs = DeviceMesh.from_group(world.gloo, "cpu")
    a, b = losses(build(ours), world.rank), losses(build(theirs), world.rank)
    assert a == pytest.approx(b, rel=1e-6, abs=0) and a[-1] != a[0], (a, b)


@group_of(2, 4)
def test_ddp_trains_as_on_gloo(world):
    same(world, lambda mesh: torch.nn.parallel.DistributedDataParallel(net(), process_group=mesh.get_group(),
                                                                       bucket_cap_mb=0.001))


@group_of(2)
def test_a_compiled_ddp_model_trains_as_on_gloo(world):
    """Its buffer is broadcast in forward, which torch.compile traces."""
    def build(mesh):
        model = torch.nn.Sequential(net(), torch.nn.BatchNorm1d(8))
        return torch.compile(torch.nn.parallel.DistributedDataParallel(model, process_group=mesh.get_group()), backend="eager")

    same(world, build)


@group_of(2)
def test_ddp_with_communication_hooks_and_views(world):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    def build(mesh):
        model = torch.nn.parallel.DistributedDataParallel(net(), process_group=mesh.get_group(), gradient_as_bucket_view=True)
        model.register_comm_hook(mesh.get_group(), default_hooks.bf16_compress_hook)
        return model

    same(world, build)


@group_of(2, 4)
def test_fsdp2_trains_as_on_gloo(world):
    from torch.distributed.fsdp import fully_shard

    def build(mesh):
        model = net()
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    same(world, build)


@group_of(2)
def test_fsdp2_with_its_buffers_in_the_arena(world):
    import gangway.torch as backend
    from torch.distributed.fsdp import fully_shard

    def build(mesh):
        model = fully_shard(net(), mesh=mesh)
        model.set_allocate_memory_from_process_group_for_comm(True)
        return model

    gang = backend.gang_of()
    staged = gang.traffic()["bytes_staged"]
    from torch.distributed.device_mesh import DeviceMesh

    losses(build(DeviceMesh.from_group(dist.group.WORLD, "cpu")), world.rank)
    assert gang.traffic()["bytes_staged"] == staged


@group_of(2)
def test_tensor_parallel_and_dtensor(world):
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def build(mesh):
        return parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

    from torch.distributed.device_mesh import DeviceMesh

    found = []
    for group in (dist.group.WORLD, world.gloo):
        model = build(DeviceMesh.from_group(group, "cpu"))
        found.append(losses(model, 0, torch.optim.SGD(model.parameters(), lr=0.1)))
    assert found[0] == pytest.approx(found[1], rel=1e-6, abs=0)
    alone_losses = losses(net(), 0, torch.optim.SGD(net().parameters(), lr=0.1))
    assert found[0][0] == pytest.approx(alone_losses[0], rel=1e-5)
    mesh = DeviceMesh.from_group(dist.group.WORLD, "cpu")
    whole = torch.arange(35.0).view(5, 7)
    split = distribute_tensor(whole, mesh, [Shard(0)])
    assert isinstance(split, DTensor) and torch.equal(split.full_tensor(), whole)
    assert torch.equal(split.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    ones = distribute_tensor(torch.ones(7, 2), mesh, [Replicate()])
    assert torch.equal((split @ ones).redistribute(mesh, [Replicate()]).to_local(), whole @ torch.ones(7, 2))


@group_of(2)
def test_a_pipeline_trains_as_on_gloo(world):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    whole = net()
    found = []
    for group in (dist.group.WORLD, world.gloo):
        model = net()
        part = model[:2] if world.rank == 0 else model[2:]
        stage = PipelineStage(part, world.rank, 2, torch.device("cpu"), group=group)
        schedule = Schedule1F1B(stage, n_microbatches=3, loss_fn=torch.nn.functional.mse_loss)
        x, y = batch(0, 0)
        kept = []
        if world.rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=kept)
        found.append(([float(k) for k in kept], [p.grad.clone() for p in part.parameters()]))
    assert found[0][0] == found[1][0]
    for a, b in zip(found[0][1], found[1][1]):
        assert torch.equal(a, b)
    if world.rank == 1:
        x, y = batch(0, 0)
        wanted = [torch.nn.functional.mse_loss(whole(xs), ys).item() for xs, ys in zip(x.chunk(3), y.chunk(3))]
        assert found[0][0] == pytest.approx(wanted, rel=1e-5)


@group_of(2)
def test_dcp_saves_and_loads_a_sharded_model(world):
    import shutil

    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    folder = f"/tmp/gangway-dcp-{os.getppid()}"
    model = fully_shard(net())
    saved = {k: v.full_tensor().clone() for k, v in get_model_state_dict(model).items()}
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    state = {"model": get_model_state_dict(model)}
    dcp.load(state, checkpoint_id=folder)
    for name, value in get_model_state_dict(model).items():
        assert torch.equal(value.full_tensor(), saved[name])
    dist.barrier()
    if world.rank == 0:
        shutil.rmtree(folder)


# --- failures under training


def ends_by(world, model, says, seconds=20):
    """Training until it fails, which it does in time with this text."""
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=says):
        for _ in range(1000):
            losses(model, world.rank)
    assert time.monotonic() - started < seconds


def sharded():
    from torch.distributed.fsdp import fully_shard

    return fully_shard(net())


@alone(2, lost=1)
def test_a_rank_is_killed_under_ddp(world):
    model = torch.nn.parallel.DistributedDataParallel(net())
    losses(model, world.rank)
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    ends_by(world, model, "killed by signal 9")


@alone(2, lost=1)
def test_a_rank_is_killed_under_fsdp2(world):
    model = sharded()
    losses(model, world.rank)
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    ends_by(world, model, "killed by signal 9")


@alone(2)
def test_ranks_call_different_collectives_under_fsdp2(world):
    model = sharded()
    losses(model, world.rank)
    if world.rank == 1:
        with pytest.raises(dist.DistBackendError, match="different collectives"):
            dist.all_reduce(torch.ones(3))
    else:
        ends_by(world, model, "different collectives")


@alone(2)
def test_a_rank_stays_away_under_ddp(world):
    losses(torch.nn.parallel.DistributedDataParallel(net()), world.rank)  # PyTorch imports what it needs: seconds on a busy machine
    dist.barrier()
    group = dist.new_group(timeout=timedelta(seconds=8))
    model = torch.nn.parallel.DistributedDataParallel(net(), process_group=group)
    losses(model, world.rank)
    if world.rank == 0:
        ends_by(world, model, "rank 1 did not come within 8000 ms", 40)
    dist.barrier()
