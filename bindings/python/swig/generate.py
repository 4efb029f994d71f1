#!/usr/bin/env python3
"""Reads the public headers and writes what SWIG is given: copies whose comments become docstrings, and headers.i with
one line for each handle, struct and scalar that a work writes. A new function, struct or handle in a header needs no line
by hand here.

usage: generate.py HEADER_FOLDER OUTPUT_FOLDER"""
import pathlib
import re
import sys


def documented(text: str) -> str:
    """Comments at the start of a line and behind a field become doxygen's."""
    text = re.sub(r"^(\s*)/\* (?!---)", r"\1/** ", text, flags=re.M)
    return re.sub(r"(;|,) +/\* (?!---)", r"\1 /**< ", text)


def main() -> None:
    source, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    sys.path.insert(0, str(source.resolve().parent))
    from headers import HEADERS, commented  # without api.h, a table for programs that open the library
    (target / "gangway").mkdir(parents=True, exist_ok=True)
    whole = ""
    for name in HEADERS:
        text = (source / "gangway" / f"{name}.h").read_text()
        whole += text
        (target / "gangway" / f"{name}.h").write_text(documented(commented(text)))
    handles = re.findall(r"void gw_(\w+)_release\(gw_\1 \*", whole)
    retained = set(re.findall(r"gw_(\w+)_retain\(gw_\1 \*", whole))
    lines = [f"GW_HANDLE({h}, {'gw_' + h + '_retain' if h in retained else 'gwpy_no_retain'})" for h in handles]
    lines += [f"GW_STRUCT({s})" for s in re.findall(r"void gw_(\w+)_init\(gw_\1 \*\w+, size_t size\)", whole)]
    later = re.findall(r"(\w+) \*(out_\w+),\s+gw_work \*\*out_work", whole)
    lines += [f"GW_LATER({kind}, {name})" for kind, name in sorted(set(later))]
    lines += [f'%include "gangway/{name}.h"' for name in HEADERS]
    (target / "headers.i").write_text("// Made by generate.py.\n" + "\n".join(lines) + "\n")


main()
