#!/usr/bin/env python3
"""Processor time of a clean build of the library and its tools, as the quickstart makes it, without a compiler cache.

  usage: build_time.py [OPTION OF CMAKE]...      for instance -DCMAKE_BUILD_TYPE=Debug or -DGANGWAY_UNITY=OFF

Prints the time by folder, the ten dearest objects, the sum, and how long it took on this machine. As the launcher of
CMake's compilers (build_time.py --launched LOG COMPILER...) it writes down what one call used.
"""
import collections
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
TARGETS = "gangway gangrun gw-checkpoint gw-compare gw-info gw-plan gw-tokens gw-trace gw-train".split()


def used_by_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def launched(log, command):
    status = subprocess.call(command)
    output = command[command.index("-o") + 1] if "-o" in command else "?"
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{used_by_children():.2f}\t{output}\n")
    return status


def folder_of(output):
    parts = pathlib.PurePath(output).parts
    return "/".join(parts[:2]) if parts[0] == "impl" else parts[0]


def main(options):
    with tempfile.TemporaryDirectory() as build:
        log = pathlib.Path(build, "launched.tsv")
        launcher = f"{sys.executable};{pathlib.Path(__file__).resolve()};--launched;{log}"
        subprocess.run(["cmake", "-S", TOP, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DGANGWAY_STATIC=OFF",
                        "-DGANGWAY_CCACHE=", f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}", f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}",
                        *options], check=True, stdout=subprocess.DEVNULL)
        before, started = used_by_children(), time.monotonic()
        subprocess.run(["ninja", "-C", build, *TARGETS], check=True, stdout=subprocess.DEVNULL)
        spent, wall = used_by_children() - before, time.monotonic() - started
        rows = [line.split("\t") for line in log.read_text().splitlines()]
    objects = sorted(((float(seconds), output) for seconds, output in rows), reverse=True)
    folders = collections.defaultdict(lambda: [0, 0.0])
    for seconds, output in objects:
        folders[folder_of(output)][0] += 1
        folders[folder_of(output)][1] += seconds
    for folder, (count, seconds) in sorted(folders.items(), key=lambda row: -row[1][1]):
        print(f"{seconds:8.1f} s  {count:4d} objects  {folder}")
    print("the dearest:")
    for seconds, output in objects[:10]:
        print(f"{seconds:8.1f} s  {output}")
    print(f"{spent:8.1f} s of processors in all, {wall:.0f} s on {os.cpu_count()} cores")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--launched"]:
        sys.exit(launched(sys.argv[2], sys.argv[3:]))
    main(sys.argv[1:])
