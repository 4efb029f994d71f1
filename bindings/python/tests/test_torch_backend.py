"""Backend gangway of torch.distributed: works, messages, groups, launchers, memory, failures."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
from torch_ranks import alone, group_of, need_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed; test.sh says from where it is borrowed")
dist = pytest.importorskip("torch.distributed")


# --- works


@group_of(2)
def test_works_end_in_the_order_of_the_calls_and_say_so(world):
    tensors = [torch.full((1000,), float(world.rank + i)) for i in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    works[-1].wait()
    for i, (work, t) in enumerate(zip(works, tensors)):
        assert work.is_completed() and work.is_success() and work.exception() is None
        assert torch.equal(t, torch.full((1000,), 2.0 * i + 1)) and work.result()[0] is t
    x = torch.ones(4)
    first = dist.all_reduce(x, async_op=True)
    second = dist.all_reduce(x, async_op=True)  # of what the first one leaves
    second.wait()
    assert first.is_completed() and x.tolist() == [4.0] * 4


@group_of(2)
def test_a_work_that_is_asked_gets_done_without_a_wait(world):
    x = torch.ones(300_000)
    work = dist.all_reduce(x, async_op=True)
    limit = time.monotonic() + 60
    while not work.is_completed():
        assert time.monotonic() < limit
    assert x[-1].item() == 2


@group_of(2)
def test_futures_are_done_without_a_wait_and_chain(world):
    x = torch.full((5,), float(world.rank))
    future = dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] * 10)
    assert torch.equal(future.wait(), torch.full((5,), 10.0))
    late = dist.barrier(async_op=True)
    late.wait()
    assert late.get_future().done()


@group_of(2)
def test_a_dropped_work_goes_on_and_keeps_its_tensors(world):
    for i in range(50):
        dist.all_reduce(torch.full((20_000,), float(i)), async_op=True)
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == 2


@group_of(2)
def test_other_threads_run_while_a_call_waits(world):
    count, over = [0], threading.Event()

    def run():
        while not over.is_set():
            count[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=run)
    thread.start()
    if world.rank == 0:
        before = count[0]
        dist.all_reduce(torch.ones(1))
        assert count[0] - before > 20
    else:
        time.sleep(0.5)
        dist.all_reduce(torch.ones(1))
    over.set()
    thread.join()


@group_of(2)
def test_dispatch_modes_and_profilers_see_the_calls(world):
    from torch.distributed.tensor.debug import CommDebugMode

    with CommDebugMode() as seen:
        dist.all_reduce(torch.ones(2))
    assert seen.get_total_counts() == 1
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        dist.all_reduce(torch.ones(2))
    assert "gangway:all_reduce" in {event.name for event in profiler.events()}


# --- messages


@group_of(2, 3)
def test_messages_find_their_tags_in_any_order(world):
    if world.rank == 0:
        for peer in range(1, world.size):
            for number, tag in enumerate((3, 1, 2, 1)):
                dist.send(torch.tensor([float(tag), float(number)]), peer, tag=tag)
            dist.send(torch.tensor([0.0, 4.0]), peer)
    elif world.rank > 0:
        got = [torch.zeros(2) for _ in range(4)]
        works = [dist.irecv(t, 0, tag=tag) for t, tag in zip(got, (1, 2, 3, 1))]
        for work in reversed(works):
            work.wait()
        assert [t.tolist() for t in got] == [[1.0, 1.0], [2.0, 2.0], [3.0, 0.0], [1.0, 3.0]]
        plain = torch.zeros(2)
        dist.recv(plain, 0)
        assert plain.tolist() == [0.0, 4.0]
    dist.barrier()


@group_of(2, 4)
def test_a_receive_from_any_rank_says_from_which(world):
    if world.rank == 0:
        seen = []
        for tag in (0, 5):
            for _ in range(world.size - 1):
                x = torch.zeros(3)
                sender = dist.recv(x, tag=tag)
                assert x.tolist() == [float(sender + tag)] * 3
                seen.append(sender)
        assert sorted(seen) == sorted(2 * list(range(1, world.size)))
    else:
        dist.send(torch.full((3,), float(world.rank)), 0)
        dist.send(torch.full((3,), float(world.rank + 5)), 0, tag=5)
    dist.barrier()


@group_of(3)
def test_a_batch_of_messages_cannot_deadlock(world):
    after, before = (world.rank + 1) % 3, (world.rank - 1) % 3
    for count in (1, 100_000):
        sent, got = torch.full((count,), float(world.rank)), torch.zeros(count)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, got, before)]):
            work.wait()
        assert got[0].item() == got[-1].item() == before


@group_of(3)
def test_the_monitored_barrier_names_who_is_missing_and_harms_nothing(world):
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    if world.rank != 1:
        with pytest.raises(RuntimeError, match="Rank 1 failed to pass" if world.rank == 0 else "received errors"):
            dist.monitored_barrier(timeout=timedelta(seconds=0.3))
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == 3


# --- groups and launchers


@group_of(4)
def test_groups_of_some_ranks_and_meshes(world):
    odd = dist.new_group([1, 3], backend="gangway")
    if world.rank % 2:
        x = torch.full((2,), float(world.rank))
        dist.all_reduce(x, group=odd)
        assert x.tolist() == [4.0, 4.0] and dist.get_backend(odd) == "gangway"
    halves = dist.split_group(split_ranks=[[2, 0], [1, 3]])
    got = [torch.zeros(1), torch.zeros(1)]
    work = dist.all_gather(got, torch.tensor([float(world.rank)]), group=halves, async_op=True)
    work.wait()
    assert work.is_completed() and [int(t) for t in got] == ([2, 0] if world.rank % 2 == 0 else [1, 3])
    mesh = torch.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    x = torch.full((1,), float(world.rank))
    dist.all_reduce(x, group=mesh["tp"].get_group())
    assert x.item() == (1.0 if world.rank < 2 else 5.0)


@alone(2)
def test_a_group_may_have_another_backend_for_another_device(world):
    dist.destroy_process_group()
    store = dist.FileStore(f"/tmp/gangway-mixed-{os.getppid()}", world.size)
    dist.init_process_group("cpu:gangway,cuda:gloo", store=store, rank=world.rank, world_size=world.size)
    x = torch.full((3,), float(world.rank))
    dist.all_reduce(x)
    assert x.tolist() == [1.0] * 3 and dist.get_backend_config() == "cpu:gangway,cuda:gloo"
    dist.barrier()
    if world.rank == 0:
        os.unlink(f"/tmp/gangway-mixed-{os.getppid()}")


PROGRAM = """
import torch, torch.distributed as dist, gangway.torch
dist.init_process_group("gangway")
x = torch.ones(2)
dist.all_reduce(x)
print(f"sum {int(x[0])} of {dist.get_world_size()}\\n", end="", flush=True)
dist.destroy_process_group()
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


@pytest.mark.parametrize("launcher", ["torchrun", "gangrun"])
def test_ranks_meet_under(launcher, tmp_path):
    need_torch()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = {"torchrun": ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()],
               "gangrun": ["-m", "gangway.run", "-n", "2", sys.executable]}[launcher]
    done = subprocess.run([sys.executable, *command, str(program)], capture_output=True, text=True, timeout=200,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "MASTER_PORT": free_port(), "MASTER_ADDR": "127.0.0.1"})
    assert done.stdout.count("sum 2 of 2") == 2, done.stdout + done.stderr


# --- memory


@group_of(2)
def test_tensors_of_the_arena_are_not_staged(world):
    import gangway.torch as backend

    gang = backend.gang_of()
    x = backend.empty((300_000,)).fill_(world.rank + 1)
    before = gang.traffic()["bytes_staged"]
    dist.all_reduce(x)
    assert gang.traffic()["bytes_staged"] == before and x[7].item() == 3
    plain = torch.ones(300_000)
    dist.all_reduce(plain)
    assert gang.traffic()["bytes_staged"] > before
    address = x.data_ptr()
    del x
    again = backend.empty((299_000,))  # of the block that came back
    assert again.data_ptr() == address and backend.empty((0, 3)).shape == (0, 3)
    assert backend.empty((2, 3), torch.bool).dtype == torch.bool
    with pytest.raises(ValueError, match="complex64"):
        backend.empty((2,), torch.complex64)


# --- failures: each ends in PyTorch's error with the library's text


@alone(3, lost=1)
def test_a_killed_rank_is_named_at_once(world):
    dist.barrier()
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=r"rank 1 .* was lost .*killed by signal 9|rank 1 .*signal 9"):
        dist.all_reduce(torch.ones(10))
    assert time.monotonic() - started < 20
    work_error = None
    try:
        dist.all_reduce(torch.ones(10), async_op=True).wait()
    except dist.DistBackendError as error:
        work_error = error
    assert work_error is not None


@alone(2)
def test_a_late_rank_is_a_timeout_that_names_it(world):
    group = dist.new_group(timeout=timedelta(seconds=0.5))
    if world.rank == 0:
        with pytest.raises(dist.DistBackendError, match="rank 1 did not come within 500 ms.*timeout"):
            dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()


@group_of(2, 4)
def test_a_gang_is_a_process_group(world):
    import gangway.torch

    gang = gangway.torch.gang_of()
    group = gang.as_process_group()
    assert group is gang.as_process_group() and gangway.torch.gang_of(group) is not gang
    assert dist.get_process_group_ranks(group) == list(range(world.size)) and dist.get_backend(group) == "gangway"
    x = torch.full((3,), float(world.rank))
    dist.all_reduce(x, group=group)
    assert x.tolist() == [sum(range(world.size))] * 3
    same = [r for r in range(world.size) if r % 2 == world.rank % 2]
    part = gang.split(world.rank % 2).as_process_group()
    assert dist.get_process_group_ranks(part) == same and dist.get_rank(part) == same.index(world.rank)
    y = torch.full((2,), float(world.rank))
    dist.all_reduce(y, group=part)
    assert y.tolist() == [sum(same)] * 2
    dist.broadcast(y.fill_(world.rank), src=same[-1], group=part)  # by its number in the default group
    assert y.tolist() == [same[-1]] * 2
    dist.destroy_process_group(part)
    dist.destroy_process_group(group)
    dist.barrier()


@alone(2)
def test_a_wait_with_a_timeout_is_harmless(world):
    x = torch.ones(1)
    if world.rank == 0:
        work = dist.all_reduce(x, async_op=True)
        with pytest.raises(dist.DistBackendError, match="waiting for rank 1.*timeout of this wait"):
            work.wait(timedelta(milliseconds=50))
        dist.barrier(group=world.gloo)
        work.wait()
    else:
        dist.barrier(group=world.gloo)
        dist.all_reduce(x)
    assert x.item() == 2


@alone(2)
def test_an_abort_ends_the_peers_calls_and_their_futures(world):
    if world.rank == 0:
        future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
        with pytest.raises(RuntimeError, match="aborted the process group"):
            future.wait()
        with pytest.raises(dist.DistBackendError, match="aborted the process group"):
            dist.barrier()
    else:
        time.sleep(0.2)
        dist.group.WORLD.abort()
        with pytest.raises(dist.DistBackendError, match="aborted the process group"):
            dist.barrier()


@alone(2)
def test_calls_after_the_end_are_refused(world):
    group = dist.group.WORLD
    dist.destroy_process_group()
    with pytest.raises(ValueError, match="Default process group"):
        dist.all_reduce(torch.ones(1))
    with pytest.raises(RuntimeError, match="released"):
        group.allreduce([torch.ones(1)], dist.AllreduceOptions())
