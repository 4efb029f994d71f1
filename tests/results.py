"""The results of a ctest run in a build folder, for each entry.

GoogleTest and CMocka programs leave XML files in results/ and are counted test by test; every other entry counts as
one, as skipped when it printed a line that begins with "skipped: ". A program that ended badly without a failed test (a
crash, a time-out) counts as one failure.
"""
import dataclasses
import pathlib
import re
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class Result:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    cases: list = dataclasses.field(default_factory=list)  # that failed, as GoogleTest's filter names them
    lines: list = dataclasses.field(default_factory=list)  # what is said of failures and skips


def ended(build):
    """For each entry of the last run whether it ended well, and the reasons that it printed for what it skipped."""
    logs = sorted((build / "Testing/Temporary").glob("LastTest.log"))
    if not logs:
        raise SystemExit("no LastTest.log")
    good, reasons, output = {}, {}, ""
    for block in re.split(r"^-{58}$", logs[-1].read_text(errors="replace"), flags=re.M):
        name = re.search(r'^"(\S+)" (?:end time|start time)', block, re.M)
        if name:
            # The second where the test's output is compared with a regular expression.
            good[name.group(1)] = re.match(r"\s*Test Pass(ed\.| Reason:)", block) is not None
            reasons[name.group(1)] = re.findall(r"^skipped: (.*)", output, re.M)
        output = block
    return good, reasons


def of_file(path, reasons):
    result = Result()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        skip, name = case.find("skipped"), case.get("name")
        if skip is not None or case.get("result") == "skipped":
            result.skipped += 1
            # CMocka has no place for the reason.
            message = (skip.get("message", "") if skip is not None else "").strip() or "; ".join(reasons)
            result.lines.append(f"skipped: {case.get('classname') or path.stem}.{name}: {message}")
        elif case.find("failure") is not None or case.find("error") is not None:
            result.failed += 1
            result.cases.append(f"{case.get('classname')}.{name}")
            result.lines.append(f"failed: {path.stem}: {case.get('classname')}.{name}")
        elif case.get("status", "run") == "run":
            result.passed += 1
    return result


def results(build):
    """The result of each entry by its name; what ranks wrote has the name of their program."""
    good, reasons = ended(build)
    found = {}
    for path in sorted((pathlib.Path(build) / "results").glob("*.xml")):
        try:
            result = of_file(path, reasons.get(path.stem, []))
        except ElementTree.ParseError:
            continue  # died while writing: counted below by its ctest entry
        if result.failed == 0 and not good.get(path.stem, True):
            result.failed = 1
            result.lines.append(f"failed: {path.stem}: ended badly")
        found[path.stem] = result
    for name in good:
        if name in found:
            continue
        if good[name] and reasons[name]:
            found[name] = Result(skipped=1, lines=[f"skipped: {name}: {'; '.join(reasons[name])}"])
        else:
            found[name] = Result(int(good[name]), int(not good[name]), lines=[] if good[name] else [f"failed: {name}"])
    return found
