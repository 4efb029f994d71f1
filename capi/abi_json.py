"""The ABI as JSON, for programs that call the library without a binding and without a C parser (capi/abi.json). Each
entry is a line, so that a change of the ABI is a readable difference. DLOPEN.md says what the keys mean."""
import json
import re

import version

ABOUT = "Made by capi/abi.py from the public headers, for 64-bit Linux: do not edit. DLOPEN.md says what the keys mean."
PLAIN = {"void": "void", "char": "i8", "int8_t": "i8", "uint8_t": "u8", "int16_t": "i16", "uint16_t": "u16", "int": "i32",
         "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "size_t": "u64", "float": "f32",
         "double": "f64"}


class Types:
    """Machine types of C declarations, whose names are marked by "@"."""

    def __init__(self, abi):
        self.typedefs = dict(abi.typedefs)
        self.structs = {struct.name for struct in abi.structs}

    def plain(self, ctype):
        """Returns the type of one value: a number, "pointer", or the name of a struct that is held by value."""
        if "*" in ctype or "[]" in ctype:
            return "pointer"
        name = re.sub(r"\[\d+\]|@|\bconst\b|\bstruct\b|\benum\b", " ", ctype).strip()
        if name in self.typedefs:
            return self.plain(self.typedefs[name])
        return name if name in self.structs else PLAIN[name]

    def callback(self, ctype):
        """Returns result and arguments of a pointer to a function, or None for any other type."""
        ctype = self.typedefs.get(ctype.replace("@", "").strip(), ctype)
        found = re.match(r"(.*)\(\*@?\)\((.*)\)$", ctype)
        if not found:
            return None
        arguments = [] if found[2] == "void" else found[2].split(", ")
        return {"result": self.plain(found[1]), "arguments": [self.plain(argument) for argument in arguments]}

    def described(self, name, ctype, **more):
        """Returns the entry of a field or an argument."""
        entry = {"name": name, "type": self.plain(ctype), "c": ctype.replace("@", name), **more}
        length = re.search(r"\[(\d+)\]", ctype)
        callback = self.callback(ctype)
        return {**entry, **({"count": int(length[1])} if length else {}), **({"callback": callback} if callback else {})}


def sections(abi):
    types = Types(abi)
    enums = {enum.name: {"size": enum.size, "constants": dict(enum.constants)} for enum in abi.enums}
    structs = {struct.name: {"size": struct.size, "align": struct.align, "fields": [
        types.described(field.name, field.ctype, offset=field.offset, size=field.size) for field in struct.fields]}
        for struct in abi.structs if struct.size}
    functions = {function.name: {"header": function.header, "result": types.plain(function.result),
                                 "status": function.result == "gw_status",
                                 "arguments": [types.described(name, ctype) for name, ctype in function.arguments]}
                 for function in abi.functions}
    return {"enums": enums, "opaque": [struct.name for struct in abi.structs if not struct.size], "structs": structs,
            "functions": functions}


def as_json(abi):
    lines = ["{", f'"about": {json.dumps(ABOUT)},', f'"soname": {json.dumps(version.facts()["soname"])}']
    for section, entries in sections(abi).items():
        lines[-1] += ","
        if isinstance(entries, list):
            lines.append(f"{json.dumps(section)}: {json.dumps(entries)}")
            continue
        lines.append(f"{json.dumps(section)}: {{")
        lines += [f"  {json.dumps(name)}: {json.dumps(entry)}," for name, entry in entries.items()]
        lines[-1] = lines[-1].rstrip(",")
        lines.append("}")
    return "\n".join([*lines, "}"]) + "\n"
