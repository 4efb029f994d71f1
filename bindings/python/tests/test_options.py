"""Keywords are explicit, typed and have the library's defaults; a wrong argument is refused in the package's words."""

import importlib.util
import inspect
import math
import pydoc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gangway as gw
from gangway import low
from gangway.enums import DType, Open
from gangway.structs import fields_of, struct

# What each callable sets, the struct that it sets it in, and which fields it leaves to others or has under another name.
RULES = {"rules", "rule_count"}
NESTED = {"shard", "tensor_parallel", "pipeline", "first_layers", "first_layer_count"}
ROWS = {"rows", "row_count"}
GANG = {"id_size", "user", "free_user", "timeout_ms", "liveness_ms"}
STEP = ("gw_step_options", {"scale"})
CALLABLES = [
    (gw.Decoder.__init__, "gw_decoder_options", set()),
    (gw.Attention.__init__, "gw_attention_options", set()),
    (gw.Block.__init__, "gw_attention_options", set()),
    (gw.Module.parallelize, "gw_parallel_options", NESTED),
    (gw.Module.parallelize, "gw_shard_options", RULES),
    (gw.Module.parallelize, "gw_tensor_parallel_options", ROWS),
    (gw.from_pretrained, "gw_parallel_options", NESTED),
    (gw.from_pretrained, "gw_shard_options", RULES),
    (gw.from_pretrained, "gw_tensor_parallel_options", ROWS),
    (gw.Module.tensor_parallel, "gw_tensor_parallel_options", ROWS),
    (gw.Module.fully_shard, "gw_shard_options", RULES),
    (gw.Module.replicate, "gw_shard_options",
     RULES | {"strategy", "reshard_after_forward", "cpu_offload", "prefetch_forward", "prefetch_backward"}),
    (gw.ShardGroup.__init__, "gw_shard_options", RULES),
    (gw.shard, "gw_shard_options", RULES),
    (gw.Module.generate, "gw_generate_options", {"stop_count", "user"}),
    (gw.FeedForward.__init__, "gw_feed_forward_options", set()),
    (gw.Module.lora_apply, "gw_lora_options", set()),
    (gw.Module.fp8_apply, "gw_fp8_options", set()),
    (gw.verify, "gw_verify_options", set()),
    (gw.Module.save, "gw_save_options", set()),
    (gw.Module.load, "gw_load_options", set()),
    (gw.Checkpoints.__init__, "gw_checkpoints_options", {"timeout_ms"}),  # timeout, in seconds
    (gw.Checkpoints.restore, "gw_restore_options", {"no_verify", "partial"}),  # verify, strict
    (gw.Frame.__init__, "gw_frame_options", set()),
    (gw.Rule.__init__, "gw_optimizer_rule", {"pattern"}),
    *((getattr(gw, name).__init__, f"gw_{name.lower()}_options", {"rules", "rule_count"})
      for name in gw.optimizers.__all__ if name != "Schedule"),
    (gw.CustomOptimizer.__init__, "gw_custom_optimizer_options",
     {"rules", "rule_count", "states", "state_count", "step", "user", "free_user", "name"}),  # name: the class's own default
    (gw.Dataset.__init__, "gw_dataset_options", {"sources", "source_count"}),
    (gw.Metrics.__init__, "gw_metrics_options", {"sink", "user", "free_user"}),
    (gw.plan_memory, "gw_plan_options", {"option_names", "option_values", "option_count"}),  # optimizer_options
    (gw.Optimizer.step, "gw_step_options", {"microbatches", "replay", "label_smoothing", "z_loss"}),  # of a batch
    (gw.train_step, *STEP),
    (gw.eval_step, "gw_step_options", {"scale", "max_grad_norm", "norm_type", "allow_non_finite", "stop", "replay", "gradient_norms"}),
    (gw.train_step, "gw_batch", {"inputs", "targets", "input_count", "target_count"}),
    (gw.eval_step, "gw_batch", {"inputs", "targets", "input_count", "target_count"}),
    (gw.Pipeline.__init__, "gw_pipeline_options", {"shard_actions"}),  # most_unsharded
    (gw.Gangs.create, "gw_mesh_options", set()),
    (gw.init, "gw_mesh_options", set()),
    (gw.Gang.create, "gw_gang_options", GANG),
    (gw.init, "gw_gang_options", GANG),
]


def same(default, field, made):
    """Whether a keyword's default is what C sets: None and () stand for that, a name for its number."""
    if default is None or default == ():
        return True
    if isinstance(default, str):
        if field.endswith("_dtype"):
            return gw.dtype_of(default) == made
        kinds = {"strategy": gw.Strategy, "recompute": gw.Recompute, "schedule": gw.Schedule,
                 "context_method": gw.ContextMethod, "stage_split": gw.StageSplit, "packing": gw.Packing,
                 "activation": gw.Activation, "qk_norm": gw.QkNorm, "norms": gw.BlockNorms, "scaling": gw.Fp8Scaling}
        return kinds[field][default.upper()] == made
    return default == made


@pytest.mark.parametrize("function, kind, others", CALLABLES, ids=[f"{f.__qualname__} {k}" for f, k, _ in CALLABLES])
def test_keywords_are_the_fields_of_c_with_its_defaults(function, kind, others):
    parameters, made = inspect.signature(function).parameters, struct(kind)
    assert not any(p.kind == inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    for field in fields_of(made):
        if field in others:
            continue
        assert field in parameters, f"{kind}.{field}"
        default = parameters[field].default
        if default is not inspect.Parameter.empty:
            assert same(default, field, getattr(made, field)), f"{field}: {default!r}, but C has {getattr(made, field)!r}"


def test_defaults_of_plain_arguments_are_those_of_c():
    block = inspect.signature(gw.Block.__init__).parameters["eps"].default
    assert block == inspect.signature(gw.RMSNorm.__init__).parameters["eps"].default == struct("gw_decoder_options").eps
    recompute, parallel = inspect.signature(gw.Module.recompute).parameters, struct("gw_parallel_options")
    assert (recompute["every"].default, recompute["ratio"].default) == (parallel.recompute_every, parallel.recompute_ratio)
    assert gw.Spec((1,)).deviation == struct("gw_init_options").deviation


def test_every_option_struct_has_its_callable():
    known = {kind for _, kind, _ in CALLABLES}
    # By custom.py, parameters.py and partition.py, under names of their own.
    others = {"gw_dtype_rule", "gw_custom_options", "gw_parameter_options", "gw_init_options", "gw_movement_options"}
    structs = {name for name in vars(low) if name.startswith("gw_") and name.endswith(("_options", "_rule", "gw_batch"))
               and inspect.isclass(getattr(low, name))}
    assert structs - others == known


def test_help_shows_keywords_and_defaults():
    text = pydoc.render_doc(gw.Llama, renderer=pydoc.plaintext)
    assert "kv_heads: 'int | None' = None" in text and "rope_theta: 'float | None' = None" in text
    text = pydoc.render_doc(gw.train_step, renderer=pydoc.plaintext)
    assert "max_grad_norm: 'float' = 0.0" in text and "labels that are not -100" in text


@pytest.mark.parametrize("line, says", [
    ("gw.Llama(dmi=16)", 'Unexpected keyword argument "dmi" for "Llama"'),
    ("gw.Llama().parallelize(None, stratgy=1)", 'Unexpected keyword argument "stratgy" for "parallelize"'),
    ("gw.AdamW(gw.Llama(), lr='big')", 'Argument "lr" to "AdamW" has incompatible type "str"'),
    ("gw.Llama().generate([1], tokens=3)", 'Unexpected keyword argument "tokens" for overloaded function "generate"'),
    ("gw.init(tpp=2)", 'Unexpected keyword argument "tpp" for "init"'),
])
def test_mypy_catches_wrong_keywords(line, says, tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    mypy = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={Path.cwd() / 'mypy'}", "-c"]
    done = subprocess.run([*mypy, f"import gangway as gw\n{line}"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and says in done.stdout, done.stdout


LINEAR, TOKENS = gw.Linear(3, 2).parallelize(), np.zeros((2, 8), np.int64)
WRONG_TYPES = [
    (lambda: gw.Llama(dim="16"), "dim is a str, not an integer"),
    (lambda: gw.Llama(dim=16.5), "dim is a float, not an integer"),
    (lambda: gw.Llama(eps="small"), "eps is a str, not a number"),
    (lambda: gw.Llama(tied="yes"), "tied is a str, not an integer"),
    (lambda: gw.Linear(2, None), "output_dim is a NoneType, not an integer"),
    (lambda: gw.RMSNorm(4, eps=()), "eps is a tuple, not a number"),
    (lambda: gw.Sequential(LINEAR, 3), r"modules\[1\] is a int, not a Module"),
    (lambda: gw.AdamW(LINEAR, lr=None) and gw.AdamW(LINEAR, lr=[]), "lr is a list, not a number"),
    (lambda: gw.AdamW([3]), "a shard group is a int, not a ShardGroup"),
    (lambda: gw.train_step(3, None, TOKENS), "model is a int, not a Module"),
    (lambda: gw.train_step(LINEAR, None, TOKENS), "optimizer is a NoneType, not a Optimizer"),
    (lambda: gw.train_step(LINEAR, gw.SGD(LINEAR), TOKENS, microbatches=1.5), "microbatches is a float, not an integer"),
    (lambda: gw.eval_step(LINEAR, TOKENS, weight="all"), "weight is a str, not an integer"),
    (lambda: gw.Linear(2, 2).parallelize(gw.Gang.create_fake(0, 1)), "gangs is a Gang, not a Gangs"),
    (lambda: gw.Linear(2, 2).parallelize(seed="x"), "seed is a str, not an integer"),
    (lambda: LINEAR.forward(np.ones((1, 3), np.float32), frame=3), "frame is a int, not a Frame"),
    (lambda: LINEAR.generate([1, "b"]), "an element is a str, not an integer"),
    (lambda: LINEAR.generate([[1], [1.5]]), "an element is a float, not an integer"),
    (lambda: LINEAR.clip_grad_norm("1"), "max_norm is a str, not a number"),
    (lambda: LINEAR["weight"] and LINEAR[3], "name is a int, not a str"),
    (lambda: gw.Gang.create(threads="all"), "threads is a str, not an integer"),
    (lambda: gw.Gang.create(store="/tmp", rank=0, size=1), "store is a str, not a Store"),
    (lambda: gw.Gangs.create(3), "root is a int, not a Gang"),
    (lambda: gw.Gang.create_fake(0, 1).broadcast_(np.ones(2), root="0"), "root is a str, not an integer"),
    (lambda: gw.ShardGroup(None, "g", {"w": [1.5, 2]}), "a list of integers is a parameter's dims; first values are an array"),
    (lambda: gw.ShardGroup("gangs", "g", {"w": (3,)}), "gangs is a str, not a Gangs"),
    (lambda: gw.ShardGroup(None, "g", {"w": gw.Spec(3)}), "object is not iterable"),
]


@pytest.mark.parametrize("call, says", WRONG_TYPES, ids=[says for _, says in WRONG_TYPES])
def test_a_wrong_type_is_a_type_error_in_the_words_of_the_package(call, says):
    with pytest.raises(TypeError, match=says) as caught:
        call()
    assert "in method" not in str(caught.value) and "argument 2" not in str(caught.value)


def test_numbers_out_of_range_name_the_argument_and_the_range():
    for call, says in ((lambda: gw.Llama(dim=1 << 70), f"dim is {1 << 70}, outside of"),
                       (lambda: gw.Linear(2, 2).materialize(seed=-1), r"seed is -1, outside of \[0, 18446744073709551615\]"),
                       (lambda: gw.Gang.create(threads=1 << 40), "threads is 1099511627776, outside of"),
                       (lambda: gw.Gang.create_fake(0, 1).create_gang([1 << 40]), "an element is 1099511627776, outside of")):
        with pytest.raises(gw.InvalidArgument, match=says):
            call()
    assert gw.Llama(dim=np.int64(32), heads=np.int32(4), eps=np.float32(0.5)).num_parameters() > 0


def test_calls_that_come_too_often_or_with_the_wrong_thing_say_what_to_do():
    model = gw.Llama(dim=32, layers=1, heads=4).parallelize()
    with pytest.raises(gw.InvalidState, match="parallelize"):
        model.parallelize()
    with pytest.raises(gw.InvalidArgument, match=r"tokens are u64 \[2, 8\], wanted i64"):
        model.forward(TOKENS.astype(np.uint64))
    with pytest.raises(gw.InvalidArgument, match=r"targets\[0\] is u64, but labels are i64"):
        gw.eval_step(model, TOKENS, TOKENS.astype(np.uint64))
    with pytest.raises(gw.InvalidArgument, match="token_count = -4|token_count is -4"):
        model.generate([1], token_count=-4)
    with pytest.raises(gw.InvalidArgument, match="dim is -4, but must be 1 or more"):
        gw.Llama(dim=-4)
    assert len(model.generate([1], token_count=3)) == 3
    with pytest.raises(gw.InvalidArgument, match="= 65 is over 64"):
        model.clip_grad_norm(1.0, 65)
    with pytest.raises(gw.InvalidArgument, match="norm_type"):
        gw.train_step(model, gw.SGD(model), TOKENS, norm_type=65)


def test_a_root_gang_and_options_of_a_new_one_are_refused_together():
    with pytest.raises(gw.InvalidArgument, match="init: timeout, rank is for a new root gang, but root is given"):
        gw.init(root=gw.Gang.create_fake(0, 1), timeout=3.0, rank=0)


def test_things_say_what_they_are():
    root = gw.Gang.create(name="alone")
    gangs = gw.Gangs.create(root)
    assert repr(root) == "<Gang alone: rank 0 of 1, self on cpu>" and repr(gangs) == "<Gangs: one rank; rank 0 of 1>"
    model = gw.Llama(vocab=16, dim=8, layers=1, heads=2, ffn=32, tied=True)
    assert repr(model) == "<Llama: 1,176 elements in 11 parameters>"
    model.parallelize(gangs)
    opt = gw.AdamW(model, lr=0.5)
    assert repr(opt) == "<AdamW: lr 0.5, 0 steps>"
    assert "model.norm.weight [8] F32" in repr(model["model.norm.weight"])
    assert repr(gw.Frame(model, step=3)) == "<Frame: step 3, microbatch 0, loss_scale 1>"
    assert repr(gw.ShardGroup(None, "g", {"w": (2,), "b": (1,)})) == "<ShardGroup g: w, b>"
    assert repr(root.barrier_async()) == "<Work: done>"
    opt.release()
    model.release()
    root.release()
    assert (repr(opt), repr(model), repr(root)) == ("<AdamW: released>", "<Llama: released>", "<Gang: released>")


def test_dtypes_and_infinity_are_options_too():
    model = gw.Linear(3, 2).parallelize(master_dtype=np.float64, reduce_dtype="f32", dtype_rules={"*": "bf16"})
    assert model["weight"].dtype == DType.F64
    result = gw.SGD(model, schedule=gw.Schedule.LINEAR, total_steps=10).step(max_grad_norm=1.0, norm_type=math.inf)
    assert result.step == 1 and isinstance(gw.Strategy.FULL_SHARD, Open)
