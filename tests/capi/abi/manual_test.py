#!/usr/bin/env python3
"""The reference manual is built without a warning, has a group for each header, and says of every exported function
whether it is local or collective, and what it does.

usage: manual_test.py SOURCE-ROOT DOXYFILE
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

root, doxyfile = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
if shutil.which("doxygen") is None:
    print("doxygen is not installed (Debian: doxygen)")
    sys.exit(77 if os.environ.get("GANGWAY_ALLOW_MISSING") == "1" else 1)
bad, told, groups = [], {}, set()
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

exports = (root / "capi/exports.txt").read_text().split() + ["gw_get_api"]
for name in exports:
    if not told.get(name):
        bad.append(f"{name} has no comment in its header, so the manual says nothing")
    elif not told[name].startswith(("Local", "Collective")):
        bad.append(f"{name}: its comment does not begin with Local or Collective: {told[name][:60]}")
headers = {path.stem for path in (root / "capi/include/gangway").glob("*.h")}
bad += [f"{name}.h has no group in the manual" for name in sorted(headers - groups)]
print("\n".join(bad) or f"{len(exports)} functions, {len(groups)} groups")
sys.exit(1 if bad else 0)
