#!/usr/bin/env python3
"""Every exported function is in each binding's lowest layer. Rust's and Julia's are committed; Python's is made while it
is built, so it is made here.

usage: drift_test.py SOURCE-ROOT
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

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
print("\n".join(bad) or f"{len(exports)} functions in {', '.join(layers)}")
sys.exit(1 if bad else 0)
