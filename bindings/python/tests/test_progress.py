"""The progress bar, on a terminal and without one."""

import fcntl
import importlib.util
import os
import pty
import struct
import subprocess
import sys
import termios

import gangway as gw

STEPS = "import gangway as gw\nfor step in gw.progress(range(3), desc='steps', mininterval=0): pass"


def run(stderr, **environment):
    left = {n: v for n, v in os.environ.items() if n not in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")}
    return subprocess.run([sys.executable, "-c", STEPS], stderr=stderr, stdout=subprocess.PIPE, check=True,
                          env={**left, **environment})


def on_a_terminal(**environment):
    """What the program writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    run(theirs, **environment)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 1 << 16):
            said += part
    except OSError:  # Linux: nobody has the other end any more
        pass
    os.close(ours)
    return said.decode()


def test_on_a_terminal_one_line_moves():
    said = on_a_terminal()
    states = said.split("\r")
    assert said.endswith("\r\n") and said.count("\n") == 1
    assert states[1].startswith("steps:   0%|") and any(s.startswith("steps: 100%|") and "3/3" in s for s in states)


def test_without_a_terminal_each_state_is_a_line():
    said = run(subprocess.PIPE).stderr.decode()
    lines = said.splitlines()
    assert "\r" not in said and lines[0].startswith("steps:   0%|") and "0/3" in lines[0]
    assert lines[-1].startswith("steps: 100%|") and "3/3" in lines[-1] and all(line.startswith("steps:") for line in lines)


def test_other_ranks_are_silent():
    assert on_a_terminal(RANK="1") == "" and run(subprocess.PIPE, RANK="1").stderr == b""


def test_without_tqdm_it_is_the_iterable_itself(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    things = [1, 2]
    assert gw.progress(things, rank=0) is things


def test_progress_is_the_iterable_itself_off_rank_0(monkeypatch):
    things = [1, 2]
    assert gw.progress(things, rank=1) is things
    assert list(gw.progress(things, rank=0, disable=True)) == things
    monkeypatch.setenv("RANK", "3")
    assert gw.progress(things) is things
