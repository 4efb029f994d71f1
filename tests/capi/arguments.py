#!/usr/bin/env python3
"""Writes ENTRY(function, "argument", ...) for every function that returns a gw_status. It reads the golden
ABI text.

usage: arguments.py ABI-TEXT OUTPUT
"""
import pathlib
import re
import sys

lines = []
for name, arguments in re.findall(r"^gw_status (gw_\w+)\((.*)\)$", pathlib.Path(sys.argv[1]).read_text(), re.M):
    names = [re.search(r"(\w+)(?:\[\])?$", argument).group(1) for argument in arguments.split(", ")]
    lines.append(f"ENTRY({', '.join([name] + [chr(34) + n + chr(34) for n in names])})\n")
pathlib.Path(sys.argv[2]).write_text("".join(lines))
