"""Tests whose body runs on every rank of a gang: @over(1, 2, 4) starts gangrun once for each size; @together(1, 2, 4) once
for all such bodies of a file, which must leave the gang whole."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

HERE = Path(__file__).parent
DEVICE = os.environ.get("GANGWAY_TEST_DEVICE", "cpu")  # of the ranks; test.sh runs some files on the software GPU, too
GPUS = os.environ.get("GANGWAY_TEST_GPUS", "")  # the folder of the software GPU's modules
ALL = os.environ.get("GANGWAY_TEST_ALL", "") != ""  # what repeats a fact, too
PATIENCE = 600  # seconds until a launcher gives its ranks up, and half of them until a rank does its peers


def launch(ranks: int, *arguments: str, timeout: float = PATIENCE, status: int = 0, gpus: bool = False) -> str:
    """Runs a program over ranks; its output. Fails with it when the exit status is another. `gpus`: on software GPUs."""
    device = {"GANGWAY_MODULES": GPUS, "LD_LIBRARY_PATH": GPUS, "GANGWAY_TEST_DEVICE": "cuda"} if gpus else {}
    done = subprocess.run(
        [sys.executable, "-m", "gangway.run", "-n", str(ranks), "--timeout", str(timeout), sys.executable, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout + 30,
        env={**os.environ, "OMP_NUM_THREADS": "1", **device})
    assert done.returncode == status, f"exit status {done.returncode}\n{done.stdout}"
    return done.stdout


def over(*sizes: int, needs: str | None = None,
         status: int = 0, says: str = "") -> Callable[[Callable[..., None]], Any]:
    """The body gets the rank's gangs. `status`: of gangrun; `says`: what a rank must have printed."""

    def wrap(body: Callable[..., None]) -> Any:
        @pytest.mark.parametrize("ranks", sizes)
        def test(ranks: int) -> None:
            if needs is not None and importlib.util.find_spec(needs) is None:
                pytest.skip(f"{needs} is not installed")
            if needs is not None and DEVICE != "cpu":
                pytest.skip(f"the installed {needs} is for CPUs: it knows no memory of a GPU")
            output = launch(ranks, str(HERE / "ranks.py"), body.__code__.co_filename, body.__name__, status=status)
            print(output)
            assert says in output

        return _named(test, body)

    return wrap


_bodies: dict[tuple[str, int], list[str]] = {}


def together(*sizes: int, not_on_gpus: str = "", gpus: bool = False) -> Callable[[Callable[..., None]], Any]:
    """As over(); a body that fails takes those after it with it. `not_on_gpus`: why it cannot hold there; `gpus`: it holds on
    software GPUs alone."""

    def wrap(body: Callable[..., None]) -> Any:
        file = body.__code__.co_filename
        left_out = not_on_gpus != "" and DEVICE != "cpu"
        for size in () if left_out else sizes:
            _bodies.setdefault((file, size), []).append(body.__name__)

        @pytest.mark.parametrize("ranks", sizes)
        def test(ranks: int) -> None:
            if left_out:
                pytest.skip(not_on_gpus)
            if gpus and not Path(GPUS, "libgangway_cuda.so").exists():
                pytest.skip("the build has no software GPU")
            output = _all_of(file, ranks, gpus)
            assert output.count(f"{body.__name__} is done") == ranks, output

        return _named(test, body)

    return wrap


@functools.cache
def _all_of(file: str, ranks: int, gpus: bool) -> str:
    try:
        return launch(ranks, str(HERE / "ranks.py"), file, *_bodies[file, ranks], gpus=gpus)
    except AssertionError as error:
        return str(error)


def _named(test: Any, body: Callable[..., None]) -> Any:
    test.body = body
    test.__name__, test.__doc__, test.__module__ = body.__name__, body.__doc__, body.__module__
    return test


def main() -> None:
    import gangway as gw

    spec = importlib.util.spec_from_file_location("program", sys.argv[1])
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    gangs = gw.init(timeout=PATIENCE / 2, device=DEVICE)
    for name in sys.argv[2:]:
        getattr(program, name).body(gangs)
        print(f"{name} is done", flush=True)
    try:
        gangs.root.check()
    except gw.GangwayError:
        return  # the body broke it on purpose
    gangs.shutdown()


if __name__ == "__main__":
    sys.modules["ranks"] = sys.modules["__main__"]
    main()
