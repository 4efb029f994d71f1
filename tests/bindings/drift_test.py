#!/usr/bin/env python3
"""Every exported function is in each binding's lowest layer, and the layer that users of Rust and Julia see uses it or says
here why not. Rust's and Julia's lowest layers are committed; Python's is made while it is built, so it is made here. (Python's
upper layer puts names together, so its own tests say what it lacks; that C's tests call every function is a test of C.)

usage: drift_test.py SOURCE-ROOT
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# What the upper layers do without, and why.
COLLECTIVES = {f"gw_gang_{name}{form}" for form in ("", "_async") for name in (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all", "send", "recv")}
RETAINS = {f"gw_{kind}_retain" for kind in (
    "shard_group", "optimizer", "error", "bytes", "work", "frame", "parameter", "movement", "pipeline",
    "dataset", "checkpoints", "metrics")}
ALLOCATOR = {"gw_allocator_init", "gw_allocator_set"}  # its functions run on threads that know no Rust or Julia
WITHOUT = {
    "rust": COLLECTIVES - {"gw_gang_all_reduce"} | {"gw_gang_barrier_async"}  # by gw_gang_run, which takes counts, too
    | RETAINS  # one owner, or a borrow
    | ALLOCATOR
    | {"gw_error_take", "gw_error_describe", "gw_error_release"}  # gw_last_error on the thread of the call
    | {"gw_last_error_text"}  # an Error has all of gw_last_error
    | {"gw_abi_range"}  # the loader or gw_get_api refuse a library
    | {"gw_view_set"}  # views are filled in by the views of slices
    | {"gw_work_order"},  # no streams: a host's rank has none
    "julia": RETAINS | {"gw_gang_retain", "gw_store_retain", "gw_partition_retain"}  # one object for each handle
    | ALLOCATOR
    | {"gw_last_error", "gw_last_error_text"}  # gw_error_take: what allocates may run a finalizer, which calls the library
    | {"gw_dtype_bytes"}  # sizeof
    | {"gw_view_set"}  # views are filled in from arrays
    | {"gw_parameter_view", "gw_parameter_state"},  # as tensors, which keep their memory
}


def words(paths):
    return set(re.findall(r"\bgw_\w+", "\n".join(path.read_text() for path in paths)))


def used(language):
    """The functions that a language's upper layer names; Julia's macros name some by a part."""
    if language == "rust":
        return words((bindings / "rust/gangway/src").glob("*.rs"))
    paths = set((bindings / "julia/src").glob("*.jl")) - {bindings / "julia/src/LibGangway.jl"}
    text, names = "\n".join(path.read_text() for path in paths), words(paths)
    names |= {f"{name}_init" for name in names}
    names |= {f"{name}_release" for name in re.findall(r"^@handle \w+ (gw_\w+)", text, re.M)}
    return names | {f"{name}_async" for name in re.findall(r"^@collective\([^,]*,[^,]*, (gw_\w+)", text, re.M)}


root = pathlib.Path(sys.argv[1])
bindings = root / "bindings"
exports = (root / "capi/exports.txt").read_text().split()
bad, layers = [], {}

layers["julia/src/LibGangway.jl"] = re.findall(r"^(gw_\w+)\(", (bindings / "julia/src/LibGangway.jl").read_text(), re.M)
layers["rust/gangway-sys/src/functions.rs"] = re.findall(
    r"\bpub fn (gw_\w+)", (bindings / "rust/gangway-sys/src/functions.rs").read_text())
with tempfile.TemporaryDirectory() as made:
    swig = bindings / "python/swig"
    subprocess.run([sys.executable, swig / "generate.py", root / "capi/include", made], check=True)
    if shutil.which("swig"):
        subprocess.run(["swig", "-python", "-threads", "-DSWIGWORDSIZE64", "-w451", f"-I{made}", f"-I{swig}", "-outdir",
                        made, "-o", f"{made}/low_wrap.c", swig / "gangway.i"], check=True)
        layers["python (low.py)"] = re.findall(r"^(?:def )?(gw_\w+)(?:\(| = _low\.)",
                                               pathlib.Path(made, "low.py").read_text(), re.M)
    else:
        print("swig is not installed: python's layer is judged by what swig would be given")
        layers["python (headers.i)"] = re.findall(
            r"^GW_API [^;]*?\b(gw_\w+)\(", "\n".join(p.read_text() for p in pathlib.Path(made).rglob("*.h")), re.M)

for layer, names in layers.items():
    bad += [f"{layer} lacks {name}" for name in exports if name not in set(names)]
    bad += [f"{layer} has {name}, which is not exported" for name in sorted(set(names) - set(exports) - {"gw_get_api"})
            if not re.search(r"_(?:swigregister|t)$", name)]
for language, without in WITHOUT.items():
    names = used(language)
    bad += [f"{language}'s upper layer does not use {name}, and WITHOUT does not say why"
            for name in exports if name not in names | without]
    bad += [f"{language}'s upper layer uses {name}, which WITHOUT lists" for name in sorted(without & names)]
    bad += [f"WITHOUT lists {name}, which is not exported" for name in sorted(without - set(exports))]
print("\n".join(bad) or f"{len(exports)} functions in {', '.join(layers)}; upper layers use them or say why not")
sys.exit(1 if bad else 0)
