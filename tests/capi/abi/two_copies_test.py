#!/usr/bin/env python3
"""Checks that two copies of the library in one process never bind to each other, and that no other library's
symbols replace theirs: functions of the ABI, C++ functions, weak templates, inline variables, type
information.

usage: two_copies_test.py PROGRAM LIBRARY
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

program, library = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
bad = []


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def runs(name, copy, **env):
    done = subprocess.run([program, library, copy], env={**os.environ, **env}, capture_output=True, text=True, timeout=100)
    if done.returncode != 0:
        bad.append(f"{name}: ends with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def traps(folder):
    """Makes a library that defines every name of the library: functions end the process, objects are full of
    ones."""
    kinds = {}
    for line in output("nm", "--defined-only", library).splitlines():
        kind, name = line.split()[-2:]
        name = name.partition("@")[0]
        if re.fullmatch(r"gw_\w+|_Z\w*7gangway\w*", name):  # libraries share other names on purpose
            kinds[name] = kind.upper()
    found = {"functions": [n for n, kind in kinds.items() if kind in "TW"],
             "objects": [n for n, kind in kinds.items() if kind not in "TW"]}
    for what, wanted in (("functions of the ABI", r"gw_\w+"), ("C++ functions", r"_ZN7gangway\w+"),
                         ("weak templates", r"_Z\w+I\w*7gangway\w+"), ("type information", r"_ZTI\w*7gangway\w+")):
        if not any(re.fullmatch(wanted, name) for name in kinds):
            bad.append(f"the library's symbol table names no {what}: it was stripped, and nothing is tried")
    text = "".join(f".globl {n}\n.type {n}, @function\n{n}:\n" for n in found["functions"]) + "ud2\n.data\n.balign 64\n"
    text += "".join(f".globl {n}\n.type {n}, @object\n.size {n}, 64\n{n}:\n" for n in found["objects"])
    source, made = folder / "traps.s", folder / "libtraps.so"
    source.write_text(f".text\n{text}.fill 8, 8, -1\n.section .note.GNU-stack,\"\",@progbits\n")
    subprocess.run(["cc", "-shared", "-nostdlib", "-o", made, source], check=True)
    return made, found


# The loader may bind the names of the C and C++ libraries and of other needed libraries elsewhere, but not
# this library's.
for line in output("nm", "-D", library).splitlines():
    kind, name = line.split()[-2:]
    if kind == "u":
        bad.append(f"{name} is unique in the whole process (STB_GNU_UNIQUE)")
    elif kind in "UwvWV" and "7gangway" in name:
        bad.append(f"{name} is looked up in other libraries ({kind})")
bound = [line for line in output("readelf", "-rW", library).splitlines() if re.search(r" gw_\w+", line)]
bad += [f"a relocation by name: {line}" for line in bound[:3]]
flags = "".join(re.findall(r"FLAGS.*", output("readelf", "-d", library)))
if "NOW" not in flags:
    bad.append(f"symbols are bound when they are first used (flags {flags!r})")

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    copy = shutil.copy(library, folder / library.name)
    runs("two copies", copy)
    preload, found = traps(folder)
    runs("two copies beside traps", copy, LD_PRELOAD=str(preload))
print("\n".join(bad) or f"two copies keep apart, {len(found['functions'])} functions and {len(found['objects'])} objects "
      "of their names notwithstanding")
sys.exit(1 if bad else 0)
