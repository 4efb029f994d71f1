"""Built-in models, custom modules and optimizers."""

import gc
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from ranks import over, together

import gangway as gw


def rows(gangs, count=8, length=16, seed=0):
    index, parts = gangs.data_shard
    every = np.random.default_rng(seed).integers(0, 255, (count, length))
    return every[count * index // parts : count * (index + 1) // parts].copy()


def folder(gangs):
    """One folder for all ranks."""
    return Path(gangs.root.broadcast_object(tempfile.mkdtemp() if gangs.rank == 0 else None))


@together(1, 2, 4)
def test_a_sharded_llama_trains_like_the_whole_one(gangs):
    def train(where, batch):
        model = gw.Llama(dim=32, layers=2, heads=4).parallelize(where, strategy="full_shard", recompute="selective", seed=1)
        opt = gw.AdamW(model, lr=1e-2, betas=(0.9, 0.95), schedule="cosine", total_steps=20,
                       rules=[gw.Rule("model.norm.*", lr_scale=0.5)])
        results = [gw.train_step(model, opt, batch, max_grad_norm=1.0) for _ in range(6)]
        return model, opt, results

    model, opt, results = train(gangs, rows(gangs))
    alone = gw.Gangs.create(gw.Gang.create_threads(1)[0])
    whole, _, wanted = train(alone, rows(alone))
    np.testing.assert_allclose([r.loss for r in results], [r.loss for r in wanted], rtol=2e-5)
    assert sum(model.memory().values()) > 0
    assert results[-1].loss < results[0].loss and results[-1].step == 6 == opt.steps and results[0].weight == 8 * 15
    for parameter in model:
        np.testing.assert_allclose(parameter.gather(), whole[parameter.name].gather(), atol=2e-4)
        first, last = parameter.rows
        mine = parameter.gather()[first:last]
        np.testing.assert_array_equal(parameter.value().reshape(mine.shape), mine)
        assert parameter.state(opt, "exp_avg").size == mine.size
    assert gw.eval_step(model, rows(gangs)).loss < results[0].loss
    opt.lr = 0.5
    assert 0 < opt.lr < 0.5  # of the next step, by the schedule


@together(2)
def test_replicas_that_differ_are_told_by_element(gangs):
    model = gw.Linear(3, 2).parallelize(gangs, strategy="no_shard")
    model.check_replicas()
    weight = model["weight"]
    whole = np.array(weight.gather())
    whole[1, 2] = gangs.root.rank
    weight.assign(whole)
    with pytest.raises(gw.Mismatch, match=r"weight\[1, 2\] is 0 on rank 0, 1 on rank 1"):
        model.check_replicas()


@together(1, 2)
def test_files_are_read_on_any_mesh(gangs):
    where = folder(gangs)
    model = gw.Llama(dim=32, layers=1, heads=4).parallelize(gangs, seed=5)
    model.save(where)
    again = gw.Llama(dim=32, layers=1, heads=4).parallelize(gangs, seed=6).load(where)
    for parameter in model:
        np.testing.assert_array_equal(parameter.gather(), again[parameter.name].gather())
    assert (where / "config.json").exists()
    name = "model.norm.weight"
    again[name].assign(np.full(again[name].shape, 2, np.float32))
    assert (again[name].gather() == 2).all()
    assert model.generate(b"ab", 5, temperature=0) == model.generate([97, 98], 5, temperature=0)


DATA = Path(__file__).parents[3] / "tests" / "data" / "folders"


def stored(path):
    """A safetensors file, read by hand: f64 or i64 by name."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        kind = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8"}[entry["dtype"]]
        values = np.frombuffer(content[start + first : start + last], kind)
        if entry["dtype"] == "BF16":
            values = (values.astype("<u4") << 16).view("<f4")
        out[name] = values.astype("f8" if kind != "<i8" else "i8").reshape(entry["shape"])
    return out


@together(1, 2)
def test_a_folder_of_hugging_face_is_a_model_in_one_call(gangs):
    for name in ("llama3_bf16_sharded", "qwen2_f16_tied", "llama_biases_f32", "mistral_bf16"):
        model = gw.from_pretrained(DATA / name, gangs, master_dtype=gw.DType.F64)
        assert type(model) is gw.Decoder
        values = {}
        for file in (DATA / name).glob("model*.safetensors"):
            values |= stored(file)
        assert len(values) == len(model)
        for parameter in model:
            np.testing.assert_array_equal(parameter.gather(), values[parameter.name])
        wanted = stored(DATA / name / "expected.safetensors")
        (found,) = model.forward(wanted["tokens"])
        assert np.linalg.norm(found - wanted["logits"]) < 1e-6 * np.linalg.norm(wanted["logits"])


@pytest.mark.parametrize("preset, family", [(gw.Llama, "llama"), (gw.Mistral, "mistral"), (gw.Qwen2, "qwen2"), (gw.Qwen3, "qwen3"),
                                            (gw.Gemma, "gemma"), (gw.Gemma2, "gemma2"), (gw.Gemma3, "gemma3_text"),
                                            (gw.Olmo2, "olmo2"), (gw.GPT2, "gpt2"), (gw.Phi3, "phi3")])
def test_a_preset_is_saved_in_the_keys_of_its_family(preset, family, tmp_path):
    preset(vocab=16, dim=16, layers=1, heads=2).parallelize().save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == family
    found = gw.Decoder.options_from(tmp_path)
    assert found["family"] == family and gw.Decoder(**found).num_parameters() > 0
    with pytest.raises(gw.NotSupported, match='"gpt5" is unknown; this library has llama'):
        gw.Decoder(family="gpt5")


@together(1, 2)
def test_a_folder_of_another_function_is_refused_with_both_values(gangs):
    options = gw.Decoder.options_from(DATA / "mistral_bf16")
    assert options["vocab"] == 19 and options["eps"] == 1e-5 and options["tied"] == 0
    model = gw.Decoder(**{**options, "rope_theta": 5e5}).parallelize(gangs)
    with pytest.raises(gw.InvalidArgument, match="rope_theta = 10000.0, but the model has 500000.0"):
        model.load(DATA / "mistral_bf16")
    assert model.load(DATA / "mistral_bf16", ignore_config=True) is model
    with pytest.raises(FileNotFoundError) as missing:
        gw.from_pretrained("/no/such/folder", gangs)
    assert missing.value.filename == "/no/such/folder/config.json"


@together(2)
def test_a_batch_may_be_rows_of_a_longer_array(gangs):
    model = gw.Llama(dim=32, layers=1, heads=4).parallelize(gangs, seed=1)
    whole = rows(gangs, length=17)
    strided = gw.eval_step(model, whole[:, :-1], whole[:, 1:])
    dense = gw.eval_step(model, whole[:, :-1].copy(), whole[:, 1:].copy())
    assert strided.loss == dense.loss and strided.weight == 8 * 16


@together(2)
def test_labels_are_used_as_they_are_or_shifted_and_wrong_places_are_told(gangs):
    model = gw.Llama(dim=32, layers=1, heads=4).parallelize(gangs, seed=1)
    tokens = rows(gangs)
    following = np.full_like(tokens, -100)
    following[:, :-1] = tokens[:, 1:]
    loss = gw.eval_step(model, tokens).loss
    assert gw.eval_step(model, tokens, following).loss == loss
    assert gw.eval_step(model, tokens, tokens, shift_labels=True).loss == loss
    with pytest.raises(gw.InvalidArgument, match="is its own token, so that the model would learn to copy; pass the tokens"):
        gw.eval_step(model, tokens, tokens)
    with pytest.raises(gw.InvalidArgument, match="is the next token already, and batch.shift_labels = 1 would shift them"):
        gw.eval_step(model, tokens, following, shift_labels=True)


@together(1, 2, not_on_gpus="NumPy gets copies of a GPU's memory")
def test_arrays_of_parameters_outlive_model_and_optimizer(gangs):
    model = gw.Linear(4, 4).parallelize(gangs, seed=1)
    opt = gw.AdamW(model, lr=0.1)
    frame = gw.Frame(model)
    model.forward(np.ones((1, 4), np.float32), frame=frame)
    model.backward(np.ones((1, 4), np.float32), frame=frame)
    weight = model["weight"]
    value, gradient = weight.value(), weight.gradient()
    opt.step()
    moment = weight.state(opt, "exp_avg")
    assert not value.flags.writeable and gradient.flags.writeable
    assert value.size == gradient.size == moment.size and value.ctypes.data == weight.value().ctypes.data
    copies = value.copy(), gradient.copy(), moment.copy()
    gangs.root.barrier()
    del model, opt, frame, weight
    gc.collect()
    others = [np.full(len(value) * 4, 9, np.float32) for _ in range(100)]  # what was freed would be used again
    for array, copy in zip((value, gradient, moment), copies):
        np.testing.assert_array_equal(array, copy)
    assert (copies[2] != 0).any() and others


@together(1, 2)
def test_manual_forward_and_backward(gangs):
    model = gw.Sequential(gw.Linear(4, 6), gw.Linear(6, 2, bias=False)).parallelize(gangs, seed=2)
    a, b, c = (model[n].gather() for n in ("0.weight", "0.bias", "1.weight"))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (y,) = model.forward(x)
    np.testing.assert_allclose(y, (x @ a.T + b) @ c.T, atol=1e-4)
    frame = gw.Frame(model)
    model.forward(x, frame=frame)
    (dx,) = model.backward(np.ones_like(y), frame=frame)
    np.testing.assert_allclose(dx, np.ones((3, 2)) @ c @ a, atol=1e-4)
    np.testing.assert_allclose(model["1.weight"].gather_gradient(), gangs.size * np.ones((2, 3)) @ (x @ a.T + b), rtol=1e-4)
    assert model.clip_grad_norm(1.0) > 0
    model.zero_grad()
    assert (model["0.bias"].gather_gradient() == 0).all()


class Scale:
    """y = w x, through a child that doubles."""

    def shapes(self, x):
        return [x]

    def forward(self, call):
        call.outputs[0][...] = call.parameters["w"] * call.forward("inner", call.inputs[0])[0]

    def backward_input(self, call):
        doubled = 2 * call.inputs[0]
        call.parameter_grads["w"] += (call.output_grads[0] * doubled).sum(0)
        back = call.backward("inner", call.output_grads[0] * call.parameters["w"])[0]
        if call.input_grads[0] is not None:
            call.input_grads[0][...] = back


class Double:
    def shapes(self, x):
        return [x]

    def forward(self, call):
        np.multiply(call.inputs[0], 2, out=call.outputs[0])

    def backward_input(self, call):
        np.multiply(call.output_grads[0], 2, out=call.input_grads[0])


class SquaredError:
    """Without shapes: a training root's."""

    def forward(self, call):
        (x,), w = call.inputs, call.parameters["w"]
        loss, weight = call.outputs
        assert loss.shape == weight.shape == (1,) and loss.dtype == weight.dtype == np.float64
        loss[0], weight[0] = np.square(x @ w - 1).sum() / 2, len(x)

    def backward_input(self, call):
        (x,), w = call.inputs, call.parameters["w"]
        call.parameter_grads["w"] += np.float32(call.loss_scale) * ((x @ w - 1) @ x)


@together(1, 2, not_on_gpus="NumPy cannot compute in a callback on a GPU's memory")
def test_without_shapes_each_output_is_one_f64(gangs):
    model = gw.Custom(SquaredError(), parameters={"w": np.zeros(2, np.float32)}, outputs=2).parallelize(gangs)
    opt = gw.SGD(model, lr=0.25)
    x = np.float32([[1, 0], [0, 1], [1, 0], [0, 1]])
    assert gw.train_step(model, opt, x, weight=4).loss == 0.5
    assert model["w"].gather().tolist() == [0.125, 0.125]
    assert model.forward(x)[0].tolist() == [4 * 0.875**2 / 2]


@pytest.mark.parametrize("name", [name for name in gw.optimizers.__all__ if name != "Schedule"])
def test_every_optimizer_learns(name):
    model = gw.Llama(dim=16, layers=1, heads=2, ffn=16).parallelize(seed=1)
    opt = getattr(gw, name)(model, lr=1e-2, schedule="linear", total_steps=10, rules=[gw.Rule("lm_head.weight", frozen=True)])
    tokens = np.arange(24).reshape(4, 6)
    losses = [gw.train_step(model, opt, tokens).loss for _ in range(3)]
    assert losses[0] > losses[1] > losses[2] and opt.steps == 3 and repr(opt).startswith(f"<{name}: lr ")


class NanLoss(SquaredError):
    """One output is NaN, and all gradients are numbers."""

    def forward(self, call):
        super().forward(call)
        call.outputs[0][0] = np.nan


@together(1, 2, not_on_gpus="NumPy cannot compute in a callback on a GPU's memory")
def test_what_cannot_be_learned_from_is_skipped_and_said(gangs):
    x = np.ones((4, 2), np.float32)
    model = gw.Custom(NanLoss(), parameters={"w": np.zeros(2, np.float32)}, outputs=2).parallelize(gangs)
    opt = gw.SGD(model, lr=1)
    result = gw.train_step(model, opt, x, weight=4)
    assert np.isnan(result.loss) and result.skipped and result.skip_reason == gw.SkipReason.NON_FINITE and opt.steps == 0
    assert model["w"].gather().tolist() == [0, 0]
    result = gw.train_step(model, opt, x, weight=0)
    assert np.isnan(result.loss) and result.skipped and result.skip_reason == gw.SkipReason.NO_WEIGHT


@together(1, 2)
def test_f16_trains_with_a_dynamic_loss_scale(gangs):
    for strategy in ("full_shard", "no_shard"):
        model = gw.Llama(dim=32, layers=2, heads=4).parallelize(gangs, strategy=strategy, param_dtype="f16", seed=1)
        opt = gw.AdamW(model, lr=1e-2, loss_scale_interval=2)
        assert opt.loss_scale == 65536
        opt.loss_scale = 1024
        results = [gw.train_step(model, opt, rows(gangs), max_grad_norm=1.0) for _ in range(3)]
        assert [r.loss_scale for r in results] == [1024, 1024, 2048] and results[2].loss < results[0].loss
        opt.loss_scale = 2**24
        result = gw.train_step(model, opt, rows(gangs))
        assert result.skip_reason == gw.SkipReason.NON_FINITE and np.isfinite(result.loss) and result.loss_scale == 2**24
        assert opt.loss_scale == 2**23 and opt.steps == 3
        with pytest.raises(gw.InvalidArgument, match="allow_non_finite beside a dynamic loss scale"):
            gw.train_step(model, opt, rows(gangs), allow_non_finite=True)
    assert gw.SGD(model, loss_scale=1).loss_scale == 1


@together(1, 2)
def test_a_loss_scale_changes_no_bits_and_own_loops_seed_with_it(gangs):
    x, y = np.random.default_rng(3).normal(size=(2, 6, 4))

    def train(**options):
        group = gw.ShardGroup(gangs, "g", {"w": np.ones((4, 4))})
        opt = gw.SGD(group, lr=0.5, **options)
        for _ in range(3):
            with group.unsharded() as full:
                group.add_gradients({"w": opt.loss_scale * (x.T @ (x @ full["w"] - y))})
            group.reduce()
            result = opt.step(scale=1 / (6 * gangs.size), max_grad_norm=1.0)
        return opt.loss_scale, result.loss_scale, result.grad_norm, group.values()["w"].tolist()

    plain, scaled = train(), train(loss_scale=1024)
    assert plain[:2] == (1, 1) and scaled[:2] == (1024, 1024) and scaled[2:] == plain[2:]
    with pytest.raises(gw.InvalidArgument, match="loss_scale = -1"):
        train(loss_scale=-1)
    with pytest.raises(gw.InvalidArgument, match="loss_scale_interval = 0"):
        train(loss_scale_interval=0)


def test_outputs_may_be_numbers_and_lists_and_a_shape_that_nobody_said_is_refused_by_the_reason():
    class Constant(SquaredError):
        gives = 5.0, [4]

        def forward(self, call):
            call.set_outputs(*self.gives)

    behaviour, x = Constant(), np.ones(3, np.float32)
    model = gw.Custom(behaviour, outputs=2).materialize()
    assert [y.tolist() for y in model.forward(x)] == [[5], [4]]
    behaviour.gives = np.ones(3), [4]
    with pytest.raises(gw.InvalidArgument, match=r"outputs\[0\] has shape \(3,\), \(1,\) is needed, as Constant has no shapes"):
        model.forward(x)


@together(1, 2, not_on_gpus="NumPy cannot compute in a callback on a GPU's memory")
def test_custom_modules_with_children(gangs):
    model = gw.Custom(Scale(), parameters={"w": np.arange(3, dtype=np.float32)}, children={"inner": gw.Custom(Double())})
    model.parallelize(gangs)
    x = np.ones((2, 3), np.float32)
    assert model.forward(x)[0].tolist() == [[0, 2, 4]] * 2
    frame = gw.Frame(model)
    model.forward(x, frame=frame)
    assert model.backward(np.ones((2, 3), np.float32), frame=frame)[0].tolist() == [[0, 2, 4]] * 2
    assert model["w"].gather_gradient().tolist() == [4.0 * gangs.size] * 3


def test_exceptions_of_the_other_callbacks():
    class Bad(Double):
        def shapes(self, x):
            return [x, x]

    with pytest.raises(gw.InvalidArgument, match="Bad: shapes gave 2 outputs, the module has 1"):
        gw.Custom(Bad()).materialize().forward(np.ones(3, np.float32))

    def fill(first, last):
        raise LookupError("no values")

    with pytest.raises(LookupError, match="no values"):
        gw.ShardGroup(None, "g", {"w": gw.Spec((3,), init=fill)})

    class Picky(Double):
        def accepts(self, dtype):
            return dtype == gw.DType.F32

    with pytest.raises(gw.GangwayError, match="bf16"):
        gw.Custom(Picky(), parameters={"w": (3,)}).parallelize(param_dtype="bf16")


def test_arrays_that_a_callback_keeps_are_refused():
    kept = []

    class Keeper(Double):
        def forward(self, call):
            super().forward(call)
            kept.append(call.inputs[0])

    with pytest.raises(gw.InvalidState, match=r"Keeper: forward kept inputs\[0\] after its end"):
        gw.Custom(Keeper()).materialize().forward(np.ones(3, np.float32))


TOKENS = np.zeros((2, 8), np.int64)


@pytest.mark.parametrize("inputs, labels, text", [
    (TOKENS.astype(np.uint64), TOKENS, r"Decoder: tokens are u64 \[2, 8\], wanted i64 \[batch, sequence\]"),
    (TOKENS, TOKENS[:, :5], r"Decoder: labels are i64 \[2, 5\] and tokens i64 \[2, 8\]"),
    (TOKENS[0], TOKENS[0], r"Decoder: tokens are i64 \[8\]"),
])
def test_batches_that_do_not_fit_are_refused(inputs, labels, text):
    model = gw.Llama(dim=32, layers=1, heads=4).materialize()
    with pytest.raises(gw.InvalidArgument, match=text):
        gw.train_step(model, gw.AdamW(model), inputs, labels)
    with pytest.raises(gw.InvalidArgument, match="prompt is empty"):
        model.generate(b"", 4)
    with pytest.raises(gw.InvalidArgument, match="token_count is -4"):
        model.generate(b"a", -4)


def test_options_that_do_not_exist_are_named():
    with pytest.raises(TypeError, match="unexpected keyword argument .dims."):
        gw.Llama(dims=3)
    with pytest.raises(gw.InvalidArgument, match='strategy is "half"'):
        gw.Linear(2, 2).parallelize(strategy="half")
    with pytest.raises(gw.InvalidArgument, match="reshard_after_forward is 2, which is no factor of the 1 ranks"):
        gw.Linear(2, 2).parallelize(reshard_after_forward=2)
    model = gw.Linear(2, 2).freeze("bias").materialize()
    assert not model["bias"].trainable and len(model) == 2
    with pytest.raises(gw.InvalidArgument, match="dims"):
        gw.ShardGroup(None, "g", {"w": gw.Spec((1,) * 9)})


@together(1, 2)
def test_gradient_norms_and_replay(gangs):
    model = gw.Llama(dim=32, layers=2, heads=4).parallelize(gangs, seed=1)
    opt = gw.AdamW(model, lr=1e-2)
    with pytest.raises(gw.InvalidState, match="no step has computed gradient norms"):
        model.gradient_norms()
    result = gw.train_step(model, opt, rows(gangs), max_grad_norm=1.0, replay=True, gradient_norms=True)
    norms = model.gradient_norms()
    assert list(norms) == [p.name for p in model]
    assert np.sqrt(sum(norm**2 for norm in norms.values())) == pytest.approx(result.grad_norm, rel=1e-5)
