#!/usr/bin/env python3
"""What the released levels of the ABI promise, and whether the headers keep it.

The major level is the first part of the release, `project(gangway VERSION X.Y.Z)` in CMakeLists.txt. Level 0 is open: all of
it is of symbol node GW_0 and may change. From release 1.0 on, level X.N is four files that its release writes and that are
never edited in capi/levels/: X.N.txt, the golden ABI text (capi/abi.py), X.N.defaults, what each _init sets
(capi/defaults.py), X.N.abi, the baseline of abidiff, and X.N.consumer, a program of its day (tests/capi/abi/consumer.py). A function is of the symbol node of the first level that has it;
one that no level has is of the next, open one.

usage: levels.py --check      1: the headers break a level, with a line for each thing that is not as it was promised
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
    """A golden ABI text, read back: each declaration by its name."""

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
    """The released levels' names and texts, in their order."""
    found = sorted((int(path.stem.split(".")[1]), path) for path in LEVELS.glob(f"{MAJOR}.*.txt"))
    if [number for number, _ in found] != list(range(len(found))):
        sys.exit(f"levels {[path.name for _, path in found]}: a number is missing")
    return [(path.stem, Text(path.read_text())) for _, path in found]


def current():
    """The level of the golden text: that of the last release, or with anything new the next."""
    levels = released()
    grown = bool(levels) and broken(Text(GOLDEN.read_text()), levels[-1][1]) != []
    return MAJOR, max(len(levels) - 1 + grown, 0)


def nodes(functions):
    """Each function's symbol node, in the order of the nodes: what is promised stays where it is, the rest is new."""
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
    """The functions of the last released level in the order of its function table."""
    levels = released()
    fields = levels[-1][1].structs["gw_api"][1] if levels else []
    return ["gw_" + name for name in re.findall(r"\(\*(\w+)\)\(", "\n".join(fields))]


def fields_of(old, new):
    """What is broken of a struct's fields. One that begins with its size may grow at its end, others are frozen. A field
    `reserved` may get a name."""
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
    """A line for each thing of `old` that `new` does not keep; it may have more."""
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
    """Value by struct and field."""
    found, struct = {}, None
    for line in text.splitlines():
        if line.startswith("struct "):
            struct = line.split()[1]
        elif line.startswith("  "):
            field, value = line.strip().split(" = ", 1)
            found[struct, field] = value
    return found


def changed_defaults(old, new):
    """A line for each default that is not what it was. `reserved` may have got a name, with the default zero."""
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
    import abi  # needs castxml; who asks for nodes alone does not
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
