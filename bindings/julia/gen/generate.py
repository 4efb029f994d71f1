#!/usr/bin/env python3
"""Makes src/LibGangway.jl, the lowest layer, from the public headers (through capi/abi.py): constants, structs with the
C layout, and a method for every function. Nothing in it is written by hand.

usage: generate.py [--check]       --check: changes nothing, exits 1 when the file is out of date
"""
import pathlib
import re
import sys

JULIA = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(JULIA.parent.parent / "capi"))
import abi  # noqa: E402

OUTPUT = JULIA / "src/LibGangway.jl"
PLAIN = {"void": "Cvoid", "char": "Cchar", "int": "Cint", "double": "Cdouble", "float": "Cfloat", "size_t": "Csize_t",
         "int8_t": "Int8", "uint8_t": "UInt8", "int16_t": "Int16", "uint16_t": "UInt16", "int32_t": "Int32",
         "uint32_t": "UInt32", "int64_t": "Int64", "uint64_t": "UInt64"}


class Types:
    def __init__(self, model):
        self.callbacks = {name for name, ctype in model.typedefs if "(*" in ctype}

    def julia(self, ctype):
        """The Julia type of a C declaration whose name is marked by "@"."""
        text = ctype.replace("@", " @ ")
        if "(*" in text:
            return "Ptr{Cvoid}"
        array = re.search(r"@\s*\[(\d+)\]", text)
        words = re.sub(r"@.*|\bconst\b|\bstruct\b", " ", text)
        stars = words.count("*") + text.count("[]")
        name = words.replace("*", " ").strip()
        base = "Ptr{Cvoid}" if name in self.callbacks else PLAIN.get(name, name)
        for _ in range(stars):
            base = f"Ptr{{{base}}}"
        return f"NTuple{{{array.group(1)},{base}}}" if array else base


def ordered(structs):
    """A struct comes after those that it holds by value."""
    done, names, waiting = [], set(), list(structs)
    known = {s.name for s in structs}
    while waiting:
        for s in waiting:
            needs = {m for f in s.fields if "*" not in f.ctype for m in re.findall(r"gw_\w+", f.ctype)} & known
            if needs <= names:
                done.append(s)
                names.add(s.name)
                waiting.remove(s)
                break
        else:
            sys.exit(f"structs hold one another: {[s.name for s in waiting]}")
    return done


def text():
    model = abi.read_abi()
    types = Types(model)
    functions = [f for f in model.functions if f.name != "gw_get_api"]
    lines = ["# Made by gen/generate.py from the public headers: do not edit.", "module LibGangway", "",
             "using Libdl", ""]
    for name, ctype in model.typedefs:
        if name not in types.callbacks:
            lines.append(f"const {name} = {types.julia(ctype)}")
    for enum in model.enums:
        lines.append("")
        lines += [f"const {name} = Int32({value})" for name, value in enum.constants]
    table = "gw_api"
    lines.append("")
    lines += [f"struct {s.name} end" for s in model.structs if s.size == 0]
    sized = [s for s in model.structs if s.size and s.name != table]
    for s in ordered(sized):
        lines += ["", f"struct {s.name}"] + [f"    {f.name}::{types.julia(f.ctype)}" for f in s.fields] + ["end"]
    lines += ["", "# (struct, bytes, ((field, offset), ...)) as the C compiler lays them out.", "const LAYOUT = ("]
    for s in sized:
        fields = " ".join(f"(:{f.name}, {f.offset})," for f in s.fields)
        lines.append(f"    ({s.name}, {s.size}, ({fields})),")
    lines += [")", "", f"const NAMES = ({' '.join(':' + f.name + ',' for f in functions)})",
              f"const ADDRESSES = fill(C_NULL, {len(functions)})", "",
              "# Looks every function up in the library at `path`. The handle stays open: the library is never unloaded.",
              "function open_library(path)", "    handle = Libdl.dlopen(path)",
              "    for i in 1:length(NAMES)", "        ADDRESSES[i] = Libdl.dlsym(handle, NAMES[i])", "    end",
              "    return handle", "end", ""]
    for i, f in enumerate(functions, 1):
        names = ", ".join(name for name, _ in f.arguments)
        kinds = ", ".join(types.julia(ctype) for _, ctype in f.arguments) + ("," if len(f.arguments) == 1 else "")
        call = f"ccall(ADDRESSES[{i}], {types.julia(f.result + ' @')}, ({kinds})"
        call += f", {names})" if names else ")"
        lines.append(f"{f.name}({names}) =\n    {call}")
    lines += ["", "end"]
    return "\n".join(lines) + "\n"


def main():
    made = text()
    if sys.argv[1:] != ["--check"]:
        OUTPUT.write_text(made)
    elif OUTPUT.read_text() != made:
        sys.exit("out of date, run bindings/julia/gen/generate.py")


main()
