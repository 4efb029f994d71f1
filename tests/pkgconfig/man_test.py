#!/usr/bin/env python3
"""The man pages are well-formed, and each says every option that the program's --help says, and no other.

usage: man_test.py PAGE PROGRAM [PAGE PROGRAM ...]
A program with subcommands is given with them: "gw-plan schedule"; its page says the options of all.
"""
import os
import re
import shutil
import subprocess
import sys

bad = []
checkers = [["man", "--warnings", "-E", "UTF-8", "-l"], ["mandoc", "-Tlint", "-W", "style"]]
missing = [c[0] for c in checkers if shutil.which(c[0]) is None]
checkers = [c for c in checkers if c[0] not in missing]
pairs = list(zip(sys.argv[1::2], sys.argv[2::2]))
for page, program in pairs:
    for checker in checkers:
        done = subprocess.run([*checker, page], stdout=subprocess.PIPE if checker[0] == "mandoc" else subprocess.DEVNULL,
                              stderr=subprocess.PIPE if checker[0] == "man" else subprocess.STDOUT, text=True)
        said = (done.stdout or "") + (done.stderr or "")
        if done.returncode != 0 or said:
            bad.append(f"{checker[0]} says of {page}: {said}")
    option = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
    text = re.sub(r"\\f.", "", open(page).read().replace(r"\-", "-"))
    options = text[text.index(".SH OPTIONS"):text.index(".SH EXIT STATUS")]
    told = set(option.findall("\n".join(line for line in options.splitlines() if line.startswith((".B ", ".BR ", ".BI ")))))
    words = program.split()
    has = set()
    for command in [words[:1]] + [[words[0], sub] for sub in words[1:]]:
        help_text = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
        for line in help_text.splitlines():
            if re.match(r"  -", line):
                has |= set(option.findall(line.split()[0].replace(",", " ")))
    if told != has:
        bad.append(f"{page} has {sorted(told - has)} too much and lacks {sorted(has - told)}")
print("\n".join(bad) or f"{len(pairs)} pages; {', '.join(c[0] for c in checkers)}")
if missing:  # the rest was checked all the same
    print(f"not installed: {', '.join(missing)} (Debian: man-db, mandoc)")
allowed = os.environ.get("GANGWAY_ALLOW_MISSING") == "1"
sys.exit(1 if bad or (missing and not allowed) else 77 if missing else 0)
