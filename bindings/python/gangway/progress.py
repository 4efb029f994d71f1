"""A progress bar on rank 0, when tqdm is installed."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any, Iterable, TextIO, TypeVar

T = TypeVar("T")


class _Lines:
    """A file for a bar where no terminal is: a log is read by lines, so each state is one."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """A state, which tqdm writes over the one before."""
        state = text.strip()
        if state:
            self._file.write(f"{state}\n")

    def flush(self) -> None:
        """Now."""
        self._file.flush()


def progress(iterable: Iterable[T], *, rank: int | None = None, **options: Any) -> Iterable[T]:
    """The iterable, with tqdm's bar on rank 0 (the launcher's variables say which rank this is): on a terminal it moves,
    elsewhere it is a line every ten seconds. Options are tqdm's."""
    if rank is None:
        rank = int(next((os.environ[v] for v in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
                         if v in os.environ), "0"))
    if rank != 0 or importlib.util.find_spec("tqdm") is None:
        return iterable
    file = options.pop("file", None) or sys.stderr
    if not file.isatty():
        file, options = _Lines(file), {"mininterval": 10.0, "ascii": True, **options}
    bar: Iterable[T] = importlib.import_module("tqdm").tqdm(iterable, file=file, **options)
    return bar
