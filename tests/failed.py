#!/usr/bin/env python3
"""Writes down how each failed test is run again alone: rows "NAME<tab>SHELL COMMAND<tab>may|never<tab>COUNT" in a file.

  usage: failed.py ctest BUILD_DIR                      rows for the last ctest run
         failed.py pytest REPORT.xml FOLDER COMMAND...  a row for each failed test, which COMMAND runs in FOLDER
         failed.py command NAME COUNT COMMAND...        one row, for a command that has failed as a whole

The file is $GANGWAY_FAILED_LIST; without it nothing is written. COUNT is how many failures the row stands for.
"never": a pass at another time proves nothing. Such are runs of a sanitizer, what kills ranks, and what compares bits.
"""
import os
import pathlib
import re
import shlex
import sys
import xml.etree.ElementTree as ElementTree

import inputs
import passes
import results

# By names; a binding's row stands for all of its tests, of which some compare bits and some kill ranks.
STRICT = re.compile(r"[Bb]its?(?![a-z])|Same|EqualsTheSerialFold|[Rr]eproducib|[Ss]torm|[Kk]ill|[Dd]ies|[Rr]esume|"
                    r"^(?:mixed|rust|julia|examples|gw_train_test|hosts_test|gangrun_test)\b")
SANITIZERS = ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "GANGWAY_CPU_ISA")


def append(name, command, strict, count):
    with open(os.environ["GANGWAY_FAILED_LIST"], "a", encoding="utf-8") as rows:
        rows.write(f"{name}\t{command}\t{'never' if strict else 'may'}\t{count}\n")


def again(build, test, cases):
    """The command for some cases of a GoogleTest program, or for the whole entry."""
    around = [f"{name}={os.environ[name]}" for name in SANITIZERS if name in os.environ]
    if not all(case.strip(".") for case in cases or [""]) or passes.property_of(test, "ENVIRONMENT_MODIFICATION"):
        name = re.sub(r"([.+])", r"\\\1", test["name"])
        return ["env", "-u", "GTEST_OUTPUT", *around, "ctest", "--test-dir", str(build), "-R", f"^{name}$",
                "--output-on-failure", "--no-tests=error"]
    variables = passes.property_of(test, "ENVIRONMENT")
    variables = [value for value in variables if not value.startswith(("GTEST_OUTPUT=", "GTEST_FILTER="))]
    folder = passes.property_of(test, "WORKING_DIRECTORY") or str(build)
    seconds = str(int(passes.property_of(test, "TIMEOUT") or 1500))
    return ["env", "-u", "GTEST_OUTPUT", "-C", folder, *around, *variables, f"GTEST_FILTER={':'.join(cases)}",
            "timeout", seconds, *test["command"]]


def of_ctest(build):
    build = build.resolve()
    failed = {name: result for name, result in results.results(build).items() if result.failed}
    sanitized = inputs.Inputs(build).sanitized
    for test in passes.noted_entries(build) if failed else []:
        result = failed.pop(test["name"], None)
        if result:
            google = not any(word.endswith(inputs.WRAPPERS) for word in test["command"])
            strict = sanitized or passes.kills(test) or any(map(STRICT.search, [test["name"], *result.cases]))
            append(test["name"], shlex.join(again(build, test, result.cases if google else [])), strict, result.failed)
    for name in failed:  # what a rank wrote, whose entry has failed, too
        print(f"failed.py: {name} is no entry of ctest", file=sys.stderr)


def own_variables():
    return [f"{k}={v}" for k, v in os.environ.items() if k.startswith("GANGWAY_") and k != "GANGWAY_FAILED_LIST"]


def of_pytest(report, folder, command):
    around = ["env", "-C", folder, *own_variables()]
    root = next((word.split("=", 1)[1] for word in command if word.startswith("--rootdir=")), folder)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is None and case.find("error") is None:
            continue
        parts = case.get("classname").split(".")
        places = [pathlib.Path(root, *parts[:n]).with_suffix(".py") for n in range(1, len(parts) + 1)]
        used = next((n for n, place in enumerate(places, 1) if place.is_file()), len(parts))
        name, node = case.get("name"), "::".join([str(places[used - 1]), *parts[used:], case.get("name")])
        append(f"python: {case.get('classname')}.{name}", shlex.join([*around, *command, node]), STRICT.search(name), 1)


def main():
    what, arguments = sys.argv[1], sys.argv[2:]
    if "GANGWAY_FAILED_LIST" not in os.environ:
        return
    if what == "ctest":
        of_ctest(pathlib.Path(arguments[0]))
    elif what == "pytest":
        of_pytest(arguments[0], arguments[1], arguments[2:])
    elif what == "command":
        append(arguments[0], shlex.join(["env", *own_variables(), *arguments[2:]]), STRICT.search(arguments[0]), arguments[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
