"""Metrics: the numbers of a training run, in files, as a picture, and in sinks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Protocol, Sequence, Union

from . import _low as c
from . import low
from .module import Module
from .structs import PathLike, fields_of, handle_of, path_or_none, struct, text
from .train import StepResult


@dataclass(frozen=True)
class MetricsRow:
    """The numbers of the steps since the row before; equal on every rank. The fields in seconds are sums over these steps; loss,
    grad_norm, lr and loss_scale are those of the last one. What is absent is NaN.

    step, tokens, samples: of the run so far, skipped steps included, over all data ranks.
    validation_loss: of the last log_evaluation() since the row before.
    tokens_per_second, mfu: over `seconds`. mfu is the model FLOPs utilization, NaN where the sequence is not given.
    seconds: in steps. wait_seconds: of them in collectives, the mean of all ranks.
    slowest_rank: waited least, so that the others waited for it: slowest_rank_seconds more than that rank, on average.
    memory: bytes of the model and its optimizers on the rank that has most. memory_peak: the most so far.
    skipped: steps that changed nothing."""

    step: int
    tokens: int
    samples: int
    loss: float
    validation_loss: float
    grad_norm: float
    lr: float
    loss_scale: float
    tokens_per_second: float
    mfu: float
    seconds: float
    data_seconds: float
    checkpoint_seconds: float
    evaluate_seconds: float
    wait_seconds: float
    slowest_rank: int
    slowest_rank_seconds: float
    memory: int
    memory_peak: int
    skipped: int

    def present(self) -> dict[str, float]:
        """The fields that are not NaN, by name: what sinks get."""
        return {name: value for name, value in vars(self).items() if not math.isnan(value)}


class Logger(Protocol):
    """What takes rows: a run of Weights & Biases, for example."""

    def log(self, row: dict[str, Any]) -> Any:
        """One row."""


Sink = Union[Logger, Callable[[dict[str, float]], Any]]


class Metrics:
    """Adds up the results of steps, and writes a row of them every `every` steps:

        metrics = gw.Metrics(model, json_lines="run/metrics.jsonl", sinks=[gw.TensorBoard("run/tensorboard"), print])
        ...
        metrics.log(result, samples=512, data_seconds=batch.data_seconds)

    Collective over the gangs of the model, which it keeps alive.

    json_lines, csv, svg: files that rank 0 writes; svg is a picture of the losses, drawn by flush(). A file that is there is
    continued. A line of a step that comes again is cut.
    sequence: tokens of a row of the batch, for mfu. peak_flops: of one rank, in FLOP/s; 0: measured by a short product.
    sinks: each is called on rank 0 with a dict of the row's numbers, or has a method log that takes it. What a sink raises comes
    out of log() there."""

    def __init__(
        self, model: Module, *, json_lines: PathLike | None = None, csv: PathLike | None = None,
        svg: PathLike | None = None,
        every: int = 1, sequence: int = 0, peak_flops: float = 0.0, sinks: Sequence[Sink] = (),
    ) -> None:
        self._sinks = [_taker(sink, f"sinks[{i}]") for i, sink in enumerate(sinks)]
        files = {name: path_or_none(path, name) for name, path in (("json_lines", json_lines), ("csv", csv), ("svg", svg))}
        self._h = c.gw_metrics_create(handle_of(model, Module, "model"), struct(
            "gw_metrics_options", every=every, sequence=sequence, peak_flops=peak_flops, **files))
        if model._mesh is not None and model._mesh.rank != 0:
            self._sinks = []
        self._rows = 0

    def __repr__(self) -> str:
        return f"<Metrics: {'released' if self._h is c.RELEASED else self.position()}>"

    def log(self, result: StepResult, *, samples: int = 0, data_seconds: float = 0.0,
            checkpoint_seconds: float = 0.0) -> MetricsRow | None:
        """Collective. Adds the result of a step; the new row, if the step completes one.

        samples: rows of the global batch. data_seconds: for which the step waited for its batch. checkpoint_seconds: for which
        saves stopped training since the step before."""
        if not isinstance(result, StepResult):
            raise TypeError(f"result is a {type(result).__name__}, not a StepResult")
        c.gw_metrics_log(self._h, struct("gw_step_result", **vars(result)), struct(
            "gw_metrics_step", samples=samples, data_seconds=data_seconds, checkpoint_seconds=checkpoint_seconds))
        return self._fresh()

    def log_evaluation(self, loss: float, seconds: float = 0.0) -> None:
        """Local. Adds the mean loss of an evaluation and its duration to the next row."""
        c.gw_metrics_log_evaluation(self._h, loss, seconds)

    def flush(self) -> MetricsRow | None:
        """Collective, at each checkpoint and at the end. Completes the row that is not full yet, and gives it; draws the
        picture."""
        c.gw_metrics_flush(self._h)
        return self._fresh()

    def position(self) -> str:
        """The place in the run as JSON. A checkpoint takes it: run.save(..., texts={"metrics": metrics.position()})."""
        return text(c.gw_metrics_position, self._h)

    def restore(self, position: str) -> None:
        """Collective. Continues at such a place: metrics.restore(run.text("metrics")). Lines of later steps are cut."""
        c.gw_metrics_restore(self._h, position)

    def release(self) -> None:
        """Drops the handle now."""
        self._h = c.RELEASED

    def _fresh(self) -> MetricsRow | None:
        """The newest row, if it was not seen yet; sinks get it."""
        raw = low.gw_metrics_row()
        rows = c.gw_metrics_latest(self._h, raw)
        if rows == self._rows:
            return None
        self._rows = rows
        row = MetricsRow(**{name: getattr(raw, name) for name in fields_of(raw)})
        for take in self._sinks:
            take(row.present())
        return row


def _taker(sink: Any, name: str) -> Callable[[dict[str, float]], Any]:
    taker = getattr(sink, "log", sink)
    if not callable(taker):
        raise TypeError(f"{name} is a {type(sink).__name__}, which is neither callable nor has a method log")
    return taker  # type: ignore[no-any-return]
