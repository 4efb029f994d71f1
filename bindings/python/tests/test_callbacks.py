"""A callback's own exception: itself on its rank; on the others the abort that the library makes of it, to the letter."""

import re
import sys

import numpy as np
import pytest
from ranks import PATIENCE, launch

import gangway as gw


class Failing:
    """y = x, or fails in one phase on the last rank."""

    def __init__(self, gangs, phase):
        self.gangs, self.phase = gangs, phase

    def shapes(self, x):
        return [x]

    def forward(self, call):
        self._fail("forward")
        call.set_outputs(call.inputs[0])

    def backward_input(self, call):
        self._fail("backward_input")
        call.set_input_grads(call.output_grads[0])

    def _fail(self, phase):
        if phase == self.phase and self.gangs.rank == self.gangs.size - 1:
            raise KeyError("my own\nof two lines")


class FailingLoss(Failing):
    """A training root: {loss sum, weight}."""

    def shapes(self, x):
        return [((1,), "f64"), ((1,), "f64")]

    def forward(self, call):
        self._fail("forward")
        call.set_outputs(np.ones(1), np.ones(1))

    def backward_input(self, call):
        self._fail("backward_input")
        call.set_input_grads(np.zeros((1, 3)))


X = np.ones((1, 3), np.float32)


def manual(gangs, phase):
    model = gw.Sequential(gw.Linear(3, 3), gw.Custom(Failing(gangs, phase)), gw.Linear(3, 3)).parallelize(gangs)
    frame = gw.Frame(model)

    def call():
        model.forward(X, frame=frame)
        model.backward(X, frame=frame)

    return call, phase.partition("_")[0]


def step(gangs, phase):
    model = gw.Sequential(gw.Linear(3, 3), gw.Custom(FailingLoss(gangs, phase), outputs=2)).parallelize(gangs)
    opt = gw.SGD(model)
    return lambda: gw.train_step(model, opt, X, weight=1), "train_step"


@pytest.mark.parametrize("phase", ["forward", "backward_input"])
@pytest.mark.parametrize("way", ["manual", "step"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_callbacks_exception_is_itself_on_its_rank_and_an_abort_with_module_and_text_on_the_others(ranks, way, phase):
    assert launch(ranks, __file__, way, phase).count("said the same") == ranks


def check(gangs, way, phase):
    call, op = globals()[way](gangs, phase)
    failing = gangs.size - 1
    module = {"manual": "Failing", "step": "FailingLoss"}[way]
    reason = (f"{op}: rank {failing}: {module}: its {phase} callback returned 12 (CALLER): "
              "KeyError: 'my own\\nof two lines'")
    if gangs.rank == failing:
        with pytest.raises(KeyError) as caught:
            call()
        assert caught.value.args == ("my own\nof two lines",) and caught.traceback[-1].name == "_fail"
        said = (gw.CallerFailed, gw.Status.CALLER, reason, -1)
    else:
        said = (gw.Aborted, gw.Status.ABORTED, f"gang: aborted by rank {failing}: {reason}", failing)
        fails_as(call, *said)
    if gangs.size > 1:  # the gang is broken, and says why as long as it is asked
        fails_as(gangs.root.check, *said)
        fails_as(gangs.root.barrier, *said)
    else:
        gangs.root.check()
    print("said the same", flush=True)


class Picky(Failing):
    def accepts(self, dtype):
        self._fail("accepts")
        return True


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_an_exception_of_accepts_is_itself_on_its_rank_and_a_refusal_with_its_text_on_the_others(ranks):
    output = launch(ranks, __file__, "accepts")
    assert output.count("said the same") == ranks and "Traceback" not in output, output


def check_accepts(gangs):
    failing = gangs.size - 1
    with pytest.raises((KeyError, gw.NotSupported)) as caught:
        gw.Custom(Picky(gangs, "accepts"), parameters={"w": (3,)}).parallelize(gangs, param_dtype="bf16")
    if gangs.rank == failing:
        assert type(caught.value) is KeyError and caught.traceback[-1].name == "_fail"
    else:
        assert type(caught.value) is gw.NotSupported
        assert caught.value.text.endswith("Picky: its accepts_dtype callback refused bf16: KeyError: 'my own\\nof two lines'")
    gangs.root.barrier()  # refused by all: nothing is broken
    gangs.root.check()
    with pytest.raises(gw.InvalidArgument):  # what was kept is not of the next call
        gw.Llama(dim=-1)
    print("said the same", flush=True)


def fails_as(call, kind, code, text, peer):
    with pytest.raises(gw.GangwayError) as caught:
        call()
    error = caught.value
    root = re.sub(r"^gang\.\w+:", "gang:", error.text)  # a gang of an axis says its name
    assert (type(error), error.code, root, error.peer) == (kind, code, text, peer) and str(error) == error.text


if __name__ == "__main__":
    if sys.argv[1:] == ["accepts"]:
        check_accepts(gw.init(timeout=PATIENCE / 2))
    else:
        check(gw.init(timeout=PATIENCE / 2), *sys.argv[1:])
