#!/usr/bin/env python3
"""Checks that the reference manual builds without a warning, has a group for each header, and tells for every
exported function whether it is local or collective, and what it does. Each function has a man page with the
same text.

usage: manual_test.py SOURCE-ROOT DOXYFILE
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

root, doxyfile = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
if shutil.which("doxygen") is None:
    print("doxygen is not installed (Debian: doxygen)")
    sys.exit(77 if os.environ.get("GANGWAY_ALLOW_MISSING") == "1" else 1)
bad, told, groups, missing = [], {}, set(), False
with tempfile.TemporaryDirectory() as folder:
    settings = doxyfile.read_text() + f"\nOUTPUT_DIRECTORY = {folder}\n"
    done = subprocess.run(["doxygen", "-"], input=settings, capture_output=True, text=True)
    if done.returncode != 0 or done.stderr:
        bad.append(done.stderr)
    for path in sorted(pathlib.Path(folder, "xml").glob("group__*.xml")):
        group = xml.etree.ElementTree.parse(path).getroot().find("compounddef")
        if "".join(group.find("detaileddescription").itertext()).strip():
            groups.add(group.findtext("compoundname"))
        for member in group.iter("memberdef"):
            text = "".join(member.find("briefdescription").itertext()) + \
                "".join(member.find("detaileddescription").itertext())
            if member.get("kind") == "function":
                told[member.findtext("name")] = text.strip()
    if not pathlib.Path(folder, "html/index.html").exists():
        bad.append("there is no main page")
    pages = pathlib.Path(folder, "man3")
    subprocess.run([sys.executable, root / "capi/manual/man.py", f"{folder}/xml", root / "capi/include", "1.2.3", "2000-01-01",
                    pages], check=True)
    page_of = {path.stem: path.read_text() for path in pages.iterdir()}
    for checker in (["mandoc", "-Tlint", "-W", "warning"], ["man", "--warnings", "-E", "UTF-8", "-l"]):
        if shutil.which(checker[0]) is None:
            print(f"{checker[0]} is not installed (Debian: man-db, mandoc)")
            missing = True
            continue
        done = subprocess.run([*checker, *sorted(pages.iterdir())], capture_output=True, text=True)
        said = done.stderr + (done.stdout if checker[0] == "mandoc" else "")
        if done.returncode != 0 or said:
            bad.append(f"{checker[0]} says: {said[:2000]}")

exports = (root / "capi/exports.txt").read_text().split() + ["gw_get_api"]
for name in exports:
    if not told.get(name):
        bad.append(f"{name} has no comment in its header, so the manual says nothing")
    elif not told[name].startswith(("Local", "Collective")):
        bad.append(f"{name}: its comment does not begin with Local or Collective: {told[name][:60]}")
for name in sorted(set(exports) ^ set(page_of)):
    bad.append(f"{name} has no man page, or is no function and has one")
for name in sorted(set(exports) & set(page_of)):
    words = re.sub(r"\\[&e]?", "", page_of[name]).split()
    lost = [word for word in told.get(name, "").replace("\\", "").split() if word not in words]
    if lost or ".SH SYNOPSIS" not in page_of[name] or f" {name}(" not in " ".join(words).replace("*", " "):
        bad.append(f"the page of {name} does not say {lost or 'its declaration'}")
headers = {path.stem for path in (root / "capi/include/gangway").glob("*.h")}
bad += [f"{name}.h has no group in the manual" for name in sorted(headers - groups)]
print("\n".join(bad) or f"{len(exports)} functions, {len(groups)} groups")
allowed = os.environ.get("GANGWAY_ALLOW_MISSING") == "1"
sys.exit(1 if bad or (missing and not allowed) else 77 if missing else 0)
