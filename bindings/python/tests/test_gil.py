"""Every blocking call lets other Python threads run: while rank 0 is known to wait inside of it for rank 1, which is held,
another thread advances. Which calls block, the low-level layer says itself."""

import faulthandler
import functools
import os
import subprocess
import sys
import tempfile

import pytest
from blocking_calls import ENTRIES, FOLDERS
from meeting import Meeting

import blocking_model_calls  # noqa: F401  adds its entries
from gangway import low

LOCAL_BUT_WAITS = {"gw_work_order"}
NEVER_WAITS = {
    "gw_gang_run", "gw_gang_run_batch",  # Python always asks for the work, so that they only start
    "gw_shard_group_end_update",  # collective, but it publishes and goes on
}


def blocking():
    """By the headers' own words: collective, or with a timeout."""
    names = {n for n in dir(low) if n.startswith("gw_") and not n.endswith("_async")}
    says = {n: getattr(low, n).__doc__ or "" for n in names}
    waits = {n for n, text in says.items() if text.split(".")[0].strip().startswith("Collective") or "timeout_ms" in text}
    return (waits | LOCAL_BUT_WAITS) - NEVER_WAITS


def test_every_blocking_call_has_an_entry():
    assert sorted(ENTRIES) == sorted(blocking())
    assert NEVER_WAITS < set(dir(low)) and len(ENTRIES) > 50


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_other_threads_advance_while_a_call_blocks(name):
    said = [line for line in run_all().splitlines() if line.startswith(f"{name}: ")]
    assert said == [f"{name}: other threads advanced"], run_all()


@functools.cache
def run_all():
    """In one process, where a call that keeps the interpreter's lock ends by a watchdog with a trace."""
    done = subprocess.run([sys.executable, __file__], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "GANGWAY_SHARED_REGIONS": "0"})
    return done.stdout


if __name__ == "__main__":
    sys.setswitchinterval(1e6)
    with tempfile.TemporaryDirectory() as folder:
        FOLDERS.append(folder)
        for NAME in sys.argv[1:] or sorted(ENTRIES):
            faulthandler.dump_traceback_later(Meeting.PATIENCE, exit=True)
            Meeting(NAME, ENTRIES[NAME]).run(blocking())
