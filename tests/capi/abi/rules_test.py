#!/usr/bin/env python3
"""Checks the rules that let the ABI grow and that keep it usable from every language: sized structs, handles,
enumerations, the order of parameters, no macros. It checks what the compiler makes of the public headers.

usage: rules_test.py SOURCE-ROOT
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root / "capi"))
import abi  # noqa: E402
import headers  # noqa: E402

model = abi.read_abi()
bad = []
functions = {f.name: f for f in model.functions}
plain = {"gw_view": "DLPack's DLTensor", "gw_ext": "the record of extensions itself", "gw_api": "the function table"}
made_by_library = {"gw_call", "gw_optimizer_call"}  # only the library sets it up
sized = [s for s in model.structs if s.size > 0 and s.name not in plain]
handles = [s for s in model.structs if s.size == 0 and s.name.startswith("gw_")]

for struct in sized:
    head = [(f.name, f.ctype.replace(" ", ""), f.offset) for f in struct.fields[:2]]
    if head != [("struct_size", "size_t@", 0), ("next", "constgw_ext*@", 8)]:
        bad.append(f"{struct.name} does not begin with struct_size and next")
    if struct.name not in made_by_library:
        init = functions.get(f"{struct.name}_init")
        if init is None or init.result != "void" or len(init.arguments) != 2:
            bad.append(f"{struct.name}_init(x, size) lacks")
for struct in sized + [s for s in model.structs if s.name in plain]:
    end = 0
    for field in struct.fields:
        if field.offset != end:
            bad.append(f"{struct.name}: {field.offset - end} bytes of padding before {field.name}; write `reserved`")
        end = field.offset + field.size
        if "*" not in field.ctype and re.match(r"(struct )?gw_\w+", field.ctype):
            inner = [s.name for s in model.structs if s.name == field.ctype.split("@")[0].split()[-1]]
            if inner:
                bad.append(f"{struct.name}.{field.name} is a struct by value")
        if field.size == 0:
            bad.append(f"{struct.name}.{field.name} is a flexible array")
    if end != struct.size:
        bad.append(f"{struct.name}: {struct.size - end} bytes of padding at the end; write `reserved`")

for handle in handles:
    release = functions.get(f"{handle.name}_release")
    if release is None or release.result != "void" or len(release.arguments) != 1:
        bad.append(f"void {handle.name}_release({handle.name} *) lacks")

for enum in model.enums:
    if enum.size != 4 or not re.fullmatch(r"gw_\w+_value", enum.name):
        bad.append(f"enum {enum.name}: size {enum.size}; 4 bytes and a name that ends in _value are wanted")
    for name, value in enum.constants:
        if not name.startswith("GW_") or not -1 <= value < 2**31:
            bad.append(f"{name} = {value}: GW_* from -1 to INT32_MAX is wanted")
integers = {name for name, ctype in model.typedefs if ctype.startswith("int32_t @")}
for enum in model.enums:
    name = enum.name.removesuffix("_value")
    if name not in integers:
        bad.append(f"typedef int32_t {name} lacks")

for function in model.functions:
    names = [name for name, _ in function.arguments]
    if not all(names):
        bad.append(f"{function.name}: a parameter has no name")
        continue
    out = [name.startswith("out_") for name in names]
    if True in out and not all(out[out.index(True):]):
        bad.append(f"{function.name}: out_* parameters come last, these are {', '.join(names)}")
    for name, ctype in function.arguments:
        if re.search(r"\b(bool|_Bool|long|int|short|unsigned|enum)\b", ctype):
            bad.append(f"{function.name}: {name} is {ctype.replace('@', '').strip()}, not of fixed width")
        if not re.search(r"[*\[]", ctype) and any(re.search(rf"\b{s.name}\b", ctype) for s in model.structs):
            bad.append(f"{function.name}: {name} is a struct by value")

for header in sorted((root / "capi/include/gangway").glob("*.h")):
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    for name in re.findall(r"^\s*#\s*define\s+(\w+)", text, re.M):
        if name not in ("GW_API", f"GANGWAY_{header.stem.upper()}_H"):
            bad.append(f"{header.name}: #define {name}; bindings see enumerators only")
    if text.count("__attribute__") != (1 if header.stem == "base" else 0):
        bad.append(f"{header.name}: __attribute__ outside of GW_API")
    for word in (r"\bunion\b", r"\binline\b", r"\b_Static_assert\b", r"\bbool\b", r"\w+\s*:\s*\d+\s*;"):
        if re.search(word, text):
            bad.append(f"{header.name}: has {re.search(word, text).group(0)}")

# --- comments: codes and ownership

CODES = {name.removeprefix("GW_E_") for e in model.enums if e.name == "gw_status_value" for name, _ in e.constants
         if name.startswith("GW_E_")}
OWNERSHIP = r"[Tt]he caller (releases|owns)|which the caller releases|borrowed"
# Rules for a whole group of functions, in the first comment of their header.
COLLECTIVES = "Every collective returns INVALID_ARGUMENT"
WORKS = "The caller releases *out_work."


def flat(comment):
    return " ".join(re.sub(r"^\s*\*", "", comment, flags=re.M).split())


def comments(header):
    """Returns the first comment of the header, and each function's own comment."""
    text = header.read_text()
    told = re.findall(r"/\*((?:(?!\*/).)*)\*/\nGW_API [^;(]*?\b(gw_\w+)\(", text, re.S)
    return flat(re.match(r"/\*(.*?)\*/", text, re.S).group(1)), {name: flat(comment) for comment, name in told}


told_of = {h: comments(root / f"capi/include/gangway/{h}.h") for h in {f.header for f in model.functions}}
handle_names = {h.name for h in handles} | {"DLManagedTensorVersioned", "void"}
for function in model.functions:
    head, told = told_of[function.header]
    text = told.get(function.name, headers.rule_of(function.name))
    if function.result == "gw_status" and not CODES & set(re.findall(r"\b[A-Z_]+\b", text)):
        if not (text.startswith("Collective") and COLLECTIVES in head):
            bad.append(f"{function.name}: its comment names no code")
    for name, ctype in function.arguments:
        held = re.match(r"(?:const )?(?:struct )?(\w+) \*(?:\*@|@\[\])$", ctype)
        if not name.startswith("out_") or held is None or held.group(1) not in handle_names:
            continue
        if not re.search(OWNERSHIP, text) and not (name == "out_work" and WORKS in head):
            bad.append(f"{function.name}: its comment does not say who releases {name}")

# --- the rules of base.h: stated once, and true of every function that has no comment of its own

if set(headers.RULES) != {"init", "retain", "release", "async"}:
    bad.append(f"base.h states the rules of gw_NAME_{', gw_NAME_'.join(headers.RULES)}, not of init, retain, release and async")


def shape(function):
    return function.result.replace(" ", ""), [ctype.replace(" ", "") for _, ctype in function.arguments]


for function in model.functions:
    name, _, ending = function.name.rpartition("_")
    own, rule = told_of[function.header][1].get(function.name), headers.rule_of(function.name)
    if own is not None:
        said = [sentence for sentence in re.split(r"(?<=\.) ", rule) if len(sentence) > 30 and sentence in own]
        if said:
            bad.append(f"{function.name}: its comment repeats the rule of base.h: {said[0]}")
        continue
    plain_form = functions.get(name)
    wanted = {"init": ("void", [f"{name}*@", "size_t@"]), "retain": (f"{name}*", [f"{name}*@"]),
              "release": ("void", [f"{name}*@"]),
              "async": ("gw_status", [*(shape(plain_form)[1] if plain_form else ["no plain form"]), "gw_work**@"])}
    if ending not in wanted:
        bad.append(f"{function.name} has no comment, and base.h no rule for it")
    elif shape(function) != wanted[ending]:
        bad.append(f"{function.name} has no comment, but is not as the rule of base.h says: {shape(function)}")

rows = "\n".join((root / "tests/capi" / name).read_text()
                 for name in ("struct_calls.h", "struct_results_test.c", "optimizer_rows.h"))
tried = {f"gw_{name}" for name in re.findall(r"\b(?:INPUT|RESULT)\((\w+),", rows)}
bad += [f"{s.name} is in neither tests/capi/struct_calls.h nor struct_results_test.c" for s in sized
        if s.name not in tried | made_by_library]

print("\n".join(bad) or f"{len(sized)} sized structs, {len(handles)} handles, {len(model.enums)} enumerations, "
      f"{len(functions)} functions")
sys.exit(1 if bad else 0)
