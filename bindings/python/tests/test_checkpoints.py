"""Checkpoints of a run: restored on any mesh, with data, notes and what the caller adds."""

import numpy as np
import pytest
from ranks import together
from test_models import folder

import gangway as gw

SMALL = dict(vocab=22, dim=8, layers=1, heads=2, ffn=16)


class Data:
    """Batches by number; knows where it is."""

    def __init__(self):
        self.batches_taken = 0

    def next(self, gangs):
        index, parts = gangs.data_shard
        self.batches_taken += 1
        every = np.random.default_rng(self.batches_taken).integers(0, 22, (8, 6))
        return every[8 * index // parts : 8 * (index + 1) // parts].copy()

    def position(self):
        return f"batch {self.batches_taken}"

    def restore(self, position):
        self.batches_taken = int(position.removeprefix("batch "))


def begin(gangs, seed, **options):
    model = gw.Llama(**SMALL).parallelize(gangs, seed=seed)
    return model, gw.AdamW(model, **{"lr": 1e-2, **options}), Data()


def train(gangs, model, opt, data, steps):
    losses = []
    for _ in range(steps):
        batch = data.next(gangs)
        losses.append(gw.train_step(model, opt, batch, max_grad_norm=1.0).loss)
    return losses


@together(1, 2)
def test_a_restored_run_has_the_losses_of_the_undisturbed_one(gangs):
    path = folder(gangs)
    model, opt, data = begin(gangs, 1)
    run = gw.Checkpoints(path, gangs=gangs, every=3)
    assert run.restore(model, opt, data) is None
    train(gangs, model, opt, data, 3)
    assert run.due(data.batches_taken) and not run.due(2)
    run.save(model, opt, data, tokens=144, user={"note": "three steps", "losses": [1.5, 2]})
    wanted = train(gangs, model, opt, data, 3)
    run.wait()
    assert run.buffer_bytes > 0
    run.release()

    model, opt, data = begin(gangs, 2)
    run = gw.Checkpoints(path, gangs=gangs)
    state = run.restore(model, opt, data)
    assert (state.step, state.tokens, state.user) == (3, 144, {"note": "three steps", "losses": [1.5, 2]})
    assert state.notes == ("seed: 1 in the checkpoint, 2 now",)
    assert opt.steps == 3 and data.batches_taken == 3
    assert train(gangs, model, opt, data, 3) == wanted


@together(1, 2)
def test_several_models_are_saved_by_name_and_differences_are_noted(gangs):
    path = folder(gangs)
    model, opt, _ = begin(gangs, 1)
    teacher = gw.Llama(**SMALL).parallelize(gangs, seed=5)
    run = gw.Checkpoints(path, gangs=gangs, synchronous=True, model_dtype="bf16")
    run.save({"": model, "teacher": teacher}, {"": opt}, step=4, texts={"metrics": "line 9"})
    assert run.buffer_bytes == 0
    names = sorted(p.name for p in (path / "step-00000004").iterdir())
    assert names == ["config.json", "model.safetensors", "optimizer.safetensors", "state.json", "teacher"]

    model, opt, _ = begin(gangs, 1, lr=0.5)
    other = gw.Llama(**SMALL).parallelize(gangs, seed=6)
    state = run.restore({"": model, "teacher": other}, {"": opt}, step=4)
    assert state.user is None and run.text("metrics") == "line 9"
    assert state.notes == ("lr: 0.01 in the checkpoint, 0.5 now", "teacher: seed: 5 in the checkpoint, 6 now")
    for name, value in teacher.state_dict().items():
        np.testing.assert_allclose(other.state_dict()[name], value, rtol=2**-8)
    gw.from_pretrained(str(path / "step-00000004"), gangs=gangs)


@together(1, 2)
def test_refusals_name_what_is_wrong(gangs):
    path = folder(gangs)
    model, opt, data = begin(gangs, 1)
    with pytest.raises(gw.InvalidArgument, match="keep = -1 is below 0"):
        gw.Checkpoints(path, gangs=gangs, keep=-1)
    run = gw.Checkpoints(path, gangs=gangs)
    with pytest.raises(gw.InvalidState, match="nothing|no checkpoint was restored"):
        run.text("data")
    with pytest.raises(gw.NotFound, match="there is no complete checkpoint of step 7"):
        run.restore(model, opt, step=7)
    with pytest.raises(gw.InvalidArgument, match='a part\'s name is "a/b"'):
        run.save({"a/b": model}, step=1)
    with pytest.raises(ValueError, match="has no model of this name"):
        run.save({"a": model}, {"b": opt}, step=1)
    run.save(model, opt, step=1)
    run.wait()
    with pytest.raises(gw.InvalidArgument, match="has the states of optimizer adamw, this one is lion"):
        run.restore(model, gw.Lion(model))
    with pytest.raises(gw.NotFound, match='no text "data"'):
        run.restore(model, opt, data)


@together(1)
def test_an_optimizer_continues_by_hand(gangs):
    model, opt, data = begin(gangs, 1, schedule="linear", total_steps=10)
    train(gangs, model, opt, data, 2)
    again = gw.AdamW(model, lr=1e-2, schedule="linear", total_steps=10)
    again.steps = opt.steps
    assert again.lr == opt.lr and again.base_lr == 1e-2 and again.finite_steps == 0
    again.restore_loss_scale(8.0, 0)
    assert again.loss_scale == 8
    with pytest.raises(gw.InvalidArgument, match="steps = -1 is below 0"):
        again.steps = -1
