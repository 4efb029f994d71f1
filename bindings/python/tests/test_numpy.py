"""NumPy: what np.asarray gives of the library's objects, types that NumPy has from ml_dtypes, masks, scalars."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from ranks import together

import gangway as gw
from gangway import _low

BF16 = ml_dtypes.bfloat16
TOKENS = np.zeros((2, 8), np.int64)


@pytest.fixture(scope="module")
def gang():
    return gw.Gang.create_fake(0, 2)


def test_asarray_gives_a_proper_array_of_a_view(gang):
    for dtype, kind in (("f32", np.float32), ("f64", np.float64), ("i64", np.int64), ("bool", bool), ("bf16", BF16),
                        ("f8_e4m3", ml_dtypes.float8_e4m3fn), ("f8_e5m2", ml_dtypes.float8_e5m2), ("c64", np.complex64)):
        for shape in ((), (0,), (1,), (3, 5), (2, 0, 3)):
            view = gang.empty(shape, dtype)
            array = np.asarray(view)
            assert (type(array), array.shape, array.dtype) == (np.ndarray, shape, np.dtype(kind))
            assert array.size == 0 or array.ctypes.data == view.address
    view = gang.empty((4,), "bf16")
    np.asarray(view)[:] = [1, 2, 3, 4]
    assert np.asarray(view, np.float64).tolist() == [1, 2, 3, 4] and np.array(view).ctypes.data != view.address
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(view, np.float32, copy=False)


def test_asarray_of_a_parameter_is_its_value():
    model = gw.Linear(3, 2).parallelize(param_dtype="bf16")
    weight = np.asarray(model["weight"])
    assert weight.shape == (2, 3) and weight.dtype == np.float32 and not weight.flags.writeable
    np.testing.assert_array_equal(weight, model["weight"].value())
    tensor = model["weight"].value("tensor")
    assert np.asarray(tensor).shape == (2, 3) and np.asarray(tensor).ctypes.data == weight.ctypes.data


@together(2)
def test_asarray_of_a_part_of_a_parameter_says_what_to_do(gangs):
    model = gw.Linear(3, 4).parallelize(gangs)
    with pytest.raises(gw.InvalidArgument, match=r"weight is \[4, 3\], of which this rank has \[2, 3\].*value\(\).*gather\(\)"):
        np.asarray(model["weight"])
    assert np.asarray(model["weight"].value("tensor")).shape == (2, 3)


def test_results_in_bfloat16_are_those_of_ml_dtypes(gang):
    model = gw.Llama(dim=32, layers=1, heads=4, ffn=32, vocab=16).parallelize(param_dtype="bf16")
    assert model.forward(TOKENS)[0].dtype == BF16
    linear = gw.Linear(4, 3).parallelize(param_dtype="bf16")
    frame = gw.Frame(linear)
    assert linear.forward(np.ones((2, 4), np.float32), frame=frame)[0].dtype == BF16
    linear.backward(np.ones((2, 3), np.float32), frame=frame)
    opt = gw.AdamW(model, moment_dtype="bf16")
    gw.train_step(model, opt, TOKENS, TOKENS + 1)
    assert model["model.norm.weight"].state(opt, "exp_avg").dtype == BF16
    group = gw.ShardGroup(None, "g", {"w": np.ones((4, 3), np.float32)}, param_dtype="bf16")
    with group.unsharded() as full:
        assert full["w"].dtype == BF16 and not full["w"].flags.writeable
        group.full_gradients()["w"][...] += 2
    group.reduce()
    assert group.gradients()["w"].tolist() == [[2.0] * 3] * 4
    x = np.arange(6).astype(BF16)
    for made, wanted in ((gang.all_reduce(x), 2 * np.arange(6)), (gang.all_gather(x), [np.arange(6)] * 2)):
        assert made.dtype == BF16 and np.array_equal(made.astype(float), wanted)


def test_arrays_of_ml_dtypes_are_taken(gang):
    x = np.arange(6).astype(BF16)
    assert gang.all_reduce_(x) is x and x.tolist() == [0, 2, 4, 6, 8, 10]
    group = gw.ShardGroup(None, "g", {"w": np.full((4, 3), 3, BF16)}, param_dtype="bf16")
    assert group.values()["w"].dtype == np.float32 and group.values()["w"].tolist() == [[3.0] * 3] * 4
    with group.unsharded({"w": np.zeros((4, 3), BF16)}) as full:
        assert full["w"].astype(float).tolist() == [[3.0] * 3] * 4
        group.add_gradients({"w": np.ones((4, 3), BF16)})
    model = gw.Linear(3, 2).materialize()
    model.load_state_dict({name: np.full(p.shape, 5, BF16) for name, p in model.named_parameters()})
    assert model["bias"].value().tolist() == [5, 5]
    fixed = np.zeros(3, BF16)
    fixed.flags.writeable = False
    with pytest.raises(gw.InvalidArgument, match="array is read-only"):
        gang.all_reduce_(fixed)
    with pytest.raises(gw.InvalidArgument, match="array is not contiguous"):
        gang.all_reduce_(np.zeros((4, 4), BF16)[:, :2])
    assert gang.all_gather(np.zeros(3, ml_dtypes.float8_e5m2)).dtype == ml_dtypes.float8_e5m2


class Half:
    """y = 2 x in bfloat16."""

    def shapes(self, x):
        return [x]

    def forward(self, call):
        self.kept = call.inputs[0] if getattr(self, "keeps", False) else None
        call.outputs[0][...] = 2 * call.inputs[0]

    def backward_input(self, call):
        call.input_grads[0][...] = 2 * call.output_grads[0]


def test_callbacks_see_bfloat16_and_may_not_keep_it():
    behaviour = Half()
    model = gw.Custom(behaviour, parameters={"w": (1,)}).parallelize(param_dtype="bf16")
    assert model.forward(np.arange(3).astype(BF16))[0].tolist() == [0, 2, 4]
    behaviour.keeps = True
    with pytest.raises(gw.InvalidState, match=r"kept inputs\[0\] after its end"):
        model.forward(np.arange(3).astype(BF16))


def test_a_missing_ml_dtypes_is_refused_before_anything_runs():
    program = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np, gangway as gw
gang = gw.Gang.create_fake(0, 2)
view = gang.empty((4,), "bf16")
before = gang.traffic()["calls"]
for call in (lambda: np.asarray(view), lambda: gang.all_reduce(view)):
    try:
        call()
    except gw.NotSupported as error:
        assert "ml_dtypes" in str(error) and 'kind="torch"' in str(error), error
    else:
        raise SystemExit("it ran")
assert gang.traffic()["calls"] == before
assert gang.all_reduce_(view) is view
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_unknown_framework_is_refused_before_anything_runs(gang):
    model = gw.Linear(3, 2).materialize()
    calls = _low.gw_module_forward and (lambda: model.state_dict(kind="cupid"), lambda: model["weight"].gather("cupid"),
                                        lambda: gw.ShardGroup(None, "g", {"w": (2,)}, kind="cupid"),
                                        lambda: gw.Custom(Half(), kind="cupid"))
    for call in calls:
        with pytest.raises(gw.InvalidArgument, match='arrays of "cupid" are unknown'):
            call()


def test_masked_arrays_are_refused_everywhere(gang):
    masked = np.ma.masked_equal(np.arange(6.0).reshape(2, 3), 2)
    model = gw.Linear(3, 2).materialize()
    group = gw.ShardGroup(None, "g", {"w": np.ones((2, 3), np.float32)})
    for call in (lambda: gang.all_reduce(masked), lambda: gang.broadcast_(masked), lambda: model.forward(masked),
                 lambda: model["weight"].assign(masked), lambda: gw.ShardGroup(None, "m", {"w": masked}),
                 lambda: model.load_state_dict({"weight": masked, "bias": np.zeros(2)}),
                 lambda: group.unshard({"w": masked}), lambda: gang.all_reduce(np.ma.masked_array(np.ones(3)))):
        with pytest.raises(gw.InvalidArgument, match="is a masked array, whose mask would be lost"):
            call()


def test_a_parameter_without_dims_keeps_none():
    for first in (np.array(2.0), np.array(2.0, np.float32), gw.Spec((), init="ones")):
        group = gw.ShardGroup(None, "g", {"scale": first, "w": np.ones(3, np.float32)})
        value = 1.0 if isinstance(first, gw.Spec) else 2.0
        opt = gw.SGD(group, lr=1.0)
        with group.unsharded() as full:
            assert full["scale"].shape == () and float(full["scale"]) == value and full["w"].shape == (3,)
            group.add_gradients({"scale": np.array(0.25, full["scale"].dtype)})
            assert group.full_gradients()["scale"].shape == ()
        group.reduce()
        opt.step()
        with group.unsharded({"scale": np.zeros(()), "w": np.zeros(3)}) as own:
            assert own["scale"].shape == () and float(own["scale"]) == value - 0.25


def test_token_ids_and_labels_may_be_narrower_integers():
    """As JAX's are int32 by default; also rows out of a longer array."""
    tokens = np.random.default_rng(1).integers(0, 60, (2, 9))
    for kind in (np.int32, np.uint16, np.uint8, np.int8):
        model = gw.Llama(vocab=64, dim=32, layers=1, heads=4).parallelize(seed=3)
        wanted = gw.eval_step(model, tokens[:, :8], tokens[:, 1:]).loss
        narrow = tokens.astype(kind)
        assert gw.eval_step(model, narrow[:, :8], narrow[:, 1:]).loss == wanted
        np.testing.assert_array_equal(model.forward(narrow)[0], model.forward(tokens)[0])
        assert gw.train_step(model, gw.SGD(model, lr=0.0), narrow[:, :8], tokens[:, 1:]).loss == wanted
        assert model.generate(narrow[0], 3, temperature=0) == model.generate(tokens[0], 3, temperature=0)
    table = gw.Embedding(64, 4).materialize()
    np.testing.assert_array_equal(table.forward(tokens.astype(np.int32))[0], table.forward(tokens)[0])
    both = gw.Sequential(gw.Embedding(64, 4), gw.Linear(4, 2)).materialize()
    np.testing.assert_array_equal(both.forward(tokens.astype(np.int32))[0], both.forward(tokens)[0])


def test_token_ids_of_jax_are_taken_as_they_come():
    jnp = pytest.importorskip("jax.numpy")
    model = gw.Llama(vocab=64, dim=32, layers=1, heads=4).parallelize(seed=3)
    tokens = np.random.default_rng(1).integers(0, 60, (2, 9))
    ours = jnp.asarray(tokens)
    assert ours.dtype == jnp.int32
    assert gw.eval_step(model, ours[:, :8], ours[:, 1:]).loss == gw.eval_step(model, tokens[:, :8], tokens[:, 1:]).loss
    assert "jax" in type(model.forward(ours)[0]).__module__
