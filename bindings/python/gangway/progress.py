"""A progress bar on rank 0, when tqdm is installed."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any, Iterable, TypeVar

T = TypeVar("T")


def progress(iterable: Iterable[T], *, rank: int | None = None, **options: Any) -> Iterable[T]:
    """The iterable, with tqdm's bar on rank 0 (the launcher's variables say which rank this is)."""
    if rank is None:
        rank = int(next((os.environ[v] for v in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
                         if v in os.environ), "0"))
    if rank != 0 or importlib.util.find_spec("tqdm") is None:
        return iterable
    bar: Iterable[T] = importlib.import_module("tqdm").tqdm(iterable, **options)
    return bar
