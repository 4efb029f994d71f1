#!/usr/bin/env python3
"""Says which tests must run: a test that passed with the same bytes, here or in another clone, need not run again.

  usage: passes.py select BUILD_DIR [--all] [CTEST_ARGUMENT...]
             prints the names of the entries that must run, and notes which have a stored pass; --all: none has
         passes.py store BUILD_DIR
             stores what passed in the ctest run that followed
         passes.py binding BUILD_DIR NAME
             prints the key of a binding's own tests, the counts if they passed with it, and the reasons of what was skipped
         passes.py put BUILD_DIR NAME KEY PASSED FAILED SKIPPED
             stores that pass, if the key is still the same; standard input has the reasons of what was skipped

A pass is a small file with the name of its key in $GANGWAY_PASSES (~/.cache/gangway/passes). The key is a hash of all
that the test reads (inputs.py). Never stored are what failed, runs of a sanitizer, and what kills at random moments:
entries with "kill" or "storm" in their names, or the label "kills".
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import inputs
import results

STORE = pathlib.Path(os.environ.get("GANGWAY_PASSES") or
                     pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "gangway/passes"))
MOST = 10_000  # files of a block of 4 KiB: 40 MiB


def stored(key):
    """The result that was stored with this key, or None."""
    try:
        counts, *lines = (STORE / key).read_text().splitlines()
        result = results.Result(*map(int, counts.split()), lines=lines)
        os.utime(STORE / key)
        return result
    except (OSError, ValueError, TypeError):
        return None


def put(key, result):
    STORE.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=STORE, prefix=".new", delete=False) as file:
        file.write("\n".join([f"{result.passed} {result.failed} {result.skipped}", *result.lines]) + "\n")
    os.replace(file.name, STORE / key)


def forget_the_oldest():
    """Keeps the passes that were used last."""
    files = sorted((entry.stat().st_mtime, entry.path) for entry in os.scandir(STORE)) if STORE.is_dir() else []
    for _, path in files[:max(0, len(files) - MOST)]:
        pathlib.Path(path).unlink(missing_ok=True)


def property_of(test, name):
    return next((p["value"] for p in test.get("properties", []) if p["name"] == name), [])


def kills(test):
    return re.search("kill|storm", test["name"]) or "kills" in property_of(test, "LABELS")


def key_of(read, test):
    """The key of an entry, or "-" where a pass of it must not be stored."""
    words = test.get("command")
    if read.sanitized or not words or kills(test):
        return "-"
    variables = [*property_of(test, "ENVIRONMENT"), *property_of(test, "ENVIRONMENT_MODIFICATION")]
    variables = [value for value in variables if not value.startswith("GTEST_OUTPUT=")]
    pieces = [piece for word in [*words, *variables] for piece in re.split(r"[\s=:;]", word) if piece.startswith("/")]
    ours = {read.source, read.build}
    paths = [path for path in map(pathlib.Path, pieces) if ours & {path, *path.parents}]
    # A script may look at more of a program than what is loaded.
    is_program = read.build in pathlib.Path(words[0]).parents or any(word.endswith(inputs.WRAPPERS) for word in words)
    rest = [p for p in test["properties"] if p["name"] not in ("ENVIRONMENT", "LABELS", "TIMEOUT")]
    about = read.without_folders(json.dumps([test["name"], words, variables, rest]))
    return inputs.digest(read.machine(), about, *read.hashes(paths, whole=not is_program))


def entries(build, arguments):
    """ctest's entries. It empties its log of the last run when it shows them, so what comes after a run asks noted_entries."""
    shown = subprocess.check_output(["ctest", "--test-dir", build, "--show-only=json-v1", *arguments])
    return json.loads(shown)["tests"]


def noted_entries(build):
    return json.loads((build / "entries.json").read_text())


def select(build, arguments):
    """Notes the entries in entries.json, their keys in keys.json, and the passes that are known in answered.json."""
    use = "--all" not in arguments
    tests = entries(build, [word for word in arguments if word != "--all"])
    read = inputs.Inputs(build)
    keys = {test["name"]: key_of(read, test) for test in tests}
    known = {name: stored(key) for name, key in keys.items()} if use else {}
    known = {name: vars(result) for name, result in known.items() if result}
    (build / "entries.json").write_text(json.dumps(tests))
    (build / "keys.json").write_text(json.dumps(keys, indent=1))
    (build / "answered.json").write_text(json.dumps(known))
    print(*(name for name in keys if name not in known), sep="\n")


def answered(build):
    noted = build / "answered.json"
    rows = json.loads(noted.read_text()) if noted.exists() else {}
    return {name: results.Result(**row) for name, row in rows.items()}


def some_ran(build):
    """Whether the last selection left an entry to ctest."""
    noted = build / "keys.json"
    return not noted.exists() or len(json.loads(noted.read_text())) > len(answered(build))


def store(build):
    """Stores the passes whose tests read what they read before the run."""
    if not some_ran(build):
        return
    keys, ran = json.loads((build / "keys.json").read_text()), results.results(build)
    passed = [name for name in keys if keys[name] != "-" and name in ran and ran[name].passed and not ran[name].failed]
    read = inputs.Inputs(build)
    now = {test["name"]: key_of(read, test) for test in noted_entries(build) if test["name"] in passed}
    for name in passed:
        if now.get(name) == keys[name]:
            put(keys[name], ran[name])
    forget_the_oldest()


def binding_key(read, name):
    own = "bindings" if name in ("mixed", "examples") else f"bindings/{name}"
    sources = ("capi", "examples", "tests/bindings", "tests/data", own, "LICENSE", "CMakeLists.txt")
    # Python's tests look at every page and at what goes into a package of the sources.
    paths = [read.build, *([read.source] if name == "python" else (read.source / source for source in sources))]
    lent = sorted(path.name for path in read.build.glob("tests/bench/venv/lib/python3*/site-packages/*.dist-info"))
    tools = [inputs.said(os.environ.get(tool.upper(), tool), "--version") for tool in ("cargo", "julia")]
    return inputs.digest(read.machine(), name, *lent, *tools, *read.hashes(paths))


def binding(build, name):
    """The key of a binding's tests, and the result that is stored with it."""
    read = inputs.Inputs(build)
    key = binding_key(read, name)
    # Python's tests make the environment that those of mixed gangs and the examples run in.
    needs = ("mixed", "examples") if name == "python" else ()
    return key, stored(key) if all(stored(binding_key(read, other)) for other in needs) else None


def main():
    what, arguments = sys.argv[1], sys.argv[2:]
    if what == "select":
        select(pathlib.Path(arguments[0]), arguments[1:])
    elif what == "store":
        store(pathlib.Path(arguments[0]))
    elif what == "binding":
        key, result = binding(pathlib.Path(arguments[0]), arguments[1])
        print(key, *([result.passed, result.failed, result.skipped] if result else []))
        print(*(result.lines if result else []), sep="\n")
    elif what == "put":
        build, name, before, *counts = arguments
        key, _ = binding(pathlib.Path(build), name)
        if key == before:
            put(key, results.Result(*map(int, counts), lines=sys.stdin.read().splitlines()))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
