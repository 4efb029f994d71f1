"""PyTorch's collectives and parallel training over gangway and over Gloo, in one run of the same processes.

    python tests/bench/torch/torch_bench.py [--ranks 2 4] [--rounds 7] [--rows calls train] [--json FILE]

Needs PyTorch and the gangway wheel in one venv (bindings/python/tests/pytorch/run.sh makes it: BUILD_DIR/python/venv). Rounds
alternate between the sides; each row prints median [p10 p90] of each side and how many times as fast gangway is. Calls:
microseconds by bytes of the largest tensor, gangway on plain memory, on memory of the arena (gangway.torch.empty), Gloo; and
the same call by the library alone, whose difference is what PyTorch costs. Training: tokens/s of S32 (targets.md 2) by each
rank alone, which no data parallel run can exceed, by FSDP2, DDP, tensor parallel and 1F1B with 4 microbatches; losses of the
sides are compared."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Callable

import torch
import torch.distributed as dist

import gangway
import gangway.torch as backend

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "peers"))
import torch_train as s32  # noqa: E402

SIZES = [8, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26]
Times = dict[str, list[float]]


def spread(values: list[float]) -> tuple[float, float, float]:
    """Median, p10, p90."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]


class Bench:
    """One rank."""

    def __init__(self, rank: int, size: int, given: argparse.Namespace, out: Any) -> None:
        self.rank, self.size, self._out = rank, size, out
        self.rounds, self.most = given.rounds, given.most
        self.ours, self.theirs = dist.group.WORLD, dist.new_group(backend="gloo")

    def row(self, name: str, unit: str, times: Times, base: str, faster_is_less: bool = True) -> None:
        """Prints a row on rank 0; ratios are `base` over each other side, so that more is better for the first side."""
        if self.rank != 0:
            return
        sides = {side: spread(v) for side, v in times.items()}
        first = next(iter(sides))
        cells = [f"{side} {m:10.1f} [{lo:.1f} {hi:.1f}]" for side, (m, lo, hi) in sides.items()]
        ratio = sides[base][0] / sides[first][0] if faster_is_less else sides[first][0] / sides[base][0]
        print(f"{name:34s} {unit:8s} {'   '.join(cells)}   {ratio:6.2f} times {base}", flush=True)
        line = {"ranks": self.size, "row": name, "unit": unit, "ratio": ratio, **{s: list(v) for s, v in sides.items()}}
        print(json.dumps(line), file=self._out, flush=True)

    def alternate(self, sides: dict[str, Callable[[], None]], repeats: dict[str, int]) -> Times:
        """Seconds of one call of each side, by rounds."""
        times: Times = {side: [] for side in sides}
        for round_ in range(self.rounds + 1):
            for side, call in sides.items():
                dist.barrier()
                started = time.perf_counter()
                for _ in range(repeats[side]):
                    call()
                if round_:
                    times[side].append((time.perf_counter() - started) / repeats[side])
        return times

    # --- calls

    def calls(self) -> None:
        """Rows by operation and size."""
        for size in [n for n in SIZES if n <= self.most]:
            count = max(2, size // 4)
            plain = torch.ones(count)
            arena = backend.empty((count,)).fill_(1)
            for name, call in self._of(count).items():
                sides = {"gangway": lambda: call(self.ours, plain), "arena": lambda: call(self.ours, arena),
                         "gloo": lambda: call(self.theirs, plain)}
                often = max(1, min(2000, (1 << 25) // max(size, 1 << 14)))
                times = self.alternate(sides, {"gangway": often, "arena": often, "gloo": max(1, often // 20)})
                self.row(f"{name} {size}", "us", {s: [1e6 * t for t in v] for s, v in times.items()}, "gloo")
        gang, x = backend.gang_of(), torch.ones(2)
        low = gangway._low
        address, word = x.data_ptr(), int(gangway.DType.F32)
        sides = {"dist.all_reduce": lambda: dist.all_reduce(x),
                 "async + wait": lambda: dist.all_reduce(x, async_op=True).wait(),
                 "library": lambda: low.gw_gang_all_reduce(gang._h, address, address, 2, word, 1, None)}
        times = self.alternate(sides, dict.fromkeys(sides, 3000))
        self.row("cost of all_reduce 8", "us", {s: [1e6 * t for t in v] for s, v in times.items()}, "library")
        times = self.alternate({"gangway": lambda: dist.barrier(), "gloo": lambda: dist.barrier(group=self.theirs)},
                               {"gangway": 2000, "gloo": 200})
        self.row("barrier", "us", {s: [1e6 * t for t in v] for s, v in times.items()}, "gloo")

    def _of(self, count: int) -> dict[str, Callable[[Any, torch.Tensor], Any]]:
        part = count // self.size

        def send_recv(group: Any, x: torch.Tensor) -> None:
            if self.rank == 0:
                dist.send(x, 1, group=group)
                dist.recv(x, 1, group=group)
            elif self.rank == 1:
                dist.recv(x, 0, group=group)
                dist.send(x, 0, group=group)

        calls: dict[str, Callable[[Any, torch.Tensor], Any]] = {
            "all_reduce": lambda g, x: dist.all_reduce(x, dist.ReduceOp.MAX, group=g),
            "broadcast": lambda g, x: dist.broadcast(x, 0, group=g),
            "send and recv": send_recv,
        }
        if part:
            calls["all_gather"] = lambda g, x: dist.all_gather_into_tensor(
                x[:part * self.size], x[part * self.rank:part * (self.rank + 1)], group=g)
            calls["reduce_scatter"] = lambda g, x: dist.reduce_scatter_tensor(
                x[part * self.rank:part * (self.rank + 1)], x[:part * self.size], dist.ReduceOp.MAX, group=g)
        return calls

    # --- training

    def train(self) -> None:
        """A row for each form of parallelism."""
        from torch.distributed.device_mesh import DeviceMesh

        model, mine, labels = parts(self.rank)
        alone = self.alternate({"each rank alone": stepping(model, mine, labels)}, {"each rank alone": 1})
        self.row("no communication", "tokens/s", {s: [self.size * mine.numel() / t for t in v] for s, v in alone.items()},
                 "each rank alone", faster_is_less=False)
        del model
        for name, make in (("FSDP2", fsdp2), ("FSDP2 in the arena", fsdp2_arena), ("DDP", ddp), ("TP", tensor_parallel),
                           ("PP 1F1B", pipeline)):
            steps, losses = {}, {}
            for side, group in (("gangway", self.ours), ("gloo", self.theirs)):
                if name.endswith("arena") and side == "gloo":
                    steps[side] = fsdp2(DeviceMesh.from_group(group, "cpu"), self.rank, self.size)[0]
                    losses[side] = None
                    continue
                steps[side], tokens = make(DeviceMesh.from_group(group, "cpu"), self.rank, self.size)
                losses[side] = [steps[side]() for _ in range(2)]
            times = self.alternate(steps, {"gangway": 1, "gloo": 1})
            rates = {s: [tokens / t for t in v] for s, v in times.items()}
            self.row(f"{name}", "tokens/s", rates, "gloo", faster_is_less=False)
            if losses["gloo"] is not None and None not in losses["gloo"]:
                worst = max(abs(a - b) / abs(b) for a, b in zip(losses["gangway"], losses["gloo"]))
                if self.rank == self.size - 1:
                    print(f"{name}: losses differ by at most {worst:.1e} of their size", flush=True)


def parts(seed: int) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """S32 with the same first values everywhere, and a batch by seed."""
    torch.manual_seed(1)
    model = s32.Llama()
    tokens = torch.randint(s32.VOCAB, (s32.BATCH, s32.SEQUENCE), generator=torch.Generator().manual_seed(seed))
    return model, tokens, torch.roll(tokens, -1, dims=1)


def stepping(model: Any, tokens: torch.Tensor, labels: torch.Tensor) -> Callable[[], float]:
    """One step of training, as torch_train.py makes it. The fused AdamW takes DTensors or tensors in one group, not both."""
    kinds: dict[type, list[Any]] = {}
    for parameter in model.parameters():
        kinds.setdefault(type(parameter.data), []).append(parameter)
    optimizer = torch.optim.AdamW([{"params": p} for p in kinds.values()], lr=1e-3, weight_decay=0.1, fused=True)

    def step() -> float:
        loss = model(tokens, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.item())

    return step


def fsdp2(mesh: Any, rank: int, size: int, arena: bool = False) -> tuple[Callable[[], float], int]:
    from torch.distributed.fsdp import fully_shard

    model, tokens, labels = parts(rank)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if arena:
        for module in (*model.blocks, model):
            module.set_allocate_memory_from_process_group_for_comm(True)
    return stepping(model, tokens, labels), size * tokens.numel()


def fsdp2_arena(mesh: Any, rank: int, size: int) -> tuple[Callable[[], float], int]:
    return fsdp2(mesh, rank, size, arena=True)


def ddp(mesh: Any, rank: int, size: int) -> tuple[Callable[[], float], int]:
    model, tokens, labels = parts(rank)
    wrapped = torch.nn.parallel.DistributedDataParallel(model, process_group=mesh.get_group())
    return stepping(wrapped, tokens, labels), size * tokens.numel()


def tensor_parallel(mesh: Any, rank: int, size: int) -> tuple[Callable[[], float], int]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model, tokens, labels = parts(0)
    columns, lines = ColwiseParallel(), RowwiseParallel()
    for block in model.blocks:  # the feed-forward part, which splits without a change to the model
        parallelize_module(block.mlp, mesh, {"gate": columns, "up": columns, "down": lines})
    step = stepping(model, tokens, labels)
    return step, tokens.numel()


class Stage(torch.nn.Module):
    """Some blocks of S32, with the embedding or the head."""

    def __init__(self, model: Any, rank: int, size: int) -> None:
        super().__init__()
        each = s32.LAYERS // size
        self.embed = model.embed if rank == 0 else None
        self.blocks = torch.nn.ModuleList(list(model.blocks)[each * rank:each * (rank + 1)])
        self.norm, self.head = (model.norm, model.head) if rank == size - 1 else (None, None)
        self.cos, self.sin = model.cos, model.sin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embed is not None:
            x = self.embed(x)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return x if self.head is None else self.head(self.norm(x))


def pipeline(mesh: Any, rank: int, size: int) -> tuple[Callable[[], float], int]:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    model, tokens, labels = parts(0)
    part = Stage(model, rank, size)
    stage = PipelineStage(part, rank, size, torch.device("cpu"), group=mesh.get_group())
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda y, t: torch.nn.functional.cross_entropy(
        y.reshape(-1, s32.VOCAB), t.reshape(-1)))
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3, weight_decay=0.1, fused=True)

    def step() -> float:
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(tokens)
        elif rank == size - 1:
            schedule.step(target=labels, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(torch.stack(losses).mean()) if losses else 1.0

    return step, tokens.numel()


def run_rank(rank: int, size: int, meeting: str, given: argparse.Namespace) -> None:
    """One forked rank."""
    status = 1
    try:
        torch.set_num_threads(1)
        dist.init_process_group("gangway", init_method=f"file://{meeting}", rank=rank, world_size=size)
        with open(given.json or os.devnull, "a") as out:
            bench = Bench(rank, size, given, out)
            for rows in given.rows:
                getattr(bench, rows)()
        dist.barrier()
        dist.destroy_process_group()
        status = 0
    except BaseException:  # os._exit() below would end without a word
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="bytes of the largest call")
    parser.add_argument("--rows", nargs="*", default=["calls", "train"], choices=["calls", "train"])
    parser.add_argument("--json", default="")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    print(f"PyTorch {torch.__version__}, gangway {'.'.join(map(str, gangway.version()))}, {platform.processor() or 'cpu'}, "
          f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    failed = 0
    for size in given.ranks:
        print(f"--- {size} ranks", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            children = []
            for rank in range(size):
                child = os.fork()
                if child == 0:
                    run_rank(rank, size, os.path.join(folder, "meeting"), given)
                children.append(child)
            for child in children:
                if os.waitpid(child, 0)[1] != 0:
                    failed = 1
                    for other in children:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(other, signal.SIGTERM)
                    break
        print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
