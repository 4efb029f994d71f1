"""The low-level layer is whole, the package is typed, stores and launcher work, examples run."""

import ast
import gc
import importlib.util
import inspect
import math
import os
import re
import subprocess
import sys
import threading
import typing
import weakref
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from ranks import ALL, launch

import gangway as gw
from gangway import _low, level, low, names, optimizers
from gangway.structs import block, struct

TOP = Path(__file__).resolve().parents[1]
EXAMPLES = TOP / "examples"


def test_every_exported_function_is_present():
    exports = (TOP.parents[1] / "capi" / "exports.txt").read_text().split()
    names = [name for name in exports if re.fullmatch(r"gw_\w+", name) and name != "gw_get_api"]
    assert len(names) > 100
    assert [name for name in names if not hasattr(_low, name)] == []


def test_every_public_name_has_a_docstring():
    def bare(thing, name):
        found = [] if inspect.getdoc(thing) else [name]
        if inspect.isclass(thing) and thing.__module__.startswith("gangway."):
            for member, value in vars(thing).items():
                if not member.startswith("_") and (callable(value) or isinstance(value, (property, classmethod, staticmethod))):
                    found += bare(getattr(thing, member), f"{name}.{member}")
        return found

    assert [name for public in gw.__all__ for name in bare(getattr(gw, public), public)] == []


def test_functions_have_the_headers_comments():
    assert "Collective" in low.gw_gang_create.__doc__ and "count" in low.gw_gang_all_reduce.__doc__


def test_the_stubs_of_the_low_level_layer_are_the_headers_and_the_modules():
    done = subprocess.run([sys.executable, str(TOP / "swig" / "stubs.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    raw, structs = (ast.parse((TOP / "gangway" / name).read_text()).body for name in ("_low.pyi", "low.pyi"))
    functions = {node.name: [a.arg for a in node.args.args] for node in raw if isinstance(node, ast.FunctionDef)}
    assert len(functions) > 150
    for name, parameters in functions.items():
        if name.startswith("gw_"):
            assert list(inspect.signature(getattr(low, name)).parameters) == parameters, name
        assert callable(getattr(_low, name))
    constants = [node.target.id for node in raw if isinstance(node, ast.AnnAssign)]
    assert len(constants) > 80 and all(hasattr(_low, name) for name in constants)
    for node in structs:
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                assert isinstance(getattr(getattr(low, node.name), field.target.id), property), f"{node.name}.{field.target.id}"


def test_structs_have_their_defaults_and_keep_what_they_point_at():
    llama = struct("gw_decoder_options")
    assert (llama.vocab, llama.eps) == (256, 1e-5)
    options = struct("gw_gang_options", name="".join(["n", "ame"]), device="cpu")
    assert (options.name, options.device, options.engine, options.rank) == ("name", "cpu", None, -1)
    parameter = struct("gw_parameter_options", name="w", dims=(2, 3), ndim=2)
    assert tuple(parameter.dims) == (2, 3, 0, 0, 0, 0, 0, 0)
    with pytest.raises(gw.InvalidArgument, match="dims has 9 numbers, at most 8"):
        parameter.dims = (1,) * 9
    with pytest.raises(TypeError):
        parameter.name = 3
    assert block("i", []) is None
    with pytest.raises(TypeError, match="a view is wanted"):
        block("v", [1])
    with pytest.raises(TypeError, match="gang is a str, not a gw_gang handle"):
        _low.gw_gang_barrier("gang", None)
    for number in (1 << 70, 1 << 32):
        with pytest.raises(gw.InvalidArgument, match="an element is .*, outside of"):
            block("i", [number])


def test_configuration_log_and_memory_are_readable():
    assert "GANGWAY_TIMEOUT_MS" in gw.config() and gw.version() >= (0, 1, 0) and gw.abi_version() >= (0, 0)
    lines, following = gw.log()
    assert gw.log(following)[0] == "" and isinstance(lines, str)
    memory = gw.host_memory()
    assert 0 < memory["used"] < memory["total"] and 0 < memory["available"] <= memory["total"]
    assert _low.gw_last_error(struct("gw_error_info")) is None
    assert _low.gw_error_take() is None


def test_errors_can_be_kept_as_objects():
    with pytest.raises(gw.InvalidArgument):
        _low.gw_linear_create(-1, 2, 0)
    info = struct("gw_error_info")
    _low.gw_last_error(info)
    assert info.code == gw.Status.INVALID_ARGUMENT
    kept = _low.gw_error_take()
    _low.gw_error_describe(kept, info)
    assert "-1" in info.message


class Shared(gw.Store):
    def __init__(self):
        self.values, self.calls = {}, []
        super().__init__()

    def put(self, key, value):
        self.values[key] = value

    def get(self, key):
        self.calls.append(key)
        return self.values.get(key)

    def remove(self, key):
        self.values.pop(key, None)


@pytest.mark.parametrize("make", [Shared, None], ids=["callbacks", "file"])
def test_ranks_meet_in_a_store(make, tmp_path):
    if make is None:
        program = ("import sys, gangway as gw; s = gw.FileStore(sys.argv[1]); r = int(sys.argv[2]);"
                   "g = gw.Gang.create(store=s, rank=r, size=2, timeout=60);"
                   "assert g.all_sum(r + 1) == 3; g.shutdown()")
        ranks = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(r)]) for r in range(2)]
        assert [rank.wait(600) for rank in ranks] == [0, 0]
        return
    store = make()
    gang = gw.Gang.create(store=store, rank=0, size=1)
    assert gang.size == 1


def test_a_stores_attributes_may_be_set_after_it_is_registered():
    class Late(Shared):
        def __init__(self):
            gw.Store.__init__(self)
            self.values, self.calls, self.mark = {}, [], Late.Mark()

        class Mark:
            pass

    store = Late()
    sums = []
    ranks = [threading.Thread(target=lambda r=r: sums.append(gw.Gang.create(store=store, rank=r, size=2, timeout=60).all_sum(r)))
             for r in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert sums == [1, 1] and store.calls
    gone = weakref.ref(store.mark)
    del store
    gc.collect()
    assert gone() is None


def test_a_stores_exception_comes_back_as_itself():
    class Broken(Shared):
        def put(self, key, value):
            raise ZeroDivisionError("no put")

        def get(self, key):
            raise ZeroDivisionError("no get")

    with pytest.raises(ZeroDivisionError, match="no (put|get)"):
        gw.Gang.create(store=Broken(), rank=0, size=2, timeout=60)


def test_ranks_meet_by_the_callers_all_gather(tmp_path):
    program = """
import sys, time, pathlib, gangway as gw
folder, rank = pathlib.Path(sys.argv[1]), int(sys.argv[2])
def all_gather(mine):
    (folder / f"{rank}.part").write_bytes(mine)
    (folder / f"{rank}.part").rename(folder / str(rank))
    while not all((folder / str(r)).exists() for r in range(2)):
        time.sleep(0.01)
    return [(folder / str(r)).read_bytes() for r in range(2)]
gangs = gw.init(all_gather=all_gather, rank=rank, size=2, timeout=60)
assert gangs.root.all_sum(rank + 1) == 3
gangs.shutdown()
"""
    ranks = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(r)]) for r in range(2)]
    assert [rank.wait(600) for rank in ranks] == [0, 0]


def test_a_callers_all_gather_is_checked_and_freed():
    class Gather:
        def __init__(self, answer):
            self.answer = answer

        def __call__(self, mine):
            return self.answer(mine)

    def refuse(mine):
        raise ZeroDivisionError("no peers")

    for answer, kind, text in ((lambda mine: [mine], gw.InvalidArgument, r"2 of \d+ are needed"),
                               (lambda mine: [mine, mine], gw.InvalidArgument, "gave rank 1 of 2 the record of rank 0"),
                               (refuse, ZeroDivisionError, "no peers"), (lambda mine: 3, TypeError, "iterable")):
        gather = Gather(answer)
        gone = weakref.ref(gather)
        with pytest.raises(kind, match=text):
            gw.Gang.create(all_gather=gather, rank=0, size=2, timeout=60)
        del gather
        gc.collect()
        assert gone() is None


def test_ranks_meet_by_an_id():
    blob = gw.new_id()
    assert isinstance(blob, bytes) and len(blob) == 64 and blob != gw.new_id()
    program = ("import sys, gangway as gw; r = int(sys.argv[1]);"
               "g = gw.init(id=bytes.fromhex(sys.argv[2]), rank=r, size=2, timeout=60);"
               "assert g.rank == r and g.root.all_sum(r + 1) == 3; g.shutdown()")
    ranks = [subprocess.Popen([sys.executable, "-c", program, str(r), blob.hex()]) for r in range(2)]
    assert [rank.wait(600) for rank in ranks] == [0, 0]


def test_the_launcher_starts_ranks():
    output = launch(2, "-c", "import gangway as gw; g = gw.init(); print('rank', g.rank, 'of', g.size); g.shutdown()")
    assert "rank 0 of 2" in output and "rank 1 of 2" in output


def test_mypy_knows_the_types_of_the_package(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    user = """
from typing import Any
import numpy as np
import gangway as gw
gangs = gw.init(tp=2)
model = gw.Llama(dim=256, layers=4).parallelize(gangs, strategy="full_shard", recompute="selective")
opt = gw.AdamW(model, lr=3e-4)
loss: float = gw.train_step(model, opt, np.zeros(3), np.zeros(3), max_grad_norm=1.0).loss
rank: int = gangs["dp"].rank
count: int = gangs["dp"].all_sum(3)
mean: float = gangs["dp"].all_sum(3.5)
twice: "np.ndarray[Any, Any]" = gangs["dp"].all_reduce(np.zeros(3)) * 2
logits = model.forward(gangs["dp"].empty((2, 3), "i64"))[0] + 1
reveal_type(gangs["dp"].create_gang([0]))
with gw.Pipeline(gangs["pp"], schedule="zbv", microbatches=8) as pipe:
    for action in pipe:
        kind: gw.ActionKind = action.kind
        reveal_type(action.microbatch)
        pipe.done(*action.inputs)
class Loss:
    def forward(self, call: gw.Call) -> None: ...
    def backward_input(self, call: gw.Call) -> None: ...
gw.Custom(Loss(), outputs=2)
"""
    # What a strict user must not write, a line each.
    wrong = """
import numpy as np
import gangway as gw
gangs = gw.init()
model, x = gw.Llama(), np.zeros((2, 8))
opt = gw.AdamW(model)
gw.train_step(model, opt, 3)
gw.train_step(model, opt, [[1, 2], [3, 4]])
gw.eval_step(model, x, "labels")
model.parallelize(gangs, strategy="half_shard")
model.parallelize(gangs, schedule="1f2b")
model.parallelize(gangs, recompute="some")
model.parallelize(gangs, context_method="rings")
gw.AdamW(model, schedule="cosines")
gw.Decoder(family="gpt")
gw.mesh_preset("4d")
gw.Dataset("x.u16", packing="dense")
model.state_dict(kind="tensorflow")
gangs.root.all_reduce([1.0, 2.0])
gangs.root.all_reduce(x, "average")
gangs.root.broadcast_objects((1, 2))
model.save(3)
"""
    mypy = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={Path.cwd() / 'mypy'}"]
    done = subprocess.run([*mypy, "-c", wrong], capture_output=True, text=True, cwd=tmp_path)
    refused = {int(line) for line in re.findall(r"^<string>:(\d+): error", done.stdout, re.M)}
    assert refused == set(range(7, wrong.count("\n") + 1)), done.stdout
    done = subprocess.run([*mypy, "-c", user], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "Gang | None" in done.stdout and "int | None" in done.stdout, done.stdout + done.stderr
    source = TOP / "gangway"
    done = subprocess.run([*mypy, str(source)], capture_output=True, text=True, cwd=TOP)
    assert done.returncode == 0, done.stdout


def imports(tree, package):
    """The modules of this package that a module imports: also inside functions, and for types alone."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = package[:len(package) - node.level + 1] + (node.module or "").split(".") * bool(node.module)
        for alias in node.names:
            inner = (*base, alias.name)
            path = TOP.joinpath(*inner)
            is_module = path.with_suffix(".py").exists() or path.with_suffix(".pyi").exists() or path.is_dir()
            yield ".".join(inner if is_module else base)


def circle(graph):
    """A list of modules that import each other, or none."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name):]
        if name in done:
            return None
        path.append(name)
        for other in sorted(graph.get(name, ())):
            if found := visit(other):
                return found
        done.add(path.pop())
        return None

    return next((found for name in sorted(graph) if (found := visit(name))), None)


def test_no_modules_import_each_other():
    graph = {}
    for path in sorted((TOP / "gangway").rglob("*.py")):
        parts = path.relative_to(TOP).with_suffix("").parts
        package = list(parts[:-1])
        name = ".".join(package if parts[-1] == "__init__" else parts)
        graph[name] = {found for found in imports(ast.parse(path.read_text()), package) if found != name}
    assert len(graph) > 50 and graph["gangway.errors"] >= {"gangway.enums"}
    assert circle(graph) is None
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_the_version_is_that_of_release_and_distribution():
    assert gw.__version__ == ".".join(map(str, level.RELEASE)) == metadata.version("libgangway")


def test_the_names_in_types_are_those_of_the_library():
    def literals(alias):
        return {name for part in (typing.get_args(alias) if typing.get_origin(alias) is typing.Union else (alias,))
                for name in typing.get_args(part)}

    left_out = {"ReduceLike": {"none"}, "InitLike": {"fill"}}
    enums = [name for name in vars(names) if name.endswith("Like")]
    assert len(enums) >= 8
    for name in enums:
        kind = getattr(gw, name.removesuffix("Like"))
        assert literals(getattr(names, name)) == {m.lower() for m in kind.__members__} - left_out.get(name, set()), name
    assert literals(optimizers.ScheduleLike) == {m.lower() for m in optimizers.Schedule.__members__}
    for schedule in literals(names.PipelineSchedule):
        gw.Pipeline(gw.Gang.create_fake(0, 2), schedule=schedule, microbatches=8)
    for preset in literals(names.MeshPreset):
        assert gw.mesh_preset(preset, 2)
    for family in literals(names.Family):
        gw.Decoder(family=family)


def test_free_threads_of_python_share_a_gang():
    gang = gw.Gang.create_fake(0, 2)
    failures = []

    def run():
        try:
            for _ in range(200):
                assert gang.all_reduce(np.ones(3)).tolist() == [2, 2, 2]
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


PROGRAMS = [("all_reduce", 4, None), ("torch_module", 4, "torch"), ("fsdp2", 2, "torch"), ("jax_function", 2, "jax"),
            ("pipeline_custom_stage", 4, "torch")]
if ALL:  # tests/bindings/examples/test.sh compares what these print
    PROGRAMS += [("custom_module", 2, None), ("shard_group", 2, None), ("train_3d", 8, None)]


@pytest.mark.parametrize("name, ranks, needs", PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_every_example_runs(name, ranks, needs):
    output = launch(ranks, str(EXAMPLES / f"{name}.py"))
    if needs is not None and importlib.util.find_spec(needs) is None:
        assert f"skipped: {needs} is not installed" in output
        pytest.skip(f"{needs} is not installed")


def test_the_example_of_preferences_learns_them():
    losses = [float(line.split()[-1]) for line in launch(2, str(EXAMPLES / "dpo.py"), str(TOP.parents[1] / "LICENSE"), "20").splitlines()
              if "  loss " in line]
    assert losses[0] == pytest.approx(math.log(2), abs=1e-4)  # the policy is the reference
    assert len(losses) == 3 and losses[-1] < 0.6


def test_the_training_example_and_its_plot(tmp_path):
    text = TOP.parents[1] / "LICENSE"
    launch(2, str(EXAMPLES / "train_llama.py"), str(text), str(tmp_path), "12")
    assert (tmp_path / "model.safetensors").exists()
    done = subprocess.run([sys.executable, str(EXAMPLES / "plot.py"), str(tmp_path / "loss.csv"), str(tmp_path / "loss.svg")],
                          capture_output=True, text=True, env={**os.environ, "MPLCONFIGDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    if importlib.util.find_spec("matplotlib") is None:
        assert "skipped: matplotlib is not installed" in done.stdout
        pytest.skip("the plot: matplotlib is not installed")
    assert (tmp_path / "loss.svg").exists()


def test_examples_are_short():
    assert {p.name: n for p in EXAMPLES.glob("*.py") if (n := len(p.read_text().splitlines())) >= 100} == {}
