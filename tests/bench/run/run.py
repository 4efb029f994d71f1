"""What a run costs beside its steps: saves, resumes, and data, with PyTorch's DataLoader and DCP in the same run.

  usage: PYTHONPATH=bindings/python:BUILD/bindings... python tests/bench/run/run.py [--parameters MILLIONS] [--rounds N] [--only PART]

Prints each row when it is measured. A figure is the median of the rounds. PyTorch's parts are left out, with a line that says so,
where torch is not installed (tests/bench/peers/install.sh train FOLDER)."""
import argparse
import os
import pathlib
import statistics
import tempfile
import time

import numpy as np

import gangway as gw

try:
    import torch
except ImportError:
    torch = None


def median(function, rounds):
    """The median of the seconds that a call takes."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def row(name, ours, peer=None, unit="s", better="less"):
    ratio = "" if peer is None else f"{(peer / ours if better == 'less' else ours / peer):8.2f}"
    other = "" if peer is None else f"{peer:12.4g}"
    print(f"{name:46}{ours:12.4g}{other:>12}{ratio:>8}  {unit}", flush=True)


def head(title, peer):
    print(f"\n{title:46}{'gangway':>12}{peer:>12}{'ratio':>8}", flush=True)


# --- data


class Rows(torch.utils.data.Dataset if torch else object):
    """The same rows as a PyTorch user reads them: a memory map, a slice for each row."""

    def __init__(self, path, sequence):
        self.tokens, self.sequence = np.memmap(path, np.uint16, "r"), sequence

    def __len__(self):
        return (len(self.tokens) - 1) // self.sequence

    def __getitem__(self, i):
        part = np.asarray(self.tokens[i * self.sequence:(i + 1) * self.sequence + 1], np.int64)
        return torch.from_numpy(part[:-1].copy()), torch.from_numpy(part[1:].copy())


def data(folder, rounds):
    sequence, batch, batches = 1024, 64, 200
    path = folder / "tokens.u16"
    np.random.default_rng(1).integers(0, 50000, 50_000_000, np.uint16).tofile(path)

    def ours():
        rows = gw.Dataset([path], sequence=sequence, seed=1)
        for _ in range(batches):
            rows.next(global_batch=batch)

    head(f"data: {batches} batches of {batch} x {sequence} tokens", "DataLoader")
    mine = batches * batch * sequence / median(ours, rounds) / 1e6
    for workers in (0, 2) if torch else ():
        def theirs():
            loader = torch.utils.data.DataLoader(Rows(path, sequence), batch, shuffle=True, num_workers=workers)
            for i, _ in enumerate(loader):
                if i + 1 == batches:
                    break
        row(f"million tokens a second, {workers} workers", mine, batches * batch * sequence / median(theirs, rounds) / 1e6,
            "M/s", "more")
    if not torch:
        row("million tokens a second", mine, unit="M/s")


# --- checkpoints


def llama(millions):
    """A decoder of about so many million parameters."""
    dim = max(64, int((millions * 1e6 / (12 * 6)) ** 0.5) // 64 * 64)
    return gw.Llama(vocab=1024, dim=dim, layers=6, heads=dim // 64, ffn=int(dim * 8 / 3) // 32 * 32, max_positions=512)


def saves(folder, millions, rounds):
    model = llama(millions).parallelize(None, param_dtype=None)
    opt = gw.AdamW(model, lr=1e-4)
    tokens = np.random.default_rng(2).integers(0, 1024, (2, 256))
    step = lambda: gw.train_step(model, opt, tokens)  # noqa: E731
    step()
    size = 12 * model.num_parameters()
    block = np.ones(size, np.uint8)
    place = np.empty_like(block)
    copy = median(lambda: np.copyto(place, block), rounds)
    head(f"saves of {size / 1e6:.0f} MB ({model.num_parameters() / 1e6:.1f} M parameters, AdamW)", "DCP" if torch else "")
    row("a copy of as many bytes in memory", copy)

    run = gw.Checkpoints(folder / "run", keep=1)
    count = iter(range(1, 1 << 30))
    save = lambda: run.save(model, opt, step=next(count))  # noqa: E731
    save(), run.wait()
    stalls, whole = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        save()
        stalls.append(time.perf_counter() - start)
        run.wait()
        whole.append(time.perf_counter() - start)
    stall, total = statistics.median(stalls), statistics.median(whole)
    theirs = dcp(folder, model, rounds) if torch else (None, None, None)
    row("stall of a save", stall, theirs[0])
    row("stall / copy (goal at most 1.3)", stall / copy, None if theirs[0] is None else theirs[0] / copy, "x")
    row("until it is on disk", total, theirs[1])
    row("bytes on disk", sum(f.stat().st_size for f in (folder / "run").rglob("*") if f.is_file()) / 1e6, theirs[2], "MB")

    one = median(step, 3)
    steps = max(4, int(4 * total / one))  # an interval between checkpoints in which a save is a fourth of the time
    calm = median(lambda: [step() for _ in range(steps)], rounds)
    busy = median(lambda: (save(), [step() for _ in range(steps)]), rounds)
    run.wait()
    row(f"{steps} steps", calm)
    row(f"{steps} steps with a save (goal at most 1.05)", busy / calm, unit="x")

    def resume():
        again = llama(millions).parallelize(None, param_dtype=None)
        optimizer = gw.AdamW(again, lr=1e-4)
        run.restore(again, optimizer)
        gw.train_step(again, optimizer, tokens)
    resumed = median(resume, max(1, rounds // 2))
    row("resume: build, verify, restore, first step", resumed)


def dcp(folder, model, rounds):
    """Stall, time and bytes of torch.distributed.checkpoint.async_save of the same tensors."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as checkpoint
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29577")
    if not dist.is_initialized():
        dist.init_process_group("gloo", rank=0, world_size=1)
    state = {}
    for name, parameter in model.named_parameters():
        for kind in ("value", "exp_avg", "exp_avg_sq"):
            state[f"{kind}.{name}"] = torch.ones(tuple(parameter.shape))
    stalls, whole = [], []
    for i in range(rounds):
        start = time.perf_counter()
        future = checkpoint.async_save(state, checkpoint_id=folder / f"dcp{i}")
        stalls.append(time.perf_counter() - start)
        future.result()
        whole.append(time.perf_counter() - start)
    size = sum(f.stat().st_size for f in (folder / "dcp0").rglob("*") if f.is_file()) / 1e6
    return statistics.median(stalls), statistics.median(whole), size


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parameters", type=float, default=20, help="millions")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["data", "saves"])
    arguments = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, torch {torch.__version__ if torch else 'is not installed'}")
    with tempfile.TemporaryDirectory(dir=os.environ.get("GANGWAY_BENCH_FOLDER")) as name:
        folder = pathlib.Path(name)
        if arguments.only != "saves":
            data(folder, arguments.rounds)
        if arguments.only != "data":
            saves(folder, arguments.parameters, arguments.rounds)


if __name__ == "__main__":
    main()
