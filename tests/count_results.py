#!/usr/bin/env python3
"""Counts the results of a ctest run in a build folder: "passed failed skipped before".

The last number is how many of the passed were not run, since they had passed with the same bytes (passes.py). What
failed or was skipped is on standard error, with the reason. An entry that was selected and of which ctest's log says
nothing has failed.
"""
import json
import pathlib
import sys

import passes
import results

MOST_NAMES = 4  # of tests that were skipped for one reason

build = pathlib.Path(sys.argv[1])
ran, answered = results.results(build) if passes.some_ran(build) else {}, passes.answered(build)
selected = json.loads((build / "keys.json").read_text())
lost = {name: results.Result(failed=1, lines=[f"failed: {name}: ctest's log does not have it"])
        for name in selected if name not in answered and name not in ran}
both = [*answered.values(), *ran.values(), *lost.values()]
skips = {}  # by reason, since hundreds of tests may have the same one
for line in (line for result in both for line in result.lines):
    if line.startswith("skipped: "):
        name, _, reason = line.removeprefix("skipped: ").partition(": ")
        skips.setdefault(reason.splitlines()[-1] if reason else "no reason", []).append(name)
    else:
        print(line, file=sys.stderr)
for reason, names in skips.items():
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    print(f"skipped: {reason}: {', '.join(names[:MOST_NAMES])}{more}", file=sys.stderr)
print(*(int(sum(getattr(result, kind) for result in both)) for kind in ("passed", "failed", "skipped")),
      sum(result.passed for result in answered.values()))
