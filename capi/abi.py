#!/usr/bin/env python3
"""Reads the public headers with castxml: every enum with its constants, every struct with sizes and offsets,
every function with its types. As a program it writes them as text, the golden ABI that reviewers compare
changes with (capi/abi.txt), and as JSON for programs without a binding (capi/abi.json). As a module it gives them as objects, from which generators write the lowest
layers of the bindings.

usage: abi.py [--check]    --check: changes nothing, exits 1 and prints the difference if a file is out of date
"""
import dataclasses
import difflib
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import abi_json
import headers

CAPI = pathlib.Path(__file__).resolve().parent
TEXT = CAPI / "abi.txt"
HEADERS = [*headers.HEADERS, "api"]


@dataclasses.dataclass
class Field:
    name: str
    ctype: str   # the declaration in C, with "@" in place of the name
    offset: int  # bytes
    size: int    # bytes


@dataclasses.dataclass
class Struct:
    name: str
    size: int   # bytes; 0: an incomplete type, that is an opaque handle
    align: int
    fields: list


@dataclasses.dataclass
class Enum:
    name: str
    size: int
    constants: list  # (name, value)


@dataclasses.dataclass
class Function:
    name: str
    header: str
    result: str
    arguments: list  # (name, ctype)


@dataclasses.dataclass
class Abi:
    enums: list
    structs: list
    functions: list
    typedefs: list    # (name, ctype): integer types of enums, and function pointers


class Reader:
    def __init__(self, include):
        with tempfile.TemporaryDirectory() as folder:
            source, output = pathlib.Path(folder) / "all.c", pathlib.Path(folder) / "all.xml"
            source.write_text("".join(f"#include <gangway/{h}.h>\n" for h in HEADERS))
            subprocess.run(["castxml", "--castxml-output=1", "--castxml-cc-gnu-c", "gcc", "-x", "c", "-std=c11",
                            f"-I{include}", str(source), "-o", str(output)], check=True)
            self.root = xml.etree.ElementTree.parse(output).getroot()
        self.by_id = {node.get("id"): node for node in self.root}

    def spell(self, type_id, name=""):
        """Returns the C declaration of `name` with this type."""
        node = self.by_id[type_id]
        kind = node.tag
        if kind == "PointerType":
            target = self.by_id[node.get("type")]
            if target.tag == "FunctionType":
                arguments = ", ".join(self.spell(a.get("type")) for a in target.findall("Argument")) or "void"
                return self.spell(target.get("returns"), f"(*{name})({arguments})")
            return self.spell(node.get("type"), f"*{name}")
        if kind == "ArrayType":
            length = int(node.get("max")) + 1 if node.get("max") else ""
            return self.spell(node.get("type"), f"{name}[{length}]")
        if kind == "CvQualifiedType":
            if self.by_id[node.get("type")].tag == "PointerType":
                return self.spell(node.get("type"), f"const {name}".strip())
            return "const " + self.spell(node.get("type"), name)
        if kind == "ElaboratedType":
            return self.spell(node.get("type"), name)
        spelled = {"Struct": "struct ", "Enumeration": "enum "}.get(kind, "") + node.get("name")
        return f"{spelled} {name}".strip() if not name.startswith("(*") else f"{spelled} {name}"

    def size(self, type_id):
        node = self.by_id[type_id]
        if node.tag == "ArrayType":
            return (int(node.get("max")) + 1) * self.size(node.get("type"))
        if node.get("size") is not None:
            return int(node.get("size")) // 8
        return self.size(node.get("type"))

    def public(self, tag):
        """Returns the nodes of one kind in the public headers, in the order of the headers."""
        found = []
        for node in self.root.findall(tag):
            if node.get("file") is None:
                continue
            path = pathlib.Path(self.by_id[node.get("file")].get("name"))
            if path.parent.name == "gangway":
                found.append((HEADERS.index(path.stem), int(node.get("line")), node))
        return [node for _, _, node in sorted(found, key=lambda entry: entry[:2])]

    def struct(self, node):
        fields = []
        for member in (node.get("members") or "").split():
            field = self.by_id[member]
            if field.tag == "Field":
                fields.append(Field(field.get("name"), self.spell(field.get("type"), "@").strip(),
                                    int(field.get("offset")) // 8, self.size(field.get("type"))))
        return Struct(node.get("name"), int(node.get("size") or 0) // 8, int(node.get("align") or 0) // 8, fields)

    def function(self, node):
        header = pathlib.Path(self.by_id[node.get("file")].get("name")).stem
        # C turns an array parameter into a pointer; original_type is the array as it was written.
        arguments = [(a.get("name"), self.spell(a.get("original_type") or a.get("type"), "@"))
                     for a in node.findall("Argument")]
        return Function(node.get("name"), header, self.spell(node.get("returns")), arguments)

    def read(self):
        enums = [Enum(n.get("name"), int(n.get("size")) // 8,
                      [(v.get("name"), int(v.get("init"))) for v in n.findall("EnumValue")])
                 for n in self.public("Enumeration")]
        structs = [self.struct(n) for n in self.public("Struct")]
        typedefs = []
        for n in self.public("Typedef"):
            if self.spell(n.get("type")) != "struct " + n.get("name"):
                typedefs.append((n.get("name"), self.spell(n.get("type"), "@")))
        return Abi(enums, structs, [self.function(n) for n in self.public("Function")], typedefs)


def declare(ctype, name):
    return ctype.replace("@", name)


def read_abi(include=CAPI / "include"):
    return Reader(include).read()


def as_text(abi):
    lines = ["# Made by capi/abi.py from the public headers, for 64-bit Linux: do not edit.",
             "# Enumerated constants, sizes and offsets in bytes, and types of functions, in the headers' order.", ""]
    for name, ctype in abi.typedefs:
        lines.append(f"typedef {declare(ctype, name)}")
    for enum in abi.enums:
        lines += ["", f"enum {enum.name}  size {enum.size}"]
        lines += [f"  {name} = {value}" for name, value in enum.constants]
    for struct in abi.structs:
        if struct.size == 0:
            lines += ["", f"struct {struct.name}  opaque"]
            continue
        lines += ["", f"struct {struct.name}  size {struct.size}  align {struct.align}"]
        lines += [f"  {f.offset:4} {f.size:4}  {declare(f.ctype, f.name)}" for f in struct.fields]
    header = None
    for function in abi.functions:
        if function.header != header:
            header = function.header
            lines += ["", f"# {header}.h"]
        arguments = ", ".join(declare(ctype, name) for name, ctype in function.arguments) or "void"
        space = "" if function.result.endswith("*") else " "
        lines.append(f"{function.result}{space}{function.name}({arguments})")
    return "\n".join(lines) + "\n"


def main():
    abi = read_abi()
    made = {TEXT: as_text(abi), TEXT.with_suffix(".json"): abi_json.as_json(abi)}
    if sys.argv[1:] != ["--check"]:
        for path, text in made.items():
            path.write_text(text)
        return
    difference = []
    for path, text in made.items():
        old = path.read_text().splitlines() if path.exists() else []
        difference += difflib.unified_diff(old, text.splitlines(), f"capi/{path.name}", "the headers", lineterm="")
    if difference:
        sys.exit("\n".join(difference) + "\nthe ABI changed: review it, then run capi/abi.py")


if __name__ == "__main__":
    main()
