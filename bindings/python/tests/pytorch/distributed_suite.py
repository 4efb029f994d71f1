"""PyTorch's own tests of torch.distributed, which its wheel ships, over one backend or over several side by side.

    python distributed_suite.py [--ranks 4] [--only PATTERN...] [--json FILE] [gangway gloo]

Each test runs in forked processes. The tests name the backends that each is for; here every test that is for Gloo runs over
every backend that is given: the tests' module is loaded for Gloo, and only the process groups are another's. Prints one line
of counts for each backend, the tests that pass on one alone with the reason, and last "N passed, N failed, N skipped" of the
first backend, where a test counts as failed if Gloo passes it and the backend does not."""

from __future__ import annotations

import argparse
import fnmatch
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any

def tests_of(backend: str) -> Any:
    """PyTorch's class of tests, whose groups are of this backend where it asks for Gloo's by name."""
    os.environ["BACKEND"] = "gloo"  # what the tests' own conditions are read with
    if backend == "gangway":
        import gangway.torch  # noqa: F401
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed import distributed_test as module

    torch.set_num_threads(1)
    start = dist.init_process_group

    def start_over(*arguments: Any, **named: Any) -> None:
        start(*arguments, **{**named, "backend": backend})

    class Tests(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, *arguments: Any, **named: Any) -> None:
            dist.init_process_group = start_over  # in the forked rank
            super()._run(*arguments, **named)

    Tests.__qualname__ = Tests.__name__ = backend
    return Tests


class Outcomes(unittest.TestResult):
    """Writes one line of JSON for each test."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self._started = time.monotonic()

    def _note(self, test: Any, outcome: str, why: str = "") -> None:
        line = {"test": test.id().split(".")[-1], "outcome": outcome, "why": why,
                "seconds": round(time.monotonic() - self._started, 1)}
        print(json.dumps(line), file=self._stream, flush=True)

    def addSuccess(self, test: Any) -> None:
        self._note(test, "passed")

    def addSkip(self, test: Any, reason: str) -> None:
        self._note(test, "skipped", reason)

    def addFailure(self, test: Any, err: Any) -> None:
        self._note(test, "failed", str(err[1]))

    addError = addFailure


def run_one(backend: str, only: list[str], ranks: int, path: str) -> None:
    """In a process of its own: all tests of one backend."""
    os.environ.update(WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1", TEMP_DIR=tempfile.mkdtemp())
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], "barrier"))
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], "test_dir"))
    os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "120")
    logging.disable(logging.ERROR)
    tests = tests_of(backend)
    names = [n for n in unittest.TestLoader().getTestCaseNames(tests) if any(fnmatch.fnmatch(n, p) for p in only)]
    with open(path, "w") as stream:
        result = Outcomes(stream)
        for name in names:
            tests(name).run(result)


def last_line(why: str) -> str:
    """The error itself, out of tracebacks of several processes."""
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line.split(":")[0] or "Exception" in line.split(":")[0]]
    return (errors or lines or ["no reason given"])[-1][:300]


def collect(backend: str, only: list[str], ranks: int, limit: float) -> dict[str, dict[str, Any]]:
    """Outcomes by test. A backend whose run dies keeps what it had."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        command = [sys.executable, __file__, "--one", backend, "--only", *only, "--ranks", str(ranks), "--json", file.name]
        try:
            done = subprocess.run(command, timeout=limit, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode != 0:
                print(f"{backend}: its process ended with {done.returncode}: {done.stderr[-2000:]}", flush=True)
        except subprocess.TimeoutExpired:
            print(f"{backend}: stopped after {limit:.0f} s", flush=True)
        found = [json.loads(line) for line in file.read().splitlines() if line.endswith("}")]
    return {o["test"]: o for o in found}


def report(outcomes: dict[str, dict[str, dict[str, Any]]]) -> int:
    """Prints; the exit status."""
    for backend, found in outcomes.items():
        kinds = [o["outcome"] for o in found.values()]
        seconds = sum(o["seconds"] for o in found.values())
        print(f"{backend:10s} {len(kinds)} tests: {kinds.count('passed')} passed, {kinds.count('failed')} failed, "
              f"{kinds.count('skipped')} skipped, {seconds:.0f} s")
    first, *others = outcomes
    mine, lost = outcomes[first], []
    for other in others:
        for name, o in sorted(outcomes[other].items()):
            got = mine.get(name, {"outcome": "missing", "why": ""})
            if o["outcome"] == "passed" and got["outcome"] != "passed":
                lost.append(name)
                print(f"only {other}: {name}: {got['outcome']}: {last_line(got['why'])}")
            elif o["outcome"] != "passed" and got["outcome"] == "passed":
                print(f"only {first}: {name}: {other} {o['outcome']}: {last_line(o['why'])}")
    if not others:
        for name, o in sorted(mine.items()):
            if o["outcome"] == "failed":
                lost.append(name)
                print(f"failed: {name}: {last_line(o['why'])}")
    kinds = [o["outcome"] for o in mine.values()]
    skipped = len(kinds) - kinds.count("passed") - len(lost)
    print(f"{kinds.count('passed')} passed, {len(lost)} failed, {skipped} skipped")
    return 1 if lost else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", default=["gangway", "gloo"])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=["test_*"])
    parser.add_argument("--json", default="")
    parser.add_argument("--limit", type=float, default=3600, help="seconds for each backend")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        run_one(given.one, given.only, given.ranks, given.json)
        return 0
    outcomes = {b: collect(b, given.only, given.ranks, given.limit) for b in given.backends or ["gangway", "gloo"]}
    if given.json:
        with open(given.json, "w") as file:
            json.dump(outcomes, file, indent=1)
    return report(outcomes)


if __name__ == "__main__":
    sys.exit(main())
