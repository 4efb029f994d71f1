"""Optimizers and schedules of functions of one's own, and averages of the parameters."""

import numpy as np
import pytest
from ranks import together

import gangway as gw


class SquaredError:
    """A training root of one parameter."""

    def forward(self, call):
        (x,), w = call.inputs, call.parameters["w"]
        loss, weight = call.outputs
        loss[0], weight[0] = np.square(x @ w - 1).sum() / 2, len(x)

    def backward_input(self, call):
        (x,), w = call.inputs, call.parameters["w"]
        call.parameter_grads["w"] += np.float32(call.loss_scale) * ((x @ w - 1) @ x)


@together(1, 2, not_on_gpus="NumPy cannot compute in a callback on a GPU's memory")
def test_an_own_optimizer_steps_as_sgd_does(gangs):
    seen = []

    def momentum(call):
        call.gradient[...] += call.weight_decay * call.value
        call.states["velocity"][...] = call.gradient + (0.5 * call.states["velocity"] if call.step > 1 else 0)
        call.value[...] -= np.float32(call.lr) * call.states["velocity"]
        seen.append(call.name)

    trained = []
    for own in (True, False):
        model = gw.Custom(SquaredError(), parameters={"w": np.zeros(2, np.float32)}, outputs=2).parallelize(gangs)
        options = dict(lr=0.25, weight_decay=0.1, ema_decay=0.5)
        opt = gw.CustomOptimizer(model, momentum, states=["velocity"], **options) if own else gw.SGD(model, momentum=0.5, **options)
        opt.set_schedule(lambda step: 1 / step)
        x = np.float32([[1, 0], [0, 1], [1, 0], [0, 1]])
        for _ in range(3):
            gw.train_step(model, opt, x, weight=4)
        with opt.averaged():
            averages = model["w"].gather().copy()
        trained.append((model["w"].gather().copy(), averages))
        assert opt.lr == 0.0625 and not np.array_equal(*trained[-1])
    assert np.allclose(trained[0], trained[1], atol=1e-6) and set(seen) <= {"w"}


def test_what_an_own_optimizer_raises_ends_the_step():
    model = gw.Custom(SquaredError(), parameters={"w": np.zeros(2, np.float32)}, outputs=2).parallelize()
    kept = []
    for step, error in ((lambda call: 1 / 0, ZeroDivisionError), (lambda call: kept.append(call.value), gw.InvalidState)):
        opt = gw.CustomOptimizer(model, step, name="mine")
        with pytest.raises(error):
            gw.train_step(model, opt, np.ones((4, 2), np.float32), weight=4)
