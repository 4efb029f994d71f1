#!/usr/bin/env python3
"""Makes the type stubs of the low-level layer, gangway/_low.pyi and gangway/low.pyi, from the golden ABI (capi/abi.txt), by
the rules that gangway.i has for the calls themselves.

usage: stubs.py [--check]       --check: changes nothing, exits 1 when a stub is out of date
"""
import pathlib
import re
import sys

PYTHON = pathlib.Path(__file__).resolve().parents[1]
ABI = PYTHON.parents[1] / "capi" / "abi.txt"
MADE = "# Made by swig/stubs.py from the golden ABI: do not edit.\n"
NUMBERS = {"int32_t": "int", "int64_t": "int", "size_t": "int", "uint64_t": "int", "double": "float"}
PATHS = ("path", "folder", "carry_from", "json_lines", "csv", "svg")  # as in gangway.i
# What gangway.i and callbacks.i add to the headers.
OWN = '''
class Block:
    """An array for C, with what its elements point at."""

class View:
    """Memory with what keeps it alive; NumPy, PyTorch and JAX take it by from_dlpack."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: int
    count: int
    contiguous: bool
    read_only: bool
    exports: int
    device: str
    stream: int | None
    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None, immutable: bool = False, words: bool = False,
    ) -> Any: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

Memory = View | Block | bytes | bytearray | int | None
RELEASED: Any

def borrow(array: Any, name: str, wants: int, dtype: int = ...) -> View: ...
def make_view(address: int, shape: Sequence[int], dtype: int, owner: object, device: tuple[int, int] = ...) -> View: ...
def block(kind: str, items: Iterable[Any]) -> Block | None: ...
def set_error_factory(factory: Callable[[int, str, str, int, int, str, int, str], BaseException]) -> None: ...
def call_facts(call: Any) -> tuple[int, bool, bool, int, int, int, float]: ...
def call_shapes(call: Any) -> tuple[tuple[tuple[tuple[int, ...], int], ...], int]: ...
def call_state(call: Any, state: Any = ...) -> Any: ...
def call_views(call: Any, which: str, read_only: bool) -> list[View | None]: ...
def set_shape(call: Any, output: int, dims: Sequence[int], dtype: int) -> None: ...
'''


class Abi:
    def __init__(self, text):
        self.numbers = dict(NUMBERS)
        self.numbers.update((name, "int") for name in re.findall(r"^typedef int32_t (\w+)$", text, re.M))
        self.functions_types = set(re.findall(r"^typedef .*\(\*(\w+)\)", text, re.M))
        self.handles = set(re.findall(r"^struct (gw_\w+)  opaque$", text, re.M))
        self.constants = re.findall(r"^  (GW_\w+) = -?\d+$", text, re.M)
        self.structs = {name: re.findall(r"^ +\d+ +\d+  (.+)$", body, re.M)
                        for name, body in re.findall(r"^struct (gw_\w+)  size.*\n((?: .*\n)*)", text, re.M)}
        self.functions = [(result.strip(), name, [] if inside == "void" else re.split(r", (?![^(]*\))", inside))
                          for result, name, inside in re.findall(r"^([\w *]+?)\b(gw_\w+)\((.*)\)$", text, re.M)]


def split(declaration):
    """A parameter or field as (type, name, array)."""
    found = re.fullmatch(r"(.*?)(\w+)((?:\[\d*\])?)", declaration)
    return found[1].strip(), found[2], found[3]


class Function:
    """Walks the parameters once; some take several."""

    def __init__(self, abi, result, name, parameters):
        self.abi, self.name, self.takes, self.gives = abi, name, [], []
        left = [split(p) for p in parameters]
        while left:
            left = left[self.step(left):]
        if result != "gw_status" and result != "void":
            self.gives.insert(0, self.result(result))

    def step(self, left):
        """Handles the first of what is left; how many it took."""
        ctype, name, array = left[0]
        names = [n for _, n, _ in left[:3]]
        base, stars = ctype.replace("const ", "").replace(" const", "").rstrip("* ").replace("struct ", ""), ctype.count("*")
        if names[1:] == ["out_capacity", "out_count"] and base in ("gw_view", "gw_tensor"):
            self.gives.append("list[View | None]" if base == "gw_view" else "list[Any]")
            return 3
        if name == "out_managed" or (stars == 2 and base in self.abi.handles):
            self.give_or_take(base, name, ctype)
        elif array and base in self.abi.handles:
            self.gives.append(f"list[{base}]")
        elif ctype == "gw_view *" and name == "out_view":
            self.gives.append("View")
        elif ctype == "void **":
            self.gives.append("int")
        elif stars == 1 and not array and base in self.abi.numbers and "const" not in ctype:
            later = len(left) > 1 and left[1][0] == "gw_work **"
            self.takes.append((name, "Memory")) if later else self.gives.append(self.abi.numbers[base])
        else:
            self.takes.append((name, self.taken(ctype, base, stars, name, array)))
        return 1

    def give_or_take(self, base, name, ctype):
        if "const" in ctype:
            self.takes.append((name, "Memory"))
        else:
            self.gives.append("Any" if base not in self.abi.handles else f"{base} | None")

    def taken(self, ctype, base, stars, name, array):
        if not stars and not array:
            return self.abi.numbers.get(base, "Any")
        if base in self.abi.handles and stars == 1:
            return f"{base} | None"
        if ctype == "const char *":
            return "str | bytes | None" if name in PATHS else "str | None"
        if base in self.abi.structs and base not in ("gw_view", "gw_ext", "gw_call", "gw_optimizer_call"):
            return f"low.{base} | Block | None" if "const" in ctype else f"low.{base} | None"
        return "Any" if name in ("user", "object", "call", "managed", "handle") or base in self.abi.handles else "Memory"

    def result(self, result):
        base = result.rstrip("* ").replace("const ", "")
        if "*" not in result:
            return self.abi.numbers[base]
        return {"char": "str", "void": "int"}.get(base, f"{base} | None")

    def text(self):
        takes = ", ".join(f"{name}: {kind}" for name, kind in self.takes)
        gives = "None" if not self.gives else self.gives[0] if len(self.gives) == 1 else f"tuple[{', '.join(self.gives)}]"
        return f"def {self.name}({takes}) -> {gives}: ..."


def field(abi, declaration):
    function = re.search(r"\(\*(\w+)\)", declaration)
    if function:
        return f"{function[1]}: Any"
    ctype, name, array = split(declaration)
    if array:
        return f"{name}: Sequence[int]"
    if ctype == "const char *":
        return f"{name}: {'str | bytes' if name in PATHS else 'str'}"
    return f"{name}: {'Any' if '*' in ctype else abi.numbers.get(ctype, 'Any')}"


def outputs():
    abi = Abi(ABI.read_text())
    low = MADE + '"""Structs of the headers, with their defaults."""\nfrom typing import Any, Sequence\n'
    for name, fields in abi.structs.items():
        if name in ("gw_ext", "gw_view", "gw_api"):
            continue
        low += f"\nclass {name}:\n" + "".join(f"    {field(abi, f)}\n" for f in fields if not f.endswith("*next"))
    for callback in sorted(set(re.findall(r"\bpy_\w+", (PYTHON / "swig" / "callbacks.i").read_text()))):
        low += f"\n{callback}: Any"
    raw = MADE + '"""Every function of the headers under its C name; statuses are raised, out-parameters returned."""\n'
    raw += "from typing import Any, Callable, Iterable, Sequence\n\nfrom . import low\n" + OWN + "\n"
    raw += "".join(f"class {h}: ...\n" for h in sorted(abi.handles)) + "\n"
    raw += "".join(f"{c}: int\n" for c in abi.constants) + "\n"
    for result, name, parameters in abi.functions:
        if name.endswith("_release"):
            raw += f"def {name}(handle: Any) -> None: ...\n"  # also what was released before
        elif name != "gw_get_api":
            raw += Function(abi, result, name, parameters).text() + "\n"
    return {"low.pyi": low + "\n", "_low.pyi": raw}


def main():
    stale = []
    for name, text in outputs().items():
        path = PYTHON / "gangway" / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if sys.argv[1:] != ["--check"]:
                path.write_text(text)
    if stale and sys.argv[1:] == ["--check"]:
        sys.exit("out of date, run bindings/python/swig/stubs.py: " + ", ".join(stale))


main()
