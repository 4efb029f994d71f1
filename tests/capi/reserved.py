#!/usr/bin/env python3
"""Writes RESERVED(name) for every struct gw_name that a caller sets up and that has a field `reserved`. It
reads the golden ABI text.

usage: reserved.py ABI-TEXT OUTPUT
"""
import pathlib
import re
import sys

text = pathlib.Path(sys.argv[1]).read_text()
structs = re.findall(r"^struct gw_(\w+)  size.*\n((?:  .*\n)*)", text, re.M)
lines = [f"RESERVED({name})\n" for name, fields in structs
         if re.search(r" reserved$", fields, re.M) and f"gw_{name}_init(" in text]
pathlib.Path(sys.argv[2]).write_text("".join(lines))
