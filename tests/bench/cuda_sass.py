"""Figures of kernels from what `cuobjdump -sass` prints. An instruction is a line `/*ADDRESS*/ TEXT;`.

accesses, wide   instructions that read or write global memory (LDG, LDGSTS, STG), and those of 128 bits among them
in_flight        the most bytes that a thread has asked global memory for before an instruction names what it asked for first.
                 Branches are taken as not taken, so the figure is of the longest straight piece of the kernel
hmma             instructions for each product of the tensor cores (HMMA), in the loop that has most of them, on the path through it
                 that has most of them and then the fewest instructions. A loop within it counts as passed once, so the figure is at
                 least what full tiles cost. None: the kernel has no such product"""
import re
from pathlib import Path

INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?);")
BRANCH = re.compile(r"\bBRA(?:\.\S+)?\s.*?(0x[0-9a-f]+)")
ENDS = re.compile(r"(EXIT|RET|BRX)")
ACCESS = re.compile(r"\b(LDG|LDGSTS|STG)\.(\S+)")
LOADED = re.compile(r"\bLDG\.\S+ R(\d+),")
BITS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}


def bytes_of(suffixes):
    return next((BITS[s] for s in suffixes.split(".") if s in BITS), 4)


def in_flight(code):
    most = pending = 0
    registers = set()
    for _, text in code:
        named = {int(r) for r in re.findall(r"\bR(\d+)\b", text)}
        if named & registers or text.startswith("DEPBAR") or ENDS.match(text):
            pending, registers = 0, set()
        access = ACCESS.search(text)
        if access and access[1] != "STG":
            size = bytes_of(access[2])
            pending += size
            if loaded := LOADED.search(text):
                first = int(loaded[1])
                registers |= set(range(first, first + max(1, size // 4)))
            most = max(most, pending)
    return most


def successors(code):
    """Of each instruction those that may follow it further down, and the branches back, as (first, last) of a loop."""
    places = {address: i for i, (address, _) in enumerate(code)}
    after, loops = [[] for _ in code], []
    for i, (_, text) in enumerate(code):
        branch = BRANCH.search(text)
        to = places.get(int(branch[1], 16)) if branch else None
        if to is not None and to > i:
            after[i].append(to)
        elif to is not None:
            loops.append((to, i))
        always = branch and not text.startswith("@") and not re.search(r"BRA\S*\s+U?!?U?P\d", text)
        if not (always or ENDS.match(text)) and i + 1 < len(code):
            after[i].append(i + 1)
    return after, loops


def instructions_per_hmma(code):
    after, loops = successors(code)
    best = (0, 0)
    for first, last in loops:
        paths = {first: (0, 0)}  # by instruction: the best path to it, as (products, -instructions)
        for i in range(first, last + 1):
            if i not in paths:
                continue
            paths[i] = (paths[i][0] + code[i][1].count("HMMA"), paths[i][1] - 1)
            for to in after[i]:
                if to <= last:
                    paths[to] = max(paths.get(to, (0, -len(code))), paths[i])
        best = max(best, paths.get(last, (0, 0)))
    return round(-best[1] / best[0], 2) if best[0] else None


def figures(name, family, code):
    accesses = [found for _, text in code if (found := ACCESS.search(text))]
    return {"name": name, "family": family, "accesses": len(accesses), "wide": sum(bytes_of(a[2]) == 16 for a in accesses),
            "in_flight": in_flight(code), "hmma": instructions_per_hmma(code) if any("HMMA" in text for _, text in code) else None}


def kernels(files):
    for file in files:
        family, name, code = Path(file).stem, None, []
        with Path(file).open() as lines:
            for line in lines:
                if "Function :" in line:
                    if name:
                        yield figures(name, family, code)
                    name, code = line.split(":", 1)[1].strip(), []
                elif found := INSTRUCTION.match(line):
                    code.append((int(found[1], 16), found[2].strip()))
        if name:
            yield figures(name, family, code)
