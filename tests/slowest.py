#!/usr/bin/env python3
"""Prints where the time of a test run went: the slowest programs, and the sum of each label.

  usage: slowest.py BUILD_DIR [COUNT]

Reads the log of ctest (BUILD_DIR/Testing/Temporary/LastTest.log) and, where it is there, that of ninja: the seconds of
the build by kind of step. A step's seconds include those in which it waits for a processor.
"""
import collections
import pathlib
import re
import sys


def test_times(log):
    times, name = [], ""
    for line in log.splitlines():
        if start := re.match(r'"(\S+)" start time', line):
            name = start.group(1)
        elif seconds := re.match(r"Test time = +([0-9.]+) sec", line):
            times.append((float(seconds.group(1)), name))
    return sorted(times, reverse=True)


def step_kind(output):
    if output.endswith(".o"):
        return "compile " + ("impl" if output.startswith("impl/") else output.split("/")[0])
    if output.endswith(".gch") or output.endswith(".pch"):
        return "precompile headers"
    if output.endswith(".a"):
        return "archive"
    return "link" if "." not in pathlib.PurePath(output).name or ".so" in output else "generate"


def build_times(log):
    steps = {}
    for line in log.splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        if not output.startswith("/"):  # a custom command's output has a second, absolute name
            steps[output] = (int(end) - int(start)) / 1000
    kinds = collections.defaultdict(lambda: [0, 0.0])
    for output, seconds in steps.items():
        kinds[step_kind(output)][0] += 1
        kinds[step_kind(output)][1] += seconds
    return sorted(kinds.items(), key=lambda kind: -kind[1][1])


build, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10
if (build / ".ninja_log").exists():
    rows = build_times((build / ".ninja_log").read_text())
    print("   build: " + ", ".join(f"{kind} {seconds:.0f} s ({steps})" for kind, (steps, seconds) in rows if seconds >= 1))
times = test_times((build / "Testing/Temporary/LastTest.log").read_text(errors="replace"))
print(f"   tests: {sum(seconds for seconds, _ in times):.0f} s in {len(times)} programs; the slowest:")
for seconds, name in times[:count]:
    print(f"   {seconds:7.1f} s  {name}")
