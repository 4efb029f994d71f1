#!/usr/bin/env python3
"""Writes the files that follow from the public headers alone:

  capi/exports.txt                 every exported function, in the order of the function table (append-only)
  capi/exports.map                 the linker's version script, with a node for each ABI level (capi/levels.py)
  capi/include/gangway/api.h       the function table for programs that dlopen the library
  capi/api.cpp                     the instance of the function table

usage: generate.py [--check]       --check: changes nothing, exits 1 if a file is out of date
"""
import pathlib
import re
import sys

import headers
import levels

CAPI = pathlib.Path(__file__).resolve().parent
DECLARATION = re.compile(r"^GW_API\s+(.+?)\b(gw_\w+)\s*\(([^;]*)\);", re.M | re.S)


def declarations():
    headers.check()
    found = {}
    for header in headers.HEADERS:
        text = (CAPI / "include/gangway" / f"{header}.h").read_text()
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        for result, name, parameters in DECLARATION.findall(text):
            if name in found:
                sys.exit(f"{name} is declared twice")
            found[name] = (" ".join(result.split()), " ".join(parameters.split()))
    return found


def wrapped(text, indent, width=110):
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width - (indent if lines else 0):
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    lines.append(line)
    return ("\n" + " " * indent).join(lines)


def version_script(names):
    """The linker's version script. Each node inherits from the one before it, so that a program that needs a
    later node needs no other."""
    text, before = "", ""
    for node, functions in levels.nodes(names).items():
        hidden = "" if before else "  local: *;\n"
        text += f"{node} {{\n  global:\n" + "".join(f"    {n};\n" for n in functions) + hidden + f"}}{before};\n"
        before = f" {node}"
    return text


def outputs():
    found = declarations()
    listed = (CAPI / "exports.txt").read_text().split() if (CAPI / "exports.txt").exists() else []
    promised = levels.table()
    for name in promised:
        if name not in found:
            sys.exit(f"{name} is gone from the headers, but a released level has it (capi/levels)")
    names = promised + [n for n in listed if n in found and n not in set(promised)]
    names += [n for n in found if n not in set(names)]
    fields = []
    for name in names:
        result, parameters = found[name]
        space = "" if result.endswith("*") else " "
        fields.append("  " + wrapped(f"{result}{space}(*{name[3:]})({parameters});", 6))
    api_h = """/* Made by capi/generate.py from the other headers: do not edit. */
#ifndef GANGWAY_API_H
#define GANGWAY_API_H

""" + "".join(f"#include <gangway/{h}.h>\n" for h in sorted(headers.HEADERS)) + """
#ifdef __cplusplus
extern "C" {
#endif

/* Every function as a table, for programs that open the library at run time and look up gw_get_api alone.
 * Within a major level the table only grows at its end. */
typedef struct gw_api {
  size_t struct_size;
  int32_t abi_major;
  int32_t abi_minor;
""" + "\n".join(fields) + """
} gw_api;

/* Local. Gives the table of a minor ABI level, which is static; null for a level that gw_abi_range does not
 * give. */
GW_API const gw_api *gw_get_api(int32_t abi_minor);

#ifdef __cplusplus
}
#endif
#endif
"""
    api_cpp = """// Made by capi/generate.py from the public headers: do not edit.
#include <gangway/api.h>

#include "level.h"

namespace {

const gw_api kApi = {
    sizeof(gw_api),
    gangway::capi::kAbiMajor,
    gangway::capi::kAbiMinor,
""" + "".join(f"    {n},\n" for n in names) + """};

// An entry never moves, because programs that were compiled earlier call it at its offset.
""" + "".join(f"static_assert(offsetof(gw_api, {n[3:]}) == 16 + {i} * sizeof(void*));\n" for i, n in enumerate(names)) + """\
static_assert(offsetof(gw_api, struct_size) == 0 && offsetof(gw_api, abi_major) == 8 && offsetof(gw_api, abi_minor) == 12);

}  // namespace

const gw_api *gw_get_api(int32_t abi_minor) {
  return abi_minor >= 0 && abi_minor <= gangway::capi::kAbiMinor ? &kApi : nullptr;
}
"""
    return {
        "exports.txt": "".join(f"{n}\n" for n in names),
        "exports.map": version_script(sorted(names + ["gw_get_api"])),
        "include/gangway/api.h": api_h,
        "api.cpp": api_cpp,
    }


def main():
    check = sys.argv[1:] == ["--check"]
    stale = []
    for name, text in outputs().items():
        path = CAPI / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not check:
                path.write_text(text)
    if check and stale:
        sys.exit("out of date, run capi/generate.py: " + ", ".join(stale))


main()
