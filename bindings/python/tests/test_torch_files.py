"""Files that PyTorch and gangway exchange: each continues the other's AdamW with the losses of a run that was never stopped."""

import contextlib
import io
import json
import subprocess
import sys

import numpy as np
import pytest

import gangway as gw
from gangway.dcp import main

torch = pytest.importorskip("torch", reason="PyTorch is not installed; test.sh says from where it is borrowed")
dcp = pytest.importorskip("torch.distributed.checkpoint")

import llama_torch  # noqa: E402  (needs torch)
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict  # noqa: E402

SMALL = dict(vocab=19, dim=12, layers=2, heads=2, ffn=20)
ADAMW = dict(lr=1e-2, betas=(0.8, 0.95), eps=1e-7, weight_decay=0.1)
NORMS = ("model.norm.weight", "model.layers.*.input_layernorm.weight", "model.layers.*.post_attention_layernorm.weight")
RULES = [gw.Rule(norm, weight_decay=0.1) for norm in NORMS]  # PyTorch decays norms, too
TYPES = {"F64": np.float64, "I64": np.int64}


def tokens(step):
    return np.random.default_rng(step).integers(0, SMALL["vocab"], (3, 7))


def ours(seed):
    model = gw.Llama(**SMALL).parallelize(seed=seed, master_dtype="f64")
    return model, gw.AdamW(model, **ADAMW, rules=RULES)


def train(model, opt, steps):
    return [gw.train_step(model, opt, tokens(step)).loss for step in steps]


class Theirs(torch.nn.Module):
    """A Llama whose parameters have Hugging Face's names."""

    def __init__(self, values):
        super().__init__()
        for name, value in values.items():
            *folders, last = name.split(".")
            module = self
            for folder in folders:
                if folder not in module._modules:
                    module.add_module(folder, torch.nn.Module())
                module = module._modules[folder]
            module.register_parameter(last, torch.nn.Parameter(torch.tensor(value)))
        self.opt = torch.optim.AdamW(self.parameters(), **ADAMW)

    def train_steps(self, steps):
        found = []
        for step in steps:
            loss = llama_torch.loss(dict(self.named_parameters()), torch.tensor(tokens(step)), SMALL["heads"])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            found.append(loss.item())
        return found


def read(path):
    """The tensors of a safetensors file, by the words of its format alone."""
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(content[begin:][slice(*t["data_offsets"])], TYPES[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items()}


def write(path, tensors):
    header, end = {}, 0
    for name, value in tensors.items():
        kind = next(kind for kind, dtype in TYPES.items() if value.dtype == dtype)
        header[name] = {"dtype": kind, "shape": value.shape, "data_offsets": [end, end := end + value.nbytes]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(value.tobytes() for value in tensors.values()))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The checkpoint of a run after 3 steps, and the losses of the 3 that follow."""
    path = tmp_path_factory.mktemp("run")
    model, opt = ours(1)
    train(model, opt, range(3))
    run = gw.Checkpoints(path, synchronous=True)
    run.save(model, opt, step=3)
    run.release()
    return path / "step-00000003", train(model, opt, range(3, 6))


def test_a_checkpoint_has_the_names_and_shapes_that_its_config_says(saved):
    config = json.loads((saved[0] / "config.json").read_text())
    dim, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    layer = {"input_layernorm": (dim,), "post_attention_layernorm": (dim,), "self_attn.q_proj": (heads, dim),
             "self_attn.k_proj": (kv, dim), "self_attn.v_proj": (kv, dim), "self_attn.o_proj": (dim, heads),
             "mlp.gate_proj": (ffn, dim), "mlp.up_proj": (ffn, dim), "mlp.down_proj": (dim, ffn)}
    wanted = {"model.embed_tokens.weight": (vocab, dim), "model.norm.weight": (dim,), "lm_head.weight": (vocab, dim)}
    for i in range(config["num_hidden_layers"]):
        wanted |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    assert {name: value.shape for name, value in read(saved[0] / "model.safetensors").items()} == wanted
    moments = {f"{moment}.{name}": shape for moment in ("exp_avg", "exp_avg_sq") for name, shape in wanted.items()}
    assert {name: value.shape for name, value in read(saved[0] / "optimizer.safetensors").items()} == moments


def test_torch_adamw_continues_from_our_optimizer_file(saved):
    folder, wanted = saved
    theirs = Theirs(read(folder / "model.safetensors"))
    states = read(folder / "optimizer.safetensors")
    steps = json.loads((folder / "state.json").read_text())["optimizers"][""]["steps"]
    for name, parameter in theirs.named_parameters():
        theirs.opt.state[parameter] = {"step": torch.tensor(float(steps)),
                                       **{moment: torch.tensor(states[f"{moment}.{name}"]) for moment in ("exp_avg", "exp_avg_sq")}}
    np.testing.assert_allclose(theirs.train_steps(range(3, 6)), wanted, rtol=1e-12)
    fresh = Theirs(read(folder / "model.safetensors")).train_steps(range(3, 6))
    assert abs(fresh[-1] - wanted[-1]) > 1e-6  # the moments matter


def test_our_adamw_continues_from_a_state_dict_of_torch(tmp_path):
    theirs = Theirs(ours(2)[0].state_dict())
    theirs.train_steps(range(3))
    write(tmp_path / "model.safetensors", {name: value.detach().numpy() for name, value in theirs.named_parameters()})
    names = [name for name, _ in theirs.named_parameters()]
    states = theirs.opt.state_dict()["state"]  # by the parameters' numbers
    write(tmp_path / "adamw.safetensors", {
        **{f"{moment}.{name}": states[i][moment].numpy() for i, name in enumerate(names) for moment in ("exp_avg", "exp_avg_sq")},
        "step": np.array([3])})
    model, opt = ours(3)
    model.load(tmp_path / "model.safetensors")
    gw.load_optimizer(opt, tmp_path / "adamw.safetensors")
    assert opt.steps == 3
    np.testing.assert_allclose(train(model, opt, range(3, 6)), theirs.train_steps(range(3, 6)), rtol=1e-12)


def convert(*arguments):
    """What python -m gangway.dcp prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main(list(map(str, arguments)))
    return printed.getvalue()


def refused(*arguments):
    """Its text for the user."""
    with pytest.raises(SystemExit) as error:
        convert(*arguments)
    return str(error.value)


@pytest.mark.parametrize("flat", [False, True])
def test_torch_loads_our_checkpoint_as_its_own_and_continues(saved, tmp_path, flat):
    folder, wanted = saved
    assert "21 tensors of the model, AdamW after 3 steps" in convert("from-gangway", folder, tmp_path / "dcp")
    theirs = Theirs(ours(5)[0].state_dict())
    options = dcp.state_dict.StateDictOptions(flatten_optimizer_state_dict=flat)
    model, optim = get_state_dict(theirs, theirs.opt, options=options)
    dcp.load({"model": model, "optim": optim}, checkpoint_id=str(tmp_path / "dcp"))
    set_state_dict(theirs, theirs.opt, model_state_dict=model, optim_state_dict=optim, options=options)
    for group in theirs.opt.param_groups:
        assert group["lr"] == 1e-2 and group["betas"] == (0.8, 0.95) and group["eps"] == 1e-7
        group["weight_decay"] = 0.1  # the flattened form has what gangway does without rules: no decay of norms
    np.testing.assert_allclose(theirs.train_steps(range(3, 6)), wanted, rtol=1e-12)


@pytest.mark.parametrize("layout", ["nested", "flattened", "model at the top", "flat names"])
def test_we_load_a_dcp_folder_and_continue(tmp_path, layout):
    theirs = Theirs(ours(2)[0].state_dict())
    theirs.train_steps(range(3))
    options = dcp.state_dict.StateDictOptions(flatten_optimizer_state_dict=layout == "flattened")
    model, optim = get_state_dict(theirs, theirs.opt, options=options)
    saved = {"model": model, "optim": optim, "train_state": {"step": torch.tensor(3)}}
    if layout == "model at the top":
        saved = {**model, "optimizer": optim, "train_state": {"step": torch.tensor(3)}}
    if layout == "flat names":
        saved = {**model, **{f"optim.state.{name}.{state}": value for name, of in optim["state"].items() for state, value in of.items()}}
    dcp.save(saved, checkpoint_id=str(tmp_path / "dcp"))
    assert "21 tensors of the model, AdamW after 3 steps" in convert("to-gangway", tmp_path / "dcp", tmp_path / "out")
    ourselves, opt = ours(3)
    ourselves.load(tmp_path / "out")
    gw.load_optimizer(opt, tmp_path / "out" / "optimizer.safetensors")
    np.testing.assert_allclose(train(ourselves, opt, range(3, 6)), theirs.train_steps(range(3, 6)), rtol=1e-12)


def test_a_round_trip_keeps_every_bit(saved, tmp_path):
    convert("from-gangway", saved[0], tmp_path / "dcp", "--model-key", "", "--optimizer-key", "optimizer")
    command = [sys.executable, "-P", "-m", "gangway.dcp", "to-gangway", str(tmp_path / "dcp"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "21 tensors of the model, AdamW after 3 steps" in done.stdout, done.stdout + done.stderr
    for file in ("model.safetensors", "optimizer.safetensors"):
        before, after = read(saved[0] / file), read(tmp_path / "out" / file)
        assert after.pop("step", 3) == 3
        assert {name: value.tobytes() for name, value in before.items()} == {name: value.tobytes() for name, value in after.items()}


@pytest.mark.parametrize("family", ["gpt2", "phi3"])
def test_states_of_families_with_other_names_go_both_ways(tmp_path, family):
    """Fused rows and transposed matrices: the step after is that of a run that was never stopped, to the last bit."""
    def make(seed):
        model = gw.Decoder(family=family, vocab=19, dim=12, layers=2, heads=2, max_positions=16).parallelize(seed=seed)
        return model, gw.AdamW(model, lr=1e-2)

    model, opt = make(1)
    train(model, opt, range(2))
    run = gw.Checkpoints(tmp_path / "run", synchronous=True)
    run.save(model, opt)
    convert("from-gangway", tmp_path / "run" / "step-00000002", tmp_path / "dcp")
    held = dcp.FileSystemReader(str(tmp_path / "dcp")).read_metadata().state_dict_metadata
    moments = {name.removeprefix("optim.state.").removesuffix(".exp_avg"): held[name].size for name in held if name.endswith(".exp_avg")}
    assert moments and all(size == held[f"model.{name}"].size for name, size in moments.items())
    assert held["model.lm_head.weight"].size == (19, 12)  # gpt2 ties it
    convert("to-gangway", tmp_path / "dcp", tmp_path / "back")
    (tmp_path / "own").mkdir()  # the library's own names and layouts
    write(tmp_path / "own" / "optimizer.safetensors", {
        "step": np.array([2], np.int64), **{f"{state}.{p.name}": p.state(opt, state).astype(np.float64)
                                            for p in model for state in ("exp_avg", "exp_avg_sq")}})
    losses = train(model, opt, range(2, 4))
    for folder in ("back", "own"):
        other, other_opt = make(2)
        other.load(tmp_path / "back" / "model.safetensors")
        gw.load_optimizer(other_opt, tmp_path / folder / "optimizer.safetensors")
        assert train(other, other_opt, range(2, 4)) == losses
    other, other_opt = make(3)
    run.restore(other, other_opt)
    assert train(other, other_opt, range(2, 4)) == losses


def test_what_cannot_be_converted_is_named(saved, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert "is no empty folder" in refused("from-gangway", saved[0], tmp_path / "full")
    assert "is no DCP folder" in refused("to-gangway", tmp_path / "full", tmp_path / "out")
    assert "has neither model.safetensors nor" in refused("from-gangway", tmp_path / "full", tmp_path / "out")
    layer = torch.nn.Linear(2, 1)
    for name, opt, says in (("sgd", torch.optim.SGD(layer.parameters(), momentum=0.9), "the state momentum_buffer, which AdamW has not"),
                            ("amsgrad", torch.optim.AdamW(layer.parameters(), amsgrad=True), "the state max_exp_avg_sq")):
        layer(torch.ones(1, 2)).sum().backward()
        opt.step()
        model, optim = get_state_dict(layer, opt)
        dcp.save({"model": model, "optim": optim}, checkpoint_id=str(tmp_path / name))
        assert says in refused("to-gangway", tmp_path / name, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        assert "no optimizer" in convert("to-gangway", tmp_path / name, tmp_path / f"{name}-out", "--model-only")
        assert "give --model-key" in refused("to-gangway", tmp_path / name, tmp_path / "out", "--model-key", "other")
