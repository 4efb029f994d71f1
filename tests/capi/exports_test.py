#!/usr/bin/env python3
"""Checks that the built library exports exactly the listed functions, that a C test calls each of them, and
that a test tries every floating option with infinity.

usage: exports_test.py SOURCE-ROOT LIBRARY
"""
import pathlib
import re
import subprocess
import sys
import tempfile

root, library = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(root / "capi"))
import levels  # noqa: E402

bad = []


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if subprocess.run([sys.executable, root / "capi/generate.py", "--check"]).returncode != 0:
    bad.append("capi/generate.py --check fails")

listed = set((root / "capi/exports.txt").read_text().split()) | {"gw_get_api"}
wanted = levels.nodes(listed)
node_of = {name: node for node, names in wanted.items() for name in names}
exported, nodes = set(), set()
for line in run("nm", "-D", "--defined-only", library).splitlines():
    kind, symbol = line.split()[-2:]
    name, _, node = symbol.partition("@@")
    if kind == "A":
        nodes.add(name)
    else:
        exported.add(name)
        if node != node_of.get(name, node):
            bad.append(f"{name} is of symbol node {node or 'none'} instead of {node_of[name]}")
for name in sorted(exported - listed):
    bad.append(f"{name} is exported, but not listed")
for name in sorted(listed - exported):
    bad.append(f"{name} is listed, but not exported")
if nodes != set(wanted):
    bad.append(f"symbol nodes {sorted(nodes)} instead of {sorted(wanted)}")

tests = "\n".join(p.read_text() for p in sorted((root / "tests/capi").glob("*.[ch]")))
# A name in a comment or in a text is no call.
tests = re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", "", tests, flags=re.S)
words = set(re.findall(r"\b(gw_\w+)\s*\(", tests))
rows = (root / "tests/capi/optimizer_rows.h").read_text()
words |= {f"gw_{kind}_create" for kind in re.findall(r"\bX\((\w+)\)", rows)}  # by OPTIMIZERS in struct_calls.h
words |= {f"gw_{name}_init" for name in re.findall(r"\b(?:INPUT|RESULT)\((\w+),", tests)}
for name in sorted(listed - words):
    bad.append(f"{name} is called by no C test")

finite = (root / "tests/capi/finite_test.c").read_text()
tried = set(re.findall(r"FLOAT\((\w+), (\w+)", finite + rows))
for header in sorted((root / "capi/include/gangway").glob("*.h")):
    for fields, name in re.findall(r"typedef struct gw_\w+ \{(.*?)\} gw_(\w+);", header.read_text(), re.S):
        if not name.endswith(("_options", "_rule")):
            continue
        for field in re.findall(r"\bdouble (\w+);", fields):
            if (name, field) not in tried:
                bad.append(f"gw_{name}.{field} is not tried with infinity in finite_test.c")

dynamic = run("readelf", "-d", library)
soname = re.search(r"SONAME.*\[(.*)\]", dynamic)
if soname is None or soname.group(1) != f"libgangway.so.{levels.MAJOR}":
    bad.append(f"SONAME is {soname and soname.group(1)}")
if "NODELETE" not in dynamic:
    bad.append("the library can be unloaded (no NODELETE)")
for needed in re.findall(r"NEEDED.*\[(.*)\]", dynamic):
    if re.search(r"cuda|nccl|mpi", needed, re.I):
        bad.append(f"the library needs {needed}")


def forbidden(file):
    """Returns the functions that a file refers to and that end the process, change global state, or print."""
    names = re.findall(r"\b[Uw] (\w+)", run("nm", "-D", "--undefined-only", file))
    return [n for n in names if re.fullmatch(FORBIDDEN, n)]


FORBIDDEN = (r"abort|_?_?exit|_Exit|quick_exit|raise|kill|tgkill|setenv|unsetenv|putenv|clearenv|setlocale|"
             r"signal|sigprocmask|(__)?v?f?printf(_chk)?|f?puts|putchar|perror|stdout|stderr|"
             r"_ZSt4cout|_ZSt4cerr|_ZSt4clog|system|popen|fork|exec\w+")
bad += [f"the library refers to {name}" for name in forbidden(library)]
# Signals keep what they did while a library is loaded; nothing else may change that.
top = pathlib.Path(__file__).resolve().parents[2]
bad += [f"{path.relative_to(top)} names sigaction" for folder in ("impl", "capi") for path in (top / folder).rglob("*.[ch]*")
        if path.name != "kept_signals.h" and "impl/tools" not in str(path) and "sigaction" in path.read_text(errors="replace")]
with tempfile.TemporaryDirectory() as folder:  # checks that forbidden() finds such functions
    source, stub = pathlib.Path(folder) / "stub.c", pathlib.Path(folder) / "libstub.so"
    source.write_text("#include <stdio.h>\n#include <stdlib.h>\n"
                      "void f(int x) { if (x > 1) abort(); if (x) exit(x); fprintf(stderr, \"%d\", x); setenv(\"a\", \"b\", 1); }\n")
    subprocess.run(["cc", "-w", "-O1", "-shared", "-fPIC", "-o", stub, source], check=True)
    if not {"abort", "exit", "setenv", "stderr"} <= set(forbidden(stub)):
        bad.append(f"of abort, exit, setenv and stderr only {forbidden(stub)} are seen in a library that calls them")

print("\n".join(bad) or f"{len(listed)} exports")
sys.exit(1 if bad else 0)
