"""Ranks that are threads of the test's process: together(4, body) runs body(gang) on each."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable

import gangway as gw

PATIENCE = 60  # seconds until a wait fails


def together(count: int, body: Callable[[gw.Gang], Any]) -> list[Any]:
    """What the body gave, by rank; a rank that fails breaks the gang, and its exception comes out."""
    found: list[Any] = [None] * count
    failures: list[tuple[int, BaseException]] = []

    def run(gang: gw.Gang) -> None:
        try:
            found[gang.rank] = body(gang)
        except BaseException as error:
            failures.append((gang.rank, error))
            gang.abort(f"rank {gang.rank} failed: {error}")

    gangs = gw.Gang.create_threads(count, timeout=PATIENCE, threads=1, device=os.environ.get("GANGWAY_TEST_DEVICE", "cpu"))
    threads = [threading.Thread(target=run, args=(gang,)) for gang in gangs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0][1]
    return found
