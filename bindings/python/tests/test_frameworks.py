"""Custom modules whose compute is PyTorch's or JAX's, sharded, against the same compute by the framework alone."""

import gc
import shutil
import sys
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest
from ranks import over

import gangway as gw
from gangway.arrays import as_kind

RATE = 0.1


def check_against(gangs, behaviour, kind, whole):
    """Values, gradients and steps of a model with this module in its middle, over the ranks' halves of the rows.
    `whole`: (weights by name, x, dy) -> y, dx, gradients by name, of all rows, without gangway."""
    custom = gw.Custom(behaviour, parameters={"w": (5, 6), "b": (5,)}, kind=kind)
    model = gw.Sequential(gw.Linear(4, 6), custom, gw.Linear(5, 2, bias=False)).parallelize(gangs, seed=2)
    opt = gw.SGD(model, lr=RATE)
    random = np.random.default_rng(1)
    weights = {p.name: p.gather().copy() for p in model}
    rows = slice(8 * gangs.rank // gangs.size, 8 * (gangs.rank + 1) // gangs.size)
    for _ in range(3):
        x, dy = random.standard_normal((8, 4), np.float32), random.standard_normal((8, 2), np.float32)
        y, dx, gradients = whole(weights, x, dy)
        frame = gw.Frame(model)
        np.testing.assert_allclose(model.forward(x[rows], frame=frame)[0], y[rows], atol=1e-5)
        np.testing.assert_allclose(model.backward(dy[rows], frame=frame)[0], dx[rows], atol=1e-5)
        assert sorted(gradients) == sorted(weights)
        for name, gradient in gradients.items():
            np.testing.assert_allclose(model[name].gather_gradient(), gradient, atol=1e-5, err_msg=name)
        opt.step()
        weights = {name: weights[name] - RATE * gradient for name, gradient in gradients.items()}
    for name, weight in weights.items():
        np.testing.assert_allclose(model[name].gather(), weight, atol=1e-5, err_msg=name)


class Net:
    """y = tanh(x w^T + b)."""

    def shapes(self, x):
        shape, dtype = x
        return [((*shape[:-1], 5), dtype)]


class TorchNet(Net):
    """Backward makes forward again: what a callback sees ends with it, so no graph outlives forward."""

    @staticmethod
    def value(x, w, b):
        return (x @ w.T + b).tanh()

    def forward(self, call):
        call.set_outputs(self.value(call.inputs[0], **call.parameters))

    def backward_input(self, call):
        import torch

        leaves = {"x": call.inputs[0], **call.parameters}
        for leaf in leaves.values():
            leaf.requires_grad_()
        dx, *gradients = torch.autograd.grad(self.value(**leaves), list(leaves.values()), call.output_grads[0])
        call.set_input_grads(dx)
        call.add_gradients(dict(zip(list(leaves)[1:], gradients)))


@over(1, 2, needs="torch")
def test_a_module_of_torch_in_a_sharded_model_is_as_torch_alone(gangs):
    import torch

    def whole(weights, x, dy):
        leaves = {n: torch.from_numpy(v.copy()).requires_grad_() for n, v in {"x": x, **weights}.items()}
        hidden = torch.nn.functional.linear(leaves["x"], leaves["0.weight"], leaves["0.bias"])
        y = TorchNet.value(hidden, leaves["1.w"], leaves["1.b"]) @ leaves["2.weight"].T
        gradients = dict(zip(leaves, torch.autograd.grad(y, list(leaves.values()), torch.from_numpy(dy))))
        return y.detach().numpy(), gradients.pop("x").numpy(), {n: g.numpy() for n, g in gradients.items()}

    torch.set_num_threads(1)
    check_against(gangs, TorchNet(), "torch", whole)


class JaxNet(Net):
    """By jax.vjp of a function of (x, parameters)."""

    @staticmethod
    def value(x, p):
        import jax.numpy as jnp

        return jnp.tanh(x @ p["w"].T + p["b"])

    def forward(self, call):
        call.set_outputs(self.value(call.inputs[0], call.parameters))

    def backward_input(self, call):
        import jax

        _, back = jax.vjp(self.value, call.inputs[0], call.parameters)
        dx, gradients = back(call.output_grads[0])
        call.set_input_grads(dx)
        call.add_gradients(gradients)


@over(1, 2, needs="jax")
def test_a_module_of_jax_in_a_sharded_model_is_as_jax_alone(gangs):
    import jax

    def value(weights, x):
        hidden = x @ weights["0.weight"].T + weights["0.bias"]
        return JaxNet.value(hidden, {"w": weights["1.w"], "b": weights["1.b"]}) @ weights["2.weight"].T

    def whole(weights, x, dy):
        y, back = jax.vjp(value, weights, x)
        gradients, dx = back(dy)
        return np.asarray(y), np.asarray(dx), {n: np.asarray(g) for n, g in gradients.items()}

    check_against(gangs, JaxNet(), "jax", whole)


class Sixteen:
    """y = w x in bfloat16, which NumPy lacks."""

    def shapes(self, x):
        return [x]

    def forward(self, call):
        x, w = call.inputs[0], call.parameters["w"]
        assert "bfloat16" in str(x.dtype) and "bfloat16" in str(w.dtype)
        call.set_outputs(x * w)

    def backward_input(self, call):
        call.set_input_grads(call.output_grads[0] * call.parameters["w"])
        call.add_gradients({"w": call.output_grads[0] * call.inputs[0]})


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_a_module_in_bfloat16_sees_and_gives_its_frameworks_own(kind):
    framework = pytest.importorskip("torch" if kind == "torch" else "jax.numpy", reason=f"{kind} is not installed")
    model = gw.Custom(Sixteen(), parameters={"w": np.float32([1, 2, 3])}, kind=kind).parallelize(param_dtype="bf16")
    frame = gw.Frame(model)
    for _ in range(2):  # the second one adds
        y = model.forward(framework.full((3,), 2, dtype=framework.float32), frame=frame)[0]
        assert y.dtype == framework.bfloat16 and y.tolist() == [2, 4, 6]
        assert model.backward(framework.ones_like(y), frame=frame, kind=kind)[0].tolist() == [1, 2, 3]
    assert model["w"].gather_gradient().tolist() == [4, 4, 4]


def test_what_does_not_fit_a_call_is_refused():
    class Wrong:
        def shapes(self, x):
            return [x]

        def forward(self, call):
            self.write(call)

        def backward_input(self, call):
            pass

    module = Wrong()
    model = gw.Custom(module, parameters={"w": (3,)}).materialize()
    x = np.ones(3, np.float32)
    for write, text in ((lambda call: call.set_outputs(x, x), "2 outputs were given, Wrong has 1"),
                        (lambda call: call.set_outputs(x[:2]), r"outputs\[0\] has shape \(2,\), \(3,\) is needed"),
                        (lambda call: call.add_gradients({"v": x}), 'gradients has "v", Wrong only w')):
        module.write = write
        with pytest.raises(gw.InvalidArgument, match=text):
            model.forward(x)


def test_a_read_only_view_stays_so_while_jax_takes_it(monkeypatch):
    """Other threads may take it just then."""
    view = gw.Gang.create_fake(0, 2).empty((4,))
    view.read_only = True
    seen = []

    def from_dlpack(array):
        assert array.__dlpack_device__() == view.__dlpack_device__()
        capsule = array.__dlpack__(stream=None)
        seen.append((view.read_only, np.from_dlpack(view).flags.writeable))
        return capsule

    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(dlpack=SimpleNamespace(from_dlpack=from_dlpack)))
    assert '"dltensor"' in repr(as_kind(view, "jax")) and seen == [(True, False)]
    gc.collect()
    assert view.exports == 0


@over(2, needs="torch")
def test_a_gang_is_a_process_group_beside_its_own_calls(gangs):
    import torch
    import torch.distributed as dist

    with pytest.raises(gw.InvalidState, match="init_process_group.* comes before as_process_group"):
        gangs["dp"].as_process_group()
    folder = gangs.root.broadcast_object(tempfile.mkdtemp() if gangs.rank == 0 else None)
    dist.init_process_group("gangway", init_method=f"file://{folder}/store", rank=gangs.rank, world_size=gangs.size)
    group = gangs["dp"].as_process_group()
    assert (dist.get_rank(group), dist.get_world_size(group)) == (gangs.rank, gangs.size)
    x = torch.full((3,), gangs.rank + 1.0)
    work = dist.all_reduce(x, group=group, async_op=True)
    work.wait()
    assert x.tolist() == [3.0] * 3
    whole = torch.empty(2)
    dist.all_gather_into_tensor(whole, torch.full((1,), float(gangs.rank)), group=group)
    assert whole.tolist() == [0, 1]
    if gangs.rank == 0:
        dist.send(torch.ones(2), 1, group=group)
    else:
        dist.recv(x[:2], 0, group=group)
    gangs["dp"].barrier()  # a traffic of its own
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False), process_group=group)
    model(torch.full((1, 2), gangs.rank + 1.0)).sum().backward()
    assert model.module.weight.grad.tolist() == [[1.5, 1.5]]
    dist.destroy_process_group()
    gangs.root.barrier()
    if gangs.rank == 0:
        shutil.rmtree(folder)
