#!/usr/bin/env python3
"""Compares the library with the committed baseline (gangway.abi) and with every released level (capi/levels),
by libabigail. It fails on every difference that a program compiled against one of them would notice, unless
abidiff.suppr allows it. libabigail does not see enumerators, because calls have integers; capi/levels.py
checks those.

usage: abidiff.py LIBRARY                       compares; growth is no difference
       abidiff.py --baseline LIBRARY            writes a new baseline, unless a released level is broken
       abidiff.py --baseline LIBRARY --check    returns 1 if the baseline differs from the library, growth included
       abidiff.py --self-check                  checks that only growth passes
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
BASELINE, SUPPRESSIONS = HERE / "gangway.abi", HERE / "abidiff.suppr"
LEVELS = sorted((HERE.parents[2] / "capi/levels").glob("*.abi"))
SKIPPED = 77


def write(library, out):
    """Writes libabigail's description of the library, without paths and without what a compiler may choose
    freely. It keeps the names of symbols, and the types behind gw_get_api. Its table has every public type,
    because capi/api.cpp is compiled with debug information."""
    subprocess.run(["abidw", "--exported-interfaces-only", "--no-corpus-path", "--no-show-locs", "--no-comp-dir-path",
                    "--no-elf-needed", "--no-parameter-names", "--no-write-default-sizes", "--type-id-style", "hash",
                    "--out-file", out, library], check=True)
    tree = xml.etree.ElementTree.parse(out)
    corpus = tree.getroot()
    elsewhere = {}  # types that libabigail has put into another unit's part, as it does with void
    for unit in corpus.findall("abi-instr"):
        if unit.find("function-decl[@name='gw_get_api']") is None:
            elsewhere.update((kind.get("id"), kind) for kind in unit if kind.get("id"))
            corpus.remove(unit)
    for unit in corpus.findall("abi-instr"):
        while missing := {e.get("type-id") for e in unit.iter()} & elsewhere.keys() - {e.get("id") for e in unit.iter()}:
            for name in sorted(missing):
                unit.insert(0, elsewhere[name])
        unit.attrib.pop("path")
        for function in unit.findall("function-decl"):
            if function.get("name") != "gw_get_api":
                unit.remove(function)
    if corpus.find("abi-instr/class-decl[@name='gw_api']") is None:
        sys.exit(f"{library} has no debug information about gw_get_api")
    xml.etree.ElementTree.indent(tree)
    tree.write(out)


def forget_growth(baseline, now):
    """Removes new fields at the end of structs that begin with their size, because such structs may grow.
    (abidiff's own suppressions for growth also hide changes of old fields.)"""
    old = {s.get("name"): s for s in baseline.getroot().iter("class-decl") if s.get("size-in-bits")}
    for struct in now.getroot().iter("class-decl"):
        before, fields = old.get(struct.get("name")), struct.findall("data-member")
        if before is None or not fields or fields[0].find("var-decl").get("name") != "struct_size":
            continue
        size = int(before.get("size-in-bits"))
        if int(struct.get("size-in-bits", 0)) > size:
            struct.set("size-in-bits", str(size))
            for field in fields:
                if int(field.get("layout-offset-in-bits")) >= size:
                    struct.remove(field)


def compare(baseline, library, growth=False):
    """Returns the differences that an old program could notice, or with `growth` all differences; "" if there
    are none."""
    with tempfile.NamedTemporaryFile(suffix=".abi") as file:
        write(library, file.name)
        options = []
        if not growth:
            now = xml.etree.ElementTree.parse(file.name)
            forget_growth(xml.etree.ElementTree.parse(baseline), now)
            now.write(file.name)
            options = ["--no-added-syms", "--suppressions", SUPPRESSIONS]
        done = subprocess.run(["abidiff", "--no-show-locs", *options, baseline, file.name], capture_output=True, text=True)
    return f"against {baseline}:\n{done.stdout}{done.stderr}" if done.returncode != 0 else ""


# --- the self-check: which changes are found ---

HEADER = """#include <stddef.h>
#include <stdint.h>
enum gw_kind_value { GW_KIND_INVALID = -1, GW_ONE = 1 };
typedef struct gw_thing gw_thing;
typedef struct gw_x_options { size_t struct_size; const void *next; int64_t first; int32_t second; int32_t third;
} gw_x_options;
typedef struct gw_view { void *data; int64_t n; } gw_view;
int32_t gw_x_create(const gw_x_options *options, gw_thing **out_thing);
int32_t gw_x_look(gw_thing *thing, const gw_view *view);
typedef struct gw_api { size_t struct_size; int32_t abi_major; int32_t abi_minor;
  int32_t (*x_create)(const gw_x_options *options, gw_thing **out_thing);
  int32_t (*x_look)(gw_thing *thing, const gw_view *view);
} gw_api;
const gw_api *gw_get_api(int32_t abi_minor);
"""
SOURCE = """#include "stub.h"
struct gw_thing { int inside; };
int32_t gw_x_create(const gw_x_options *options, gw_thing **out_thing) { return !options || !out_thing; }
int32_t gw_x_look(gw_thing *thing, const gw_view *view) { return thing->inside + (int32_t)view->n; }
"""
TABLE = """#include "stub.h"
static const gw_api api = {sizeof api, 0, 0, gw_x_create, gw_x_look};
const gw_api *gw_get_api(int32_t abi_minor) { return abi_minor ? 0 : &api; }
"""
# name, old and new text in header and source, whether an old program still works
CHANGES = [
    ("nothing", "", "", True),
    ("a private type changes", "int inside;", "int inside; int more;", True),
    ("a field at the end of options", "int32_t third;\n", "int32_t third; int64_t fourth;\n", True),
    ("a reserved field gets a name", "int32_t third;", "int32_t named;", True),
    ("an entry at the end of the table", "*view);\n}", "*view);\n  void (*y)(void);\n}", True),
    ("a field in the middle of options", "int32_t second;", "int64_t between; int32_t second;", False),
    ("a field's type changes", "int64_t first;", "double first;", False),
    ("two fields change places", "int32_t second; int32_t third;", "int32_t third; int32_t second;", False),
    ("a field goes away", " int32_t third;", "", False),
    ("an entry in the middle of the table", "int32_t (*x_create)", "void (*y)(void); int32_t (*x_create)", False),
    ("a frozen struct grows", "int64_t n; }", "int64_t n; int64_t m; }", False),
    ("a parameter more", "const gw_view *view)", "const gw_view *view, int64_t more)", False),
    ("a result's type changes", "int32_t (*x_look)", "int64_t (*x_look)", False),
    ("a function goes away", "gw_x_look", "gw_y_look", False),
    ("a function is new", "static const gw_api api", "void gw_z(void) {}\nstatic const gw_api api", True),
]


def stub(folder, old="", new=""):
    folder.mkdir()
    for name, text in (("stub.h", HEADER), ("stub.c", SOURCE), ("api.c", TABLE)):
        (folder / name).write_text(text.replace(old, new) if old else text)
    library = folder / "libstub.so"
    # As in the library, only the file of the table has debug information of types.
    subprocess.run(["gcc", "-g", "-fPIC", "-w", "-c", "-o", folder / "api.o", folder / "api.c"], check=True)
    subprocess.run(["gcc", "-g1", "-fPIC", "-w", "-shared", "-o", library, folder / "api.o", folder / "stub.c"],
                   check=True)
    return library


def self_check():
    bad = []
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        write(stub(place / "old"), place / "old.abi")
        for number, (name, old, new, allowed) in enumerate(CHANGES):
            assert old in HEADER + SOURCE + TABLE, name
            library = stub(place / str(number), old, new)
            said = compare(place / "old.abi", library)
            if (said == "") != allowed:
                bad.append(f"{name}: {'refused' if allowed else 'not seen'}\n{said}")
            visible = name not in ("nothing", "a private type changes", "a reserved field gets a name")
            if (compare(place / "old.abi", library, growth=True) != "") != visible:
                bad.append(f"{name}: a baseline that lacks it is {'up to date' if visible else 'out of date'}")
    print("\n".join(bad) or f"{len(CHANGES)} changes judged as they should be")
    return 1 if bad else 0


def main():
    if shutil.which("abidiff") is None:
        print("abidiff is not installed (Debian: abigail-tools)")
        return SKIPPED if os.environ.get("GANGWAY_ALLOW_MISSING") == "1" else 1
    if sys.argv[1] == "--self-check":
        return self_check()
    library = sys.argv[2 if sys.argv[1] == "--baseline" else 1]
    said = "".join(compare(level, library) for level in LEVELS)
    if "--check" in sys.argv:
        said += compare(BASELINE, library, growth=True)
    elif sys.argv[1] != "--baseline":
        said += compare(BASELINE, library)
    elif not said:
        write(library, BASELINE)
        return 0
    if said:
        print(said + "the ABI changed: review it, then run tests/regenerate.sh")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
