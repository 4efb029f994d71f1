"""Pipelines of stages in NumPy, PyTorch and JAX against the same stages on one rank; their refusals and failures."""

import importlib.util
import os
import signal

import numpy as np
import pytest
from ranks import DEVICE, over
from thread_ranks import together

import gangway as gw

WIDTH, MICROBATCHES = 5, 4


def weight(stage):
    return np.random.default_rng(stage).normal(size=(WIDTH, WIDTH)) / 2


def data(microbatch):
    """Microbatches of 2, 3, ... rows, and a number for each row that only the last stage reads."""
    random = np.random.default_rng(100 + microbatch)
    rows = 2 + microbatch
    return random.normal(size=(rows, WIDTH)), random.integers(-3, 4, rows)


class Stages:
    """y = tanh(x w) on each stage, the numbers beside it; the loss is half the sum of numbers * y^2."""

    def __init__(self, stages, last):
        self.w = {s: weight(s) for s in stages}
        self.dw = {s: np.zeros((WIDTH, WIDTH)) for s in stages}
        self.last, self.loss, self.kept = last, 0.0, {}

    def forward(self, s, m, x, numbers):
        y = np.tanh(x @ self.w[s])
        self.kept[s, m] = [x, y, None]
        if s == self.last:
            self.loss += 0.5 * float((numbers[:, None] * y * y).sum())
            self.kept[s, m][2] = numbers[:, None] * y
        return y

    def input_gradient(self, s, m, dy):
        x, y, seed = self.kept[s, m]
        self.kept[s, m][2] = dz = (seed if dy is None else dy) * (1 - y * y)
        return dz @ self.w[s].T

    def weight_gradient(self, s, m):
        x, _, dz = self.kept.pop((s, m))
        self.dw[s] += x.T @ dz

    def compute(self, action):
        s, m, kind = action.stage, action.microbatch, action.kind
        if kind is gw.ActionKind.FORWARD:
            x, numbers = data(m) if action.first_stage else action.inputs
            y = self.forward(s, m, x, numbers)
            return None if action.last_stage else (y, numbers)
        dx = None
        if kind in (gw.ActionKind.BACKWARD, gw.ActionKind.INPUT_GRADIENT):
            assert action.last_stage or action.inputs[1] is None  # numbers have no gradient
            dx = self.input_gradient(s, m, None if action.last_stage else action.inputs[0])
        if kind in (gw.ActionKind.BACKWARD, gw.ActionKind.WEIGHT_GRADIENT):
            self.weight_gradient(s, m)
        return None if dx is None or action.first_stage else (dx, None)


def alone(stages):
    """All stages on one rank, microbatch after microbatch."""
    model = Stages(range(stages), stages - 1)
    for m in range(MICROBATCHES):
        x, numbers = data(m)
        for s in range(stages):
            x = model.forward(s, m, x, numbers)
        dy = None
        for s in reversed(range(stages)):
            dy = model.input_gradient(s, m, dy)
            model.weight_gradient(s, m)
    return model


SCHEDULES = [("1f1b", 1, 1), ("1f1b", 2, 1), ("gpipe", 4, 1), ("1f1b", 4, 1), ("interleaved-1f1b", 2, 2), ("zb-h1", 4, 1),
             ("zbv", 2, 2), ("zbv", 4, 2), ("dualpipev", 2, 2)]


@pytest.mark.parametrize("schedule, ranks, per_rank", SCHEDULES)
def test_a_pass_equals_one_rank(schedule, ranks, per_rank):
    whole = alone(ranks * per_rank)

    def body(gang):
        with gw.Pipeline(gang, schedule=schedule, microbatches=MICROBATCHES) as pipe:
            assert (pipe.stages, pipe.microbatches, len(pipe.local_stages)) == (ranks * per_rank, MICROBATCHES, per_rank)
            own = Stages(pipe.local_stages, pipe.stages - 1)
            for action in pipe:
                found = own.compute(action)
                pipe.done(*([] if found is None else found))
            assert own.kept == {}
            assert gang.all_sum(own.loss) == pytest.approx(whole.loss, rel=1e-10)
            again = Stages(pipe.local_stages, pipe.stages - 1)
            pipe.run(again.compute)  # the same by a function
            for s in pipe.local_stages:
                np.testing.assert_allclose(own.dw[s], whole.dw[s], rtol=1e-10, atol=1e-12)
                np.testing.assert_array_equal(again.dw[s], own.dw[s])
            pipe.training = False
            last = Stages(pipe.local_stages, pipe.stages - 1)
            kinds = {action.kind for action in pipe if pipe.done(*(last.compute(action) or ())) is None}
            assert kinds == {gw.ActionKind.FORWARD}
            assert gang.all_sum(last.loss) == pytest.approx(whole.loss, rel=1e-10)

    together(ranks, body)


def test_actions_say_what_they_are():
    def body(gang):
        pipe = gw.Pipeline(gang, schedule="zbv", microbatches=4, most_unsharded=1)
        stages = ((0, 3), (1, 2))[gang.rank]
        assert repr(pipe) == (f"<Pipeline zbv: 4 stages, 4 microbatches; rank {gang.rank} has {stages[0]}, {stages[1]}>")
        assert [pipe.stage_rank(s) for s in range(4)] == [0, 1, 1, 0] and pipe.local_stages == stages
        own, texts, unsharded, reduced = Stages(stages, 3), [], set(), []
        for action in pipe:
            texts.append(repr(action))
            assert action.training and action.first_stage == (action.stage == 0) and action.last_stage == (action.stage == 3)
            if action.kind is gw.ActionKind.UNSHARD:
                unsharded.add(action.stage)
            elif action.kind is gw.ActionKind.RESHARD:
                unsharded.remove(action.stage)
            elif action.kind is gw.ActionKind.REDUCE_GRAD:
                reduced.append(action.stage)
            if action.microbatch is None:
                pipe.done()
                continue
            assert action.stage in unsharded or action.kind is gw.ActionKind.WEIGHT_GRADIENT
            pipe.done(*(own.compute(action) or ()))
        assert unsharded == set() and sorted(reduced) == list(stages)
        wanted = ("<Action FORWARD: stage 0, microbatch 0>", "<Action FORWARD: stage 1, microbatch 0, inputs [2, 5], [2]>")
        assert wanted[gang.rank] in texts
        assert gang.rank == 0 or "<Action INPUT_GRADIENT: stage 2, microbatch 0, inputs [2, 5], None>" in texts
        assert f"<Action UNSHARD: stage {stages[0]}>" in texts
        pipe.release()
        assert repr(pipe) == "<Pipeline: released>"

    together(2, body)


def test_inputs_may_be_kept_for_ever():
    def body(gang):
        kept = []
        with gw.Pipeline(gang, microbatches=2) as pipe:
            for step in range(4):
                def compute(action):
                    if action.kind is gw.ActionKind.FORWARD and action.first_stage:
                        return np.full(1000, 2.0 * step + action.microbatch)
                    if action.kind is gw.ActionKind.FORWARD:
                        kept.append(action.inputs[0])
                    return None if action.last_stage == (action.kind is gw.ActionKind.FORWARD) else np.zeros(1000)

                pipe.run(compute)
        assert [x[0] for x in kept] == (list(range(8)) if gang.rank else []) and all((x == x[0]).all() for x in kept)

    together(2, body)


@pytest.mark.parametrize("kind", ["numpy", "torch", "jax"])
def test_inputs_are_of_the_wanted_framework(kind):
    if importlib.util.find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed")
    if kind == "jax" and DEVICE != "cpu":
        pytest.skip("the installed JAX is for CPUs: it knows no memory of a GPU")
    module = importlib.import_module("jax.numpy" if kind == "jax" else kind)

    def body(gang):
        pipe = gw.Pipeline(gang, microbatches=1, kind=kind)
        seen = []

        def compute(action):
            seen.extend(action.inputs)
            return None if action.last_stage == (action.kind is gw.ActionKind.FORWARD) else module.ones(3)

        pipe.run(compute)
        assert len(seen) == 1 and gw.arrays.kind_of(seen[0]) == kind and float(seen[0].sum()) == 3

    together(2, body)


def test_refusals_are_exceptions():
    def body(gang):
        for wrong, why in ((dict(schedule="fast", microbatches=2), '"fast" is unknown'), (dict(), "microbatches is 0"),
                           (dict(schedule_csv="0F0,0B0\n1B0,1F0\n"), "1B0"),
                           (dict(schedule="1f1b", schedule_csv="0F0,0B0\n1F0,1B0\n"), "schedule_csv is given, too"),
                           (dict(microbatches=2, stages_per_rank=3), "3 stages a rank; it takes 1")):
            with pytest.raises(gw.InvalidArgument, match=why):
                gw.Pipeline(gang, **wrong)
        with pytest.raises(gw.InvalidArgument, match='arrays of "pytorch" are unknown'):
            gw.Pipeline(gang, microbatches=2, kind="pytorch")
        with pytest.raises(gw.Mismatch):
            gw.Pipeline(gang, microbatches=2 + gang.rank)
        pipe = gw.Pipeline(gang, microbatches=1)
        with pytest.raises(gw.InvalidState, match="next comes before done"):
            pipe.done()
        with pytest.raises(gw.InvalidArgument, match=r"stage is 2, outside \[0, 2\)"):
            pipe.stage_rank(2)
        y = np.ones((2, 3))
        for action in pipe:
            with pytest.raises(gw.InvalidState, match="done comes before next"):
                pipe.next()
            with pytest.raises(gw.InvalidState, match="a pass is under way"):
                pipe.training = False
            if action.kind is gw.ActionKind.FORWARD and not action.last_stage:
                for wrong, why in (((), "at least one output"), ((y,) * 9, "the most is 8"), ((y, None), "output 1 is absent"),
                                   ((3,), r"outputs\[0\] is a int, not an array")):
                    with pytest.raises((gw.InvalidArgument, TypeError), match=why):
                        pipe.done(*wrong)
                pipe.done(y)
            elif action.kind is gw.ActionKind.BACKWARD and not action.first_stage:
                for wrong, why in (((), "0 gradients for 1 inputs"), ((None,), "is absent; zeros are given as such"),
                                   ((y.T.copy(),), r"input 0 is .*\[3, 2\].*\[2, 3\]"), ((y.astype("f4"),), "f32")):
                    with pytest.raises(gw.InvalidArgument, match=why):
                        pipe.done(*wrong)
                pipe.done(y)  # the action was still to be done
            else:
                pipe.done()
        with pytest.raises(TypeError, match="gang is a Pipeline, not a Gang"):
            gw.Pipeline(pipe, microbatches=1)

    together(2, body)


def test_a_rank_that_leaves_ends_the_pass_on_all_ranks():
    def body(gang):
        with pytest.raises(gw.Aborted if gang.rank else ZeroDivisionError, match="middle of a pass" if gang.rank else "by zero"):
            with gw.Pipeline(gang, microbatches=4) as pipe:
                own = Stages(pipe.local_stages, pipe.stages - 1)
                for action in pipe:
                    if gang.rank == 0 and action.microbatch == 1:
                        _ = 1 / 0
                    pipe.done(*(own.compute(action) or ()))
        assert gang.all_sum(1.0) == gang.size  # the caller's gang works on

    together(3, body)


@over(2, status=128 + signal.SIGKILL, says="PeerLost: peer 1")
def test_a_killed_rank_ends_the_pass(gangs):
    gang = gangs.root
    signal.signal(signal.SIGTERM, lambda *_: None)  # the launcher ends the other ranks
    pipe = gw.Pipeline(gang, schedule="zb-h1", microbatches=4)
    own = Stages(pipe.local_stages, pipe.stages - 1)
    with pytest.raises(gw.PeerLost, match="rank 1 .*signal 9") as caught:
        for action in pipe:
            if gang.rank == 1 and action.microbatch == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            pipe.done(*(own.compute(action) or ()))
    print(f"PeerLost: peer {caught.value.peer}", flush=True)
    os._exit(0)
