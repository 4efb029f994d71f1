#!/usr/bin/env python3
"""Runs ctest and writes the processor time of each of its programs.

  usage: program_times.py FILE COMMAND...      FILE gets rows "NAME<tab>SECONDS"; ends with the command's status

ctest tells how long a program ran, not how long it computed. So this looks twice a second at what ctest's children have
used so far, the processes that they have waited for included; what a program uses after the last look is not in its row.
"""
import os
import pathlib
import subprocess
import sys
import time

TICK = os.sysconf("SC_CLK_TCK")


def children(parent):
    """The process ids of a process's children."""
    try:
        return pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return []


def entry_name(pid):
    """The name of ctest's entry: of the file that GoogleTest writes, or of the program or script."""
    variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    output = next((value for value in variables if value.startswith("GTEST_OUTPUT=xml:") and value.endswith(".xml")), "")
    if output:
        return pathlib.PurePath(output).stem
    words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    script = next((word for word in words[1:] if word.endswith((".sh", ".py"))), "")
    return pathlib.PurePath(script or words[0]).name


def used(pid):
    """When the process began, which tells it from a later one of its number, and the seconds that it has computed."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return fields[19], sum(map(int, fields[11:15])) / TICK  # utime, stime, and those of children that were waited for


def main():
    path, command = sys.argv[1], sys.argv[2:]
    ctest = subprocess.Popen(command)
    times = {}
    while ctest.poll() is None:
        for pid in children(ctest.pid):
            try:
                begun, seconds = used(pid)
                times[pid, begun] = (entry_name(pid), seconds)
            except (OSError, IndexError):
                pass  # it has ended
        time.sleep(0.5)
    with open(path, "w", encoding="utf-8") as file:
        for name, seconds in sorted(times.values(), key=lambda row: -row[1]):
            file.write(f"{name}\t{seconds:.1f}\n")
    return ctest.returncode


if __name__ == "__main__":
    sys.exit(main())
