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

build = pathlib.Path(sys.argv[1])
ran, answered = results.results(build) if passes.some_ran(build) else {}, passes.answered(build)
selected = json.loads((build / "keys.json").read_text())
lost = {name: results.Result(failed=1, lines=[f"failed: {name}: ctest's log does not have it"])
        for name in selected if name not in answered and name not in ran}
both = [*answered.values(), *ran.values(), *lost.values()]
for result in both:
    for line in result.lines:
        print(line, file=sys.stderr)
print(*(int(sum(getattr(result, kind) for result in both)) for kind in ("passed", "failed", "skipped")),
      sum(result.passed for result in answered.values()))
