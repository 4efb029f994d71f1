"""Runs failed tests again, alone: a test that passes three times is FLAKY and no longer a failure.

A leg leaves rows "NAME<tab>COMMAND<tab>may|never<tab>COUNT" of its failed tests (tests/failed.py); COUNT is how many
failures the row stands for, and "never" is a test of which a later pass proves nothing. No test is forgiven twice:
flaky.txt names those that were FLAKY once, until they are mended, and so does a file beside the stores of this
machine, since the last lines of a green run may stay unread.
"""
import os
import pathlib
import re
import signal
import subprocess
import time

TIMES = 3
MOST = 12  # more failures than these have a common cause
SECONDS = 600  # for all that is run again

recorded = pathlib.Path(__file__).with_name("flaky.txt")
remembered = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "gangway/flaky.txt")


def names_in(path):
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def rows_of(leg):
    lines = leg.rows.read_text().splitlines() if leg.rows and leg.rows.exists() else []
    return [line.split("\t") for line in lines]


def passes(command, deadline):
    """Whether the command ends well, and has run something: a test that skips itself has shown nothing."""
    run = subprocess.Popen(["bash", "-c", command], cwd=pathlib.Path(__file__).resolve().parent.parent,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           errors="replace", start_new_session=True)
    try:
        output, _ = run.communicate(timeout=max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        output, _ = run.communicate()
    ran = re.search(r"^\[  PASSED  \] [1-9]|^100% tests passed, 0 tests failed out of [1-9]|\b[1-9]\d* passed", output, re.M)
    skipped = re.search(r"\[  SKIPPED \]|\*\*\*Skipped|\b[1-9]\d* skipped", output)
    if run.returncode != 0:
        print("\n".join(output.splitlines()[-40:]))
    return run.returncode == 0 and ran is not None and skipped is None


def remember(name):
    try:
        remembered.parent.mkdir(parents=True, exist_ok=True)
        with open(remembered, "a", encoding="utf-8") as file:
            file.write(name + "\n")
    except OSError as error:
        print(f"{remembered} cannot be written: {error}")


def forgive(legs):
    """Takes what is FLAKY off the failures of its leg; returns the lines that say so."""
    told, before = [], names_in(recorded) | names_in(remembered)
    rows = [(leg, row) for leg in legs for row in rows_of(leg)]
    deadline = time.monotonic() + SECONDS
    if len(rows) > MOST:
        return [f"{len(rows)} tests failed, so none was run again alone"]
    for leg, (name, command, may, count) in rows:
        if may != "may":
            told.append(f"not run again: {name}: a later pass would prove nothing")
        elif name in before:
            told.append(f"not run again: {name}: it was FLAKY before and has not been mended")
        elif all(passes(command, deadline) for _ in range(TIMES)):
            leg.failed, leg.passed = leg.failed - int(count), leg.passed + int(count)
            told.append(f"FLAKY: {name} failed beside others and passed {TIMES} times alone: mend it next "
                        f"(until then its name belongs into .ci/flaky.txt, and stands in {remembered})")
            remember(name)
        else:
            told.append(f"run again alone: {name} failed again")
    return told
