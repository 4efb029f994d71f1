#!/usr/bin/env python3
"""Writes the defaults of all structs to capi/defaults.txt for review, because defaults are part of the ABI.
It calls every gw_x_init of a built library and reads the value of each field. The init function must zero all
bytes outside of the fields, also in a struct that is larger than the library's.

usage: defaults.py [--check] LIBRARY      --check: changes nothing, exits 1 and prints the difference
"""
import ctypes
import difflib
import re
import struct
import sys

import levels

TEXT = levels.DEFAULTS
FIELD = re.compile(r"(\d+)\s+(\d+)\s+(.*)")
MORE = 64  # extra bytes of a struct, as if a later level had added fields


def value(ctype, data, callbacks):
    """Returns the value of a field as C source."""
    if re.search(r"\[\d+\]$", ctype):
        count = int(re.search(r"\[(\d+)\]$", ctype).group(1))
        step = len(data) // count
        parts = [value(ctype.rsplit("[", 1)[0], data[i:i + step], callbacks) for i in range(0, len(data), step)]
        return parts[0] if len(set(parts)) == 1 else "{" + ", ".join(parts) + "}"
    if "*" in ctype or ctype.split()[0] in callbacks:
        address = int.from_bytes(data, "little")
        if address != 0 and not re.match(r"const char \*\w+$", ctype):
            sys.exit(f"the default of {ctype} is not null")
        return f'"{ctypes.string_at(address).decode()}"' if address != 0 else "null"
    if ctype.startswith("double "):
        return repr(struct.unpack("<d", data)[0])
    return str(int.from_bytes(data, "little", signed=not ctype.startswith(("uint", "size_t"))))


def filled(library, name, size):
    data = ctypes.create_string_buffer(b"\xee" * size, size)
    init = getattr(library, f"{name}_init")
    init.argtypes, init.restype = [ctypes.c_void_p, ctypes.c_size_t], None
    init(data, size)
    return data.raw


def as_text(library):
    abi = levels.Text(levels.GOLDEN.read_text())
    callbacks = {name for name, line in abi.typedefs.items() if "(*" in line}
    lines = ["# Made by capi/defaults.py from a built library: do not edit.",
             "# What each gw_x_init sets, besides struct_size.", ""]
    for name, (shape, fields) in abi.structs.items():
        if f"{name}_init" not in abi.functions:
            continue
        size = int(re.search(r"size (\d+)", shape).group(1))
        data = filled(library, name, size + MORE)
        if filled(library, name, size)[8:] != data[8:size]:
            sys.exit(f"{name}_init sets something else in a larger struct")
        lines.append(f"struct {name}")
        rest = bytearray(data)
        for field in fields:
            offset, length, ctype = FIELD.match(field).groups()
            offset, length = int(offset), int(length)
            part = bytes(data[offset:offset + length])
            rest[offset:offset + length] = bytes(length)
            field_name = (re.search(r"\(\*(\w+)\)", ctype) or re.search(r"(\w+)(?:\[\d+\])?$", ctype)).group(1)
            if field_name != "struct_size":
                lines.append(f"  {field_name} = {value(ctype, part, callbacks)}")
            elif int.from_bytes(part, "little") != len(data):
                sys.exit(f"{name}_init sets struct_size {int.from_bytes(part, 'little')} for {len(data)} bytes")
        if any(rest):
            sys.exit(f"{name}_init leaves bytes that are not zero outside of the fields: {bytes(rest).hex()}")
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def main():
    library = next(a for a in sys.argv[1:] if not a.startswith("--"))
    text = as_text(ctypes.CDLL(library))
    if "--check" not in sys.argv:
        TEXT.write_text(text)
        return
    difference = list(difflib.unified_diff(TEXT.read_text().splitlines(), text.splitlines(), "capi/defaults.txt",
                                           "the library", lineterm="", n=8))
    if difference:
        sys.exit("\n".join(difference) + "\na default changed: review it, then run tests/regenerate.sh")


if __name__ == "__main__":
    main()
