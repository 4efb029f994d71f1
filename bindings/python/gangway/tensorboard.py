"""TensorBoard as a sink of metrics, by its own package."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any, Mapping

from .structs import PathLike, path_of


class TensorBoard:
    """Writes each row of gw.Metrics into a folder that TensorBoard shows: Metrics(model, sinks=[TensorBoard("run/tensorboard")]).
    A run that continues from a checkpoint goes on in the same folder: TensorBoard then hides earlier values of its steps. Needs
    the package tensorboard (pip install tensorboard)."""

    def __init__(self, folder: PathLike) -> None:
        try:
            events = importlib.import_module("tensorboard.summary.writer.event_file_writer")
            self._event: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
            self._summary: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        except ImportError as error:
            raise ImportError(f"gangway.TensorBoard needs the package tensorboard (pip install tensorboard): {error}") from error
        self._folder, self._make = os.fsdecode(path_of(folder, "folder")), events.EventFileWriter
        self._writer: Any = None  # with the first row: only rank 0 gets rows

    def log(self, row: Mapping[str, float]) -> None:
        """One row: a value for each of its numbers, at its step."""
        step = int(row["step"])
        if self._writer is None:
            self._writer = self._make(self._folder)
            start = self._event.SessionLog(status=self._event.SessionLog.START)
            self._add(step, session_log=start)
        values = [self._summary.Summary.Value(tag=name, simple_value=value) for name, value in row.items() if name != "step"]
        self._add(step, summary=self._summary.Summary(value=values))
        self._writer.flush()

    def _add(self, step: int, **content: Any) -> None:
        self._writer.add_event(self._event.Event(step=step, wall_time=time.time(), **content))

    def close(self) -> None:
        """Closes the file; a further row begins another one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
