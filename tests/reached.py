#!/usr/bin/env python3
"""Names the tests that a change can reach: those that are newer than their last pass.

  usage: reached.py BUILD_DIR           prints one name a line, of ctest's tests in a folder that has just been built
         reached.py BUILD_DIR --passed  notes which tests of the last ctest run passed

A test is reached if anything that its command names changed since it passed: its program, which the build has linked
anew if any source of it changed, the libraries of the build that the program opens, a script, or a file of the folders
that its command names. A test that never passed here is reached, too.
"""
import json
import pathlib
import re
import subprocess
import sys

build = pathlib.Path(sys.argv[1]).resolve()
passed = build / "passed"
shared = [*build.glob("capi/*.so"), *build.glob("tests/gpu_emulation/*.so*")]


def newest(paths):
    return max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)


def opens_shared_libraries(program):
    head = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return "libgangway" in head or "libgpu_emulation" in head


def files_of(word):
    path = pathlib.Path(word)
    if path.is_file():
        # A script has its helpers beside it.
        return [path] if build in path.parents else [f for f in path.parent.iterdir() if f.is_file()]
    if path.is_dir() and path != build and build not in path.parents:
        listed = subprocess.run(["git", "ls-files", "-z", "."], cwd=path, capture_output=True, text=True).stdout
        return [path / name for name in listed.split("\0") if name]
    return []


def changed_at(test):
    words = test.get("command", [])
    files = [file for word in words for file in files_of(word)]
    environment = next((p["value"] for p in test.get("properties", []) if p["name"] == "ENVIRONMENT"), [])
    programs = [word for word in words if build in pathlib.Path(word).parents and pathlib.Path(word).is_file()]
    if any("GANGWAY_MODULES" in value for value in environment) or any(map(opens_shared_libraries, programs)):
        files += shared
    return newest(files)


if "--passed" in sys.argv:
    passed.mkdir(exist_ok=True)
    name = ""
    for line in (build / "Testing/Temporary/LastTest.log").read_text(errors="replace").splitlines():
        if start := re.match(r'"(\S+)" start time', line):
            name = start.group(1)
        elif line.startswith(("Test Passed.", "Test Pass Reason:")):
            (passed / name).touch()
    sys.exit()
tests = json.loads(subprocess.check_output(["ctest", "--test-dir", build, "--show-only=json-v1"]))["tests"]
for test in tests:
    last = passed / test["name"]
    if not last.exists() or changed_at(test) > last.stat().st_mtime:
        print(test["name"])
