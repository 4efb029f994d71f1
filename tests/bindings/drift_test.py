#!/usr/bin/env python3
"""Every exported function is in each binding's lowest layer, and what is made from the headers is up to date.
(Python's layer is made when it is built, so it cannot be out of date; Rust's types want the bindgen program:
bindings/rust/gangway-sys/generate.sh --check.)

usage: drift_test.py SOURCE-ROOT
"""
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
bindings = root / "bindings"
exports = (root / "capi/exports.txt").read_text().split()
bad = []

made = subprocess.run([sys.executable, bindings / "julia/gen/generate.py", "--check"], capture_output=True, text=True)
if made.returncode != 0:
    bad.append(made.stderr.strip())
for layer in ("julia/src/LibGangway.jl", "rust/gangway-sys/src/functions.rs"):
    names = set(re.findall(r"\bgw_\w+", (bindings / layer).read_text()))
    bad += [f"bindings/{layer} lacks {name}" for name in exports if name not in names]

print("\n".join(bad) or f"{len(exports)} functions in every layer")
sys.exit(1 if bad else 0)
