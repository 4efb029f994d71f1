"""Own compute as a module: a regression y = tanh(x W^T + b), in NumPy, sharded and trained like a built-in layer.

    python -m gangway.run -n 2 python custom_module.py
"""

import numpy as np

import gangway as gw


class Regression:
    """inputs: x [rows, 8], y [rows, 3]; outputs: loss sum [1], weight [1]."""

    def shapes(self, *inputs):
        return [((1,), "f64"), ((1,), "f64")]

    def forward(self, call):
        (x, y), p = call.inputs, call.parameters
        t = np.tanh(x @ p["weight"].T + p["bias"])
        loss, weight = call.outputs
        loss[0], weight[0] = 0.5 * np.square(t - y, dtype=np.float64).sum(), len(x)
        call.state = (t - y) * (1 - t * t)  # d loss / d (x W^T + b), kept for backward

    def backward_input(self, call):
        for grad in call.input_grads:
            if grad is not None:  # data: nobody needs its gradient, but it may be asked for
                grad[...] = 0

    def backward_weight(self, call):
        error = call.state * np.float32(call.loss_seed)  # 1/N: the mean over all ranks
        grads = call.parameter_grads
        grads["weight"] += error.T @ call.inputs[0]
        grads["bias"] += error.sum(0)

    def accepts(self, dtype):
        return dtype == gw.DType.F32  # other precisions are refused when the model is parallelised


with gw.init() as gangs:
    parameters = {"weight": (3, 8), "bias": gw.Spec((3,), init="zeros")}
    model = gw.Custom(Regression(), parameters=parameters, inputs=2, outputs=2).parallelize(gangs)
    opt = gw.AdamW(model, lr=0.05)
    random = np.random.default_rng(7 + gangs.data_shard[0])
    for step in range(1, 101):
        x = random.random((64, 8), np.float32) - 0.5
        y = np.tanh(x.sum(1, keepdims=True) * np.float32([1, -1, 1]))
        result = gw.train_step(model, opt, (x, y), weight=len(x))
        if gangs.rank == 0 and step % 20 == 0:
            print(f"step {step}  loss {result.loss:.5f}")
    assert result.loss < 0.01
