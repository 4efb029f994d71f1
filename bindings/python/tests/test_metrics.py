"""Metrics of a run: rows, files, sinks, a place to continue from; stopping on request; what a training would need."""

import json
import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from ranks import launch, together
from test_models import folder

import gangway as gw

SMALL = dict(vocab=22, dim=8, layers=1, heads=2, ffn=16)


class Log:
    """A sink like a run of Weights & Biases."""

    def __init__(self):
        self.rows = []

    def log(self, row):
        self.rows.append(row)


def begin(gangs):
    model = gw.Llama(**SMALL).parallelize(gangs, seed=1)
    return model, gw.AdamW(model, lr=1e-2)


def one_step(model, opt, **options):
    tokens = np.arange(12).reshape(2, 6)
    return gw.train_step(model, opt, tokens, max_grad_norm=1.0, **options)


@together(1, 2)
def test_every_nth_step_gives_a_row_to_the_caller_the_files_and_the_sinks(gangs):
    path, seen, log = folder(gangs), [], Log()
    model, opt = begin(gangs)
    metrics = gw.Metrics(model, json_lines=path / "m.jsonl", csv=path / "m.csv", svg=path / "loss.svg", every=2, sequence=6,
                         peak_flops=1e9, sinks=[seen.append, log])
    results = [one_step(model, opt) for _ in range(3)]
    assert metrics.log(results[0], samples=2, data_seconds=0.5) is None
    metrics.log_evaluation(1.25, 2.0)
    row = metrics.log(results[1], samples=2, data_seconds=0.25, checkpoint_seconds=1.0)
    assert (row.step, row.samples, row.tokens) == (2, 4, 2 * results[1].tokens) and results[1].tokens == 12 * gangs.size
    assert (row.loss, row.lr, row.validation_loss) == (results[1].loss, 1e-2, 1.25)
    assert (row.data_seconds, row.checkpoint_seconds, row.evaluate_seconds) == (0.75, 1.0, 2.0)
    assert row.mfu > 0 and row.memory > 0 and 0 <= row.slowest_rank < gangs.size and row.skipped == 0
    assert metrics.log(results[2]) is None
    last = metrics.flush()
    assert last.step == 3 and math.isnan(last.validation_loss) and "validation_loss" not in last.present()
    assert metrics.flush() is None
    assert gangs.root.all_gather_objects(row.step) == [2] * gangs.size
    if gangs.rank == 0:
        assert seen == log.rows == [row.present(), last.present()]
        assert [json.loads(line)["step"] for line in (path / "m.jsonl").read_text().splitlines()] == [2, 3]
        assert len((path / "m.csv").read_text().splitlines()) == 3 and "<svg" in (path / "loss.svg").read_text()
    else:
        assert seen == log.rows == []


@together(1, 2)
def test_a_place_in_a_checkpoint_continues_rows_and_files(gangs):
    path = folder(gangs)
    model, opt = begin(gangs)
    metrics = gw.Metrics(model, json_lines=path / "m.jsonl")
    run = gw.Checkpoints(path / "run", gangs=gangs, synchronous=True)
    for step in range(4):
        metrics.log(one_step(model, opt), samples=2)
        if step == 1:
            run.save(model, opt, texts={"metrics": metrics.position()})
    metrics = gw.Metrics(model, json_lines=path / "m.jsonl")
    assert run.restore(model, opt).step == 2
    metrics.restore(run.text("metrics"))
    row = metrics.log(one_step(model, opt), samples=2)
    assert (row.step, row.samples) == (3, 6) and '"step": 3' in repr(metrics)
    if gangs.rank == 0:
        assert [json.loads(line)["step"] for line in (path / "m.jsonl").read_text().splitlines()] == [1, 2, 3]
    with pytest.raises(gw.Corrupt, match="the position has no number"):
        metrics.restore("{}")
    metrics.release()
    assert repr(metrics) == "<Metrics: released>"


@together(1, 2)
def test_one_rank_stops_all_after_a_step(gangs):
    model, opt = begin(gangs)
    assert one_step(model, opt).stop is False
    result = one_step(model, opt, stop=gangs.rank == gangs.size - 1)
    assert result.stop is True and result.step == 2


@together(1, 2)
def test_refusals_of_metrics_name_what_is_wrong(gangs):
    model, opt = begin(gangs)
    with pytest.raises(gw.InvalidArgument, match="every = 0 is below 1"):
        gw.Metrics(model, every=0)
    with pytest.raises(TypeError, match=r"sinks\[1\] is a int"):
        gw.Metrics(model, sinks=[print, 3])
    with pytest.raises(TypeError, match="model is a AdamW"):
        gw.Metrics(opt)
    with pytest.raises(TypeError, match="result is a float"):
        gw.Metrics(model).log(3.0)
    with pytest.raises(OSError, match="no-such-folder"):
        gw.Metrics(model, csv="/no-such-folder/m.csv")


@together(1)
def test_an_optimizer_has_a_name(gangs):
    model, _ = begin(gangs)
    opt = gw.optimizer("adamw", model, lr=0.5, beta2=0.95, schedule=gw.Schedule.LINEAR, total_steps=10, moment_dtype="bf16")
    assert (opt.lr, opt.base_lr) == (gw.AdamW(model, lr=0.5, schedule="linear", total_steps=10).lr, 0.5)
    assert one_step(model, opt).step == 1
    gw.optimizer("sgd", model, momentum=0.9, nesterov=True)
    with pytest.raises(gw.InvalidArgument, match="adamw8bit"):
        gw.optimizer("adam", model)
    with pytest.raises(gw.InvalidArgument, match="momentum"):
        gw.optimizer("adamw", model, momentum=0.9)


def test_a_plan_gives_the_rank_with_the_most_memory():
    rank, alone = gw.plan_memory(SMALL, sequence=6, rows=2)
    assert rank == 0 and 0 < alone["master"] < alone["optimizer"]
    _, half = gw.plan_memory({**SMALL, "family": "llama"}, ranks=2, mesh={"dp_shard": 2}, parallel={"recompute": "full"},
                             sequence=6, rows=2, moment_dtype="bf16")
    assert half["master"] < alone["master"] and half["optimizer"] < alone["optimizer"] / 2
    with pytest.raises(TypeError, match="decoder has no option width; it has .*dim"):
        gw.plan_memory({"width": 3})
    with pytest.raises(TypeError, match="parallel has no option gangs; it has .*recompute"):
        gw.plan_memory(SMALL, parallel={"gangs": None})
    with pytest.raises(TypeError, match="mesh has no option dp"):
        gw.plan_memory(SMALL, mesh={"dp": 2})
    with pytest.raises(gw.InvalidArgument, match="ranks is 0, below 1"):
        gw.plan_memory(SMALL, ranks=0)


def test_the_run_of_the_readme_continues(tmp_path):
    text = (Path(__file__).parents[1] / "README.md").read_text()
    program = text.split("## A run\n")[1].split("```python\n")[1].split("```")[0]
    for large, little in (("2048", "16"), ("512", "4"), ("every=500", "every=2"), ("dim=256, layers=4", "dim=16, layers=1")):
        assert large in program
        program = program.replace(large, little)
    for name in ("web.bin", "code.bin"):
        np.arange(1000, dtype=np.uint16).astype(np.uint8).tofile(tmp_path / name.replace(".bin", ".u8"))
        program = program.replace(f'"{name}"', f'"{tmp_path / name.replace(".bin", ".u8")}"')
    program = program.replace('"run', f'"{tmp_path}/run')
    for ranks, steps in ((1, 4), (2, 7)):
        launch(ranks, "-c", program.replace("10_000", str(steps)).replace("warmup_steps=100", "warmup_steps=1"))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5, 6, 7]
    assert {p.name for p in (tmp_path / "run").glob("step-*")} == {f"step-0000000{step}" for step in (2, 4, 6)}


def test_tensorboard_shows_the_rows(tmp_path):
    if find_spec("tensorboard") is None:
        pytest.skip("tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps in ((1, 2, 3), (3, 4)):  # the second run continues before the end of the first
        board = gw.TensorBoard(tmp_path)
        for step in steps:
            board.log({"step": step, "loss": step / 8})
        board.close()
    read = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in read.Scalars("loss")] == [(s, s / 8) for s in (1, 2, 3, 4)]


def test_without_tensorboard_it_says_what_is_missing():
    code = "import sys; sys.modules['tensorboard'] = None; import gangway; gangway.TensorBoard('folder')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "needs the package tensorboard (pip install tensorboard)" in done.stderr
