"""Tests whose body runs on every rank of a process group of PyTorch over gangway: @group_of(2, 4) runs all such bodies of a
file in one launch for each size, @alone(2) one by itself. A launch imports PyTorch once and forks its ranks."""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable

import pytest

PATIENCE = 240  # seconds until a launch is given up, and half of them until a rank gives its peers up
_bodies: dict[tuple[str, int], list[str]] = {}

Body = Callable[["World"], None]


class World:
    """What a body gets: its place, and a group of the same ranks over Gloo to compare with."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.gloo = dist.new_group(backend="gloo")


def need_torch() -> None:
    """Counts a skip with its reason."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed; test.sh says from where it is borrowed")


def group_of(*sizes: int) -> Callable[[Body], Any]:
    """Marks a test of one gang of each size. The gang is shared: after a body fails, those behind it fail, too."""

    def wrap(body: Body) -> Any:
        file = body.__code__.co_filename
        for size in sizes:
            _bodies.setdefault((file, size), []).append(body.__name__)

        @pytest.mark.parametrize("ranks", sizes)
        def test(ranks: int) -> None:
            need_torch()
            output = _all_of(file, ranks)
            assert output.count(f"{body.__name__} is done") == ranks, output

        return _named(test, body)

    return wrap


def alone(size: int, *, lost: int = 0) -> Callable[[Body], Any]:
    """The body may break the group; `lost` ranks end by a signal."""

    def wrap(body: Body) -> Any:
        def test() -> None:
            need_torch()
            output = launch(body.__code__.co_filename, size, [body.__name__])
            assert output.count(f"{body.__name__} is done") == size - lost, output

        return _named(test, body)

    return wrap


def launch(file: str, size: int, names: list[str]) -> str:
    """What all ranks printed."""
    done = subprocess.run([sys.executable, __file__, file, str(size), *names], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=PATIENCE + 30, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return done.stdout


@functools.cache
def _all_of(file: str, size: int) -> str:
    return launch(file, size, _bodies[file, size])


def _named(test: Any, body: Body) -> Any:
    test.body = body
    test.__name__, test.__doc__, test.__module__ = body.__name__, body.__doc__, body.__module__
    return test


# --- in the launch


def run_rank(rank: int, size: int, meeting: str, program: Any, names: list[str]) -> None:
    """One forked rank; does not return."""
    import torch
    import torch.distributed as dist

    import gangway.torch  # noqa: F401

    status = 1
    try:
        torch.set_num_threads(1)
        torch.manual_seed(1)
        dist.init_process_group("gangway", init_method=f"file://{meeting}", rank=rank, world_size=size,
                                timeout=timedelta(seconds=PATIENCE / 2))
        world = World()
        for name in names:
            getattr(program, name).body(world)
            print(f"{name} is done", flush=True)
        if dist.is_initialized():
            dist.destroy_process_group()
        status = 0
    except BaseException:
        print(f"rank {rank}: {traceback.format_exc()}", flush=True)
    finally:
        sys.stdout.flush()
        os._exit(status)


def main() -> None:
    import torch  # noqa: F401  # before the ranks are forked

    import gangway.torch  # noqa: F401

    file, size, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    spec = importlib.util.spec_from_file_location("program", file)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(size):
            child = os.fork()
            if child == 0:
                run_rank(rank, size, os.path.join(folder, "meeting"), program, names)
            children.append(child)
        limit = time.monotonic() + PATIENCE
        while children and time.monotonic() < limit:
            for child in list(children):
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    children.remove(child)
                    if os.WIFSIGNALED(status):
                        print(f"a rank was ended by signal {os.WTERMSIG(status)}", flush=True)
            time.sleep(0.02)
        for child in children:
            print(f"process {child} did not end in {PATIENCE} s", flush=True)
            os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    sys.modules["torch_ranks"] = sys.modules["__main__"]
    sys.path.insert(0, str(Path(__file__).parent))
    main()
