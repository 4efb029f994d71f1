#!/usr/bin/env python3
"""Checks that the release in CMakeLists.txt is the only source of release, level, SONAME and package name:
the files with these are generated from it, and no other file has one of them.

usage: version_test.py SOURCE-ROOT LIBRARY
"""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root, library = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(root / "capi"))
import version  # noqa: E402

FOLDERS = ["bindings", "capi", "examples", "impl", "pkgconfig", "tests"]
SUFFIXES = {".c", ".cmake", ".cpp", ".h", ".hpp", ".i", ".in", ".jl", ".map", ".md", ".py", ".rs", ".sh", ".toml", ".txt"}
NAMED = re.compile(r"libgangway\.so\.\d+|\blibgangway\d+\b|\bGW_\d+(?:\.\d+)?\b|kAbi(?:Major|Minor) = \d+|ABI_M\w+ = Int32\(\d+")
# Files with other levels: tests that invent levels, and the tables and pages of all levels.
OTHER_LEVELS = {"tests/capi/abi/levels_test.py", "tests/capi/abi/version_test.py", "capi/levels.py", "ABI.md", "CHANGELOG.md"}
bad = []


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def sources():
    for folder in FOLDERS:
        for place, folders, files in os.walk(root / folder):
            folders[:] = [f for f in folders if not f.startswith(("build", "target", "__pycache__", "levels", "old_headers"))]
            for path in (pathlib.Path(place) / file for file in files):
                if path.suffix in SUFFIXES and not path.is_symlink():
                    yield path.relative_to(root).as_posix(), path
    yield from ((path.name, path) for path in root.glob("*.md"))
    yield "CMakeLists.txt", root / "CMakeLists.txt"


made = set(version.outputs()) | {"capi/exports.map"}
for name, path in sources():
    if name not in made | OTHER_LEVELS:
        bad += [f"{name} says {found} by hand" for found in NAMED.findall(path.read_text(errors="replace"))]

with tempfile.TemporaryDirectory() as folder:
    copy = pathlib.Path(folder)
    for name in [*made, "CMakeLists.txt", "capi/levels.py", "capi/version.py", "capi/abi.txt"]:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, copy / name)
    script = [sys.executable, "-B", str(copy / "capi/version.py")]
    cmake = copy / "CMakeLists.txt"
    status, said = run(*script, "--check")
    if status != 0:
        bad.append(said)
    cmake.write_text(re.sub(r"VERSION [\d.]+ L", "VERSION 37.2.5 L", cmake.read_text()))
    status, said = run(*script, "--check")
    if status == 0:
        bad.append("another release in CMakeLists.txt is not noticed")
    if run(*script)[0] != 0 or run(*script, "--check")[0] != 0:
        bad.append("version.py does not make what it checks")
    for name in version.outputs():
        text = (copy / name).read_text()
        if "37" not in text or NAMED.search(text) and "37" not in NAMED.search(text)[0] and name != "capi/level.h":
            bad.append(f"{name} does not follow the release")
    for asked, wanted in (("soname", "libgangway.so.37"), ("package", "libgangway37"), ("level", "37.0")):
        if run(*script, asked)[1].strip() != wanted:
            bad.append(f"{asked} is {run(*script, asked)[1]!r} in release 37.2.5")

# The built library reports the same numbers.
loaded, numbers = ctypes.CDLL(library), [ctypes.c_int32(-1) for _ in range(5)]
loaded.gw_version(*map(ctypes.byref, numbers[:3]))
loaded.gw_abi_version(*map(ctypes.byref, numbers[3:]))
told = [n.value for n in numbers]
if told != [*version.levels.RELEASE, *version.levels.current()]:
    bad.append(f"the library says release and level {told}")
print("\n".join(bad) or f"release {version.facts()['release']}: {len(made)} files follow from it")
sys.exit(1 if bad else 0)
