#!/usr/bin/env python3
"""Counts the results of a ctest run in a build folder: "passed failed skipped".

GoogleTest and CMocka programs leave XML files in results/ and are counted test by test, a skipped one with its reason
on standard error, as is a failed one; every other ctest entry counts as one, as skipped when it printed a line that begins with "skipped: ". A program that ended badly without a failed test (a crash, a
time-out) counts as one failure.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

build = pathlib.Path(sys.argv[1])
logs = sorted((build / "Testing/Temporary").glob("LastTest.log"))
if not logs:
    sys.exit("no LastTest.log")
entries, reasons, output = {}, {}, ""
for block in re.split(r"^-{58}$", logs[-1].read_text(errors="replace"), flags=re.M):
    name = re.search(r'^"(\S+)" (?:end time|start time)', block, re.M)
    if name:
        # The second where the test's output is compared with a regular expression.
        entries[name.group(1)] = re.match(r"\s*Test Pass(ed\.| Reason:)", block) is not None
        reasons[name.group(1)] = re.findall(r"^skipped: (.*)", output, re.M)
    output = block

passed = failed = skipped = 0
counted = set()
for path in sorted((build / "results").glob("*.xml")):
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError:
        continue  # died while writing: counted below by its ctest entry
    bad = 0
    for case in root.iter("testcase"):
        if case.find("skipped") is not None or case.get("result") == "skipped":
            skipped += 1
            message = case.find("skipped").get("message", "") if case.find("skipped") is not None else ""
            message = message.strip() or "; ".join(reasons.get(path.stem, []))  # CMocka has no place for it
            print(f"skipped: {case.get('classname') or path.stem}.{case.get('name')}: {message}", file=sys.stderr)
        elif case.find("failure") is not None or case.find("error") is not None:
            bad += 1
            print(f"failed: {path.stem}: {case.get('classname')}.{case.get('name')}", file=sys.stderr)
        elif case.get("status", "run") == "run":
            passed += 1
    failed += bad
    counted.add(path.stem)
    if bad == 0 and not entries.get(path.stem, True):
        failed += 1
        print(f"failed: {path.stem}: ended badly", file=sys.stderr)
for name, good in entries.items():
    if name not in counted and good and reasons[name]:
        skipped += 1
        print(f"skipped: {name}: {'; '.join(reasons[name])}", file=sys.stderr)
    elif name not in counted:
        passed += good
        failed += not good
        if not good:
            print(f"failed: {name}", file=sys.stderr)
print(passed, failed, skipped)
