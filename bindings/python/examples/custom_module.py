"""Own compute as a module: a regression, in NumPy, sharded and trained like a built-in layer.

    python -m gangway.run -n 2 python custom_module.py
"""

import numpy as np

import gangway as gw

FEATURES, ROWS = 8, 64
TRUTH = np.float32(0.1) * np.arange(FEATURES, dtype=np.float32)


class Regression:
    """y = x w. Input: x [ROWS, FEATURES], data without gradient; outputs: loss sum [1], weight [1]."""

    def shapes(self, x):
        return [((1,), "f64"), ((1,), "f64")]

    def forward(self, call):
        error = call.inputs[0] @ (call.parameters["w"] - TRUTH)
        loss, weight = call.outputs
        loss[0], weight[0] = 0.5 * np.square(error, dtype=np.float64).sum(), ROWS

    def backward_input(self, call):
        x = call.inputs[0]
        error = x @ (call.parameters["w"] - TRUTH)
        call.parameter_grads["w"] += np.float32(call.loss_seed) * (error @ x)
        for dx in call.input_grads:
            if dx is not None:
                dx[...] = 0


with gw.init() as gangs:
    model = gw.Custom(Regression(), parameters={"w": (FEATURES,)}, outputs=2).parallelize(gangs)
    opt = gw.AdamW(model, lr=0.05)
    shard = gangs.data_shard[0]
    random = np.random.default_rng(7 + shard)
    for step in range(1, 101):
        x = random.random((ROWS, FEATURES), np.float32) - np.float32(0.5)
        result = gw.train_step(model, opt, x, weight=ROWS)
        if shard == 0 and step % 20 == 0:
            print(f"step {step}  loss {result.loss:.5f}")
    assert result.loss < 0.01
