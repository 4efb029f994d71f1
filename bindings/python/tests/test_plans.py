"""Tensor and context parallelism: plans as text and as rows, of the caller and of a custom module, call by call."""

import numpy as np
import pytest
from ranks import together

import gangway as gw

TEXT = "0 -> colwise  # by its outputs\n1 -> rowwise\n"
ROWS = [gw.PlanRow("0", "colwise"), gw.PlanRow("1", gw.Style.ROWWISE, input=gw.Shard(-1), output=gw.Replicate())]


class Two:
    """y = b(a(x)) by its children."""

    def shapes(self, x):
        return [x]

    def forward(self, call):
        (middle,) = call.forward("0", call.inputs[0])
        call.outputs[0][...] = call.forward("1", middle)[0]

    def backward_input(self, call):
        (middle,) = call.backward("1", call.output_grads[0])
        (dx,) = call.backward("0", middle)
        if call.input_grads[0] is not None:
            call.input_grads[0][...] = dx


def linears():
    return gw.Linear(6, 8), gw.Linear(8, 6)


def two(plan):
    a, b = linears()
    return gw.Custom(Two(), children={"0": a, "1": b}, parallel_plan=plan)


def trained(model):
    opt = gw.SGD(model, lr=0.1)
    for step in range(3):
        frame = gw.Frame(model)
        x = np.sin(np.arange(24.0) + step).reshape(4, 1, 6)
        (y,) = model.forward(x, frame=frame)
        model.backward(y - x, frame=frame)
        opt.step()
    return model.state_dict()


@together(2, 4, not_on_gpus="NumPy cannot compute in a callback on a GPU's memory")
def test_pieces_rows_and_own_plans_train_like_parallelize(root_gangs):
    gangs = gw.Gangs.create_parallel(root_gangs.root, tp=2)
    wanted = trained(gw.Sequential(*linears()).parallelize(gangs, plan=TEXT, seed=5, master_dtype="f64"))
    assert gw.Sequential(*linears()).parallelize(gangs, plan=TEXT)["0.weight"].layout.startswith("tp: Shard(0)")

    def by_pieces(model, plan=None):
        return model.tensor_parallel(gangs, plan=plan).recompute().fully_shard("0").fully_shard().materialize(
            seed=5, master_dtype="f64")

    for model in (gw.Sequential(*linears()).parallelize(gangs, plan=ROWS, seed=5, master_dtype="f64"),
                  two(TEXT).parallelize(gangs, seed=5, master_dtype="f64"), by_pieces(two(TEXT)),
                  by_pieces(gw.Sequential(*linears()), TEXT), by_pieces(gw.Sequential(*linears()), ROWS)):
        found = trained(model)
        assert list(found) == list(wanted)
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, name)
    assert two(TEXT).parallelize(gangs, plan="1 -> rowwise, output whole")["1.weight"].layout.startswith("tp: Shard(1)")


class BiasApart(Two):
    """As Two, with a second layer that hands out its bias."""

    def forward(self, call):
        (middle,) = call.forward("0", call.inputs[0])
        y, bias = call.forward("1", middle)
        call.outputs[0][...] = y + bias

    def backward_input(self, call):
        dy = call.output_grads[0]
        (middle,) = call.backward("1", dy, dy.reshape(-1, dy.shape[-1]).sum(0))
        (dx,) = call.backward("0", middle)
        if call.input_grads[0] is not None:
            call.input_grads[0][...] = dx


@together(2, not_on_gpus="NumPy cannot compute in a callback on a GPU's memory")
def test_a_bias_that_is_handed_out_trains_like_one_that_is_added(root_gangs):
    for tp in (1, 2):
        gangs = gw.Gangs.create_parallel(root_gangs.root, tp=tp)
        wanted = trained(two(TEXT).parallelize(gangs, seed=5, master_dtype="f64"))
        apart = gw.Custom(BiasApart(), children={"0": gw.Linear(6, 8), "1": gw.Linear(8, 6, skip_bias_add=True)},
                          parallel_plan=TEXT, parameter_groups=["1"])
        found = trained(apart.parallelize(gangs, seed=5, master_dtype="f64"))
        assert list(found) == list(wanted)
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-14, err_msg=name)
    with pytest.raises(gw.NotFound, match=r'no module with parameters matches "2" of its parameter_groups'):
        gw.Custom(BiasApart(), children={"1": gw.Linear(8, 6)}, parameter_groups=["2"]).parallelize()


class Sum:
    """y = a(x0) + b(x1), six wide, also where the ranks have parts of x0 and x1."""

    def shapes(self, first, second):
        shape, dtype = first
        return [((*shape[:-1], 6), dtype)]

    def forward(self, call):
        call.outputs[0][...] = call.forward("a", call.inputs[0])[0] + call.forward("b", call.inputs[1])[0]

    def backward_input(self, call):
        for child, dx in zip("ab", call.input_grads):
            (made,) = call.backward(child, call.output_grads[0])
            if dx is not None:
                dx[...] = made


class Twice(Sum):
    """y = sum(x, 2 x)."""

    def shapes(self, x):
        return [x]

    def forward(self, call):
        call.outputs[0][...] = call.forward("sum", call.inputs[0], 2 * call.inputs[0])[0]

    def backward_input(self, call):
        first, second = call.backward("sum", call.output_grads[0])
        if call.input_grads[0] is not None:
            call.input_grads[0][...] = first + 2 * second


@together(2, not_on_gpus="NumPy cannot compute in a callback on a GPU's memory")
def test_a_row_prepares_both_inputs_of_a_module(root_gangs):
    plan = "sum -> prepare_input(Replicate, Shard(-1); Replicate, Shard(-1))\nsum.a -> rowwise\nsum.b -> rowwise"

    alone = gw.Gangs.create(gw.Gang.create_threads(1)[0])
    both = gw.Gangs.create_parallel(root_gangs.root, tp=2)

    def made(gangs, plan):
        inner = gw.Custom(Sum(), inputs=2, children={"a": gw.Linear(6, 6), "b": gw.Linear(6, 6, bias=False)})
        return gw.Custom(Twice(), children={"sum": inner}).parallelize(gangs, plan=plan, seed=5, master_dtype="f64")

    wanted, found = trained(made(alone, None)), trained(made(both, plan))
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-14, err_msg=name)
    model = made(both, "sum.a -> prepare_input(Replicate, Replicate; Replicate, Shard(-1))\nsum.b -> replicate")
    with pytest.raises(gw.InvalidArgument, match="the plan prepares 2 inputs, but it gets 1"):
        trained(model)


@together(4)
def test_a_llama_by_pieces_over_tp_and_cp(root_gangs):
    gangs = gw.Gangs.create_parallel(root_gangs.root, tp=2, cp=2)
    batch = np.random.default_rng(0).integers(0, 64, (2, 16))

    def losses(model):
        opt = gw.SGD(model, lr=0.1)
        return [gw.train_step(model, opt, batch).loss for _ in range(2)]

    def llama():
        return gw.Llama(vocab=64, dim=32, layers=1, heads=4)

    wanted = losses(llama().parallelize(gangs, seed=1, sequence_parallel=True, context_method="all_gather"))
    model = llama().tensor_parallel(gangs, sequence_parallel=True).context_parallel(method="all_gather")
    np.testing.assert_allclose(losses(model.fully_shard().materialize(seed=1)), wanted, rtol=1e-6)
    in_chunks = llama().parallelize(gangs, seed=1, sequence_parallel=True, overlap_chunks=2, context_method="all_gather")
    np.testing.assert_allclose(losses(in_chunks), wanted, rtol=1e-5)


def test_a_plan_that_does_not_fit_is_refused_with_its_row():
    gangs = gw.Gangs.create_parallel(gw.Gang.create_fake(0, 2), tp=2)
    model = gw.Sequential(*linears())
    for plan, error, says in (
            ("0 -> sideways", gw.InvalidArgument, 'plan line 1 "0 -> sideways"'),
            ([gw.PlanRow("7", "colwise")], gw.NotFound, "7 -> colwise"),
            ([ROWS[0], gw.PlanRow("1", "replicate", output=gw.Partial())], gw.InvalidArgument,
             r'rows\[1\] for "1": replicate takes no output'),
            ([gw.PlanRow("0", "prepare_input", input=gw.Varying())], gw.InvalidArgument, "output is missing"),
            (None, gw.NotSupported, "there is no tensor parallel plan")):
        with pytest.raises(error, match=says):
            model.tensor_parallel(gangs, plan=plan)
    with pytest.raises(gw.InvalidArgument, match="overlap_chunks is 2, but no row"):
        model.tensor_parallel(gangs, plan=TEXT, overlap_chunks=2)
    with pytest.raises(gw.InvalidArgument, match="style"):
        gw.Sequential(*linears()).tensor_parallel(gangs, plan=[gw.PlanRow("0", "half")])
    with pytest.raises(gw.InvalidState, match="tensor_parallel comes first"):
        model.fully_shard("", gangs)
    with pytest.raises(gw.InvalidArgument, match="holds no attention"):
        model.context_parallel(gangs)
    with pytest.raises(gw.InvalidArgument, match="options.parallel_plan: plan line 1"):
        two("0 -> sideways")
