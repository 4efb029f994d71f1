#!/usr/bin/env python3
"""Records the released levels of the ABI, and checks that the headers still fulfil them.

The major level is the first part of the release, `project(gangway VERSION X.Y.Z)` in CMakeLists.txt. Level 0
is open: all its functions have the symbol node GW_0 and may change. From release 1.0 on, a release writes its
level X.N as four files in capi/levels/, which are never edited:

  X.N.txt         the golden ABI text (capi/abi.py)
  X.N.defaults    the values that each _init sets (capi/defaults.py)
  X.N.abi         the baseline of abidiff
  X.N.consumer    a program that was compiled at that release (tests/capi/abi/consumer.py)

A function has the symbol node of the first level that includes it; a function that no level includes has the
node of the next level, which is open.

usage: levels.py --check      exits 1 if the headers break a level, and prints a line for each difference
       levels.py --release    writes the next level from the headers (tests/regenerate.sh --release BUILD_DIR)
"""
import pathlib
import re
import sys

CAPI = pathlib.Path(__file__).resolve().parent
LEVELS = CAPI / "levels"
BASELINE = CAPI.parent / "tests/capi/abi/gangway.abi"
CONSUMER = BASELINE.with_name("old_consumer.base64")
GOLDEN, DEFAULTS = CAPI / "abi.txt", CAPI / "defaults.txt"
RELEASE = tuple(map(int, re.search(r"^project\(gangway VERSION (\d+)\.(\d+)\.(\d+)",
                                   (CAPI.parent / "CMakeLists.txt").read_text(), re.M).groups()))
MAJOR = RELEASE[0]


class Text:
    """A parsed golden ABI text: each declaration by its name."""

    def __init__(self, text):
        self.typedefs, self.enums, self.structs, self.functions = {}, {}, {}, {}
        members = None
        for line in text.splitlines():
            word = line.split(" ", 1)[0]
            if line.startswith("  "):
                members.append(line.strip())
            elif word == "typedef":
                self.typedefs[re.search(r"\(\*(\w+)\)|(\w+)$", line).group(0).strip("(*)")] = line
            elif word in ("enum", "struct") and not line.endswith(")"):
                name, shape = line.split("  ", 1)
                members = []
                (self.enums if word == "enum" else self.structs)[name.split()[1]] = (shape, members)
            elif line and not line.startswith("#"):
                self.functions[re.search(r"(gw_\w+)\(", line).group(1)] = line


def released():
    """Returns the names and texts of the released levels, in order."""
    found = sorted((int(path.stem.split(".")[1]), path) for path in LEVELS.glob(f"{MAJOR}.*.txt"))
    if [number for number, _ in found] != list(range(len(found))):
        sys.exit(f"levels {[path.name for _, path in found]}: a number is missing")
    return [(path.stem, Text(path.read_text())) for _, path in found]


def current():
    """Returns the level of the golden text: the last released level or, if the text has anything new, the
    next one."""
    levels = released()
    grown = bool(levels) and broken(Text(GOLDEN.read_text()), levels[-1][1]) != []
    return MAJOR, max(len(levels) - 1 + grown, 0)


def nodes(functions):
    """Returns the functions of each symbol node, in the order of the nodes. A function of a released level
    keeps its node; the others get the node of the open level."""
    if MAJOR == 0:
        return {"GW_0": list(functions)}
    levels = released()
    open_level = f"{MAJOR}.{len(levels)}"
    found = {f"GW_{level}": [] for level in [level for level, _ in levels] + [open_level]}
    for name in functions:
        at = next((level for level, text in levels if name in text.functions), open_level)
        found[f"GW_{at}"].append(name)
    return {node: names for node, names in found.items() if names}


def table():
    """Returns the functions of the last released level, in the order of its function table."""
    levels = released()
    fields = levels[-1][1].structs["gw_api"][1] if levels else []
    return ["gw_" + name for name in re.findall(r"\(\*(\w+)\)\(", "\n".join(fields))]


def fields_of(old, new):
    """Returns how a struct's fields break the old level, or None. A struct that begins with its size may grow
    at its end; others are frozen. A field `reserved` may get a name."""
    size, fields = old
    now_size, now = new
    for index, field in enumerate(fields):
        same = [field] if index >= len(now) else [field, re.sub(r"\breserved$", now[index].split()[-1], field)]
        if index >= len(now) or now[index].split() not in [line.split() for line in same]:
            return f"has lost or changed the field \"{' '.join(field.split())}\""
    if size == now_size:
        return None
    if not fields or fields[0].split()[-1] != "struct_size":
        return f"is frozen, but is {now_size} instead of {size}"
    bytes_of = [int(re.search(r"size (\d+)", text).group(1)) for text in (size, now_size)]
    if now_size.replace(f"size {bytes_of[1]} ", f"size {bytes_of[0]} ") != size or bytes_of[1] < bytes_of[0]:
        return f"is {now_size} instead of {size}"
    first_new = int(now[len(fields)].split()[0]) if len(now) > len(fields) else bytes_of[0]
    return None if first_new >= bytes_of[0] else f"has a new field at byte {first_new}, where it ended at {bytes_of[0]}"


def broken(old, new):
    """Returns a line for each declaration of `old` that `new` lacks or changes. `new` may have more
    declarations."""
    bad = []
    for kind, before, now in (("typedef", old.typedefs, new.typedefs), ("function", old.functions, new.functions)):
        for name, line in before.items():
            if name not in now:
                bad.append(f"{kind} {name} is gone")
            elif now[name] != line:
                bad.append(f"{kind} {name} was \"{line}\" and is \"{now[name]}\"")
    for name, (size, constants) in old.enums.items():
        if name not in new.enums:
            bad.append(f"enum {name} is gone")
            continue
        if new.enums[name][0] != size:
            bad.append(f"enum {name} is {new.enums[name][0]} instead of {size}")
        values = dict(c.split(" = ") for c in new.enums[name][1])
        for constant, value in (c.split(" = ") for c in constants):
            if values.get(constant) != value:
                bad.append(f"enumerator {constant} of {name} was {value} and is {values.get(constant, 'gone')}")
    for name, struct in old.structs.items():
        said = fields_of(struct, new.structs[name]) if name in new.structs else "is gone"
        if said:
            bad.append(f"struct {name} {said}")
    return bad


def defaults(text):
    """Returns the default values of a defaults text, by struct and field."""
    found, struct = {}, None
    for line in text.splitlines():
        if line.startswith("struct "):
            struct = line.split()[1]
        elif line.startswith("  "):
            field, value = line.strip().split(" = ", 1)
            found[struct, field] = value
    return found


def changed_defaults(old, new):
    """Returns a line for each default that has changed. A field `reserved` may have got a name, with the
    default zero."""
    bad = []
    for (struct, field), value in defaults(old).items():
        now = defaults(new).get((struct, field))
        if now != value and not (field == "reserved" and now is None):
            bad.append(f"default {struct}.{field} was {value} and is {now or 'gone'}")
    return bad


def check(current):
    levels, bad = released(), []
    for level, _ in levels:
        bad += [f"level {level} is broken: {line}"
                for line in changed_defaults((LEVELS / f"{level}.defaults").read_text(), DEFAULTS.read_text())]
    for index, (level, text) in enumerate(levels):
        following, what = (levels[index + 1][1], f"level {levels[index + 1][0]}") if index + 1 < len(levels) else \
            (current, "the headers")
        bad += [f"level {level} is broken by {what}: {line}" for line in broken(text, following)]
    return bad


def main():
    import abi  # imported here because it needs castxml, which callers of nodes() and table() do not need
    text = abi.as_text(abi.read_abi())
    bad = check(Text(text))
    if bad:
        sys.exit("\n".join(bad))
    if sys.argv[1:] != ["--release"]:
        return
    if MAJOR == 0:
        sys.exit("level 0 stays open: set the release to 1.0.0 in CMakeLists.txt first")
    name, last = f"{MAJOR}.{len(released())}", released()[-1:]
    if last and broken(Text(text), last[0][1]) == []:
        sys.exit(f"nothing is new since level {last[0][0]}: a release without anything new has no level of its own")
    LEVELS.mkdir(exist_ok=True)
    (LEVELS / f"{name}.txt").write_text(text)
    (LEVELS / f"{name}.defaults").write_bytes(DEFAULTS.read_bytes())
    (LEVELS / f"{name}.abi").write_bytes(BASELINE.read_bytes())
    (LEVELS / f"{name}.consumer").write_bytes(CONSUMER.read_bytes())
    print(f"level {name} is released: commit capi/levels/{name}.*")


if __name__ == "__main__":
    main()
