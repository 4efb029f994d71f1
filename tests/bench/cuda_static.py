"""What nvcc says of the kernels, as a table: registers, spills, shared memory, and how full a multiprocessor gets.
usage: cuda_static.py [--write] FILE...      the .o.txt files beside the module's objects (tests/cuda_build.sh), and PTX; sorted by family

128-bit: kernels with accesses of 16 bytes to global memory, in the PTX of sm_90a. A kernel of a bandwidth-bound operation is
there twice: with them, and with single elements for rows that are not multiples of 16 bytes.

Resident threads: of the 2,048 that a multiprocessor of sm_80, sm_90 and sm_100 can hold, those that registers and static shared
memory leave for blocks of 256 threads (CUDA C++ Programming Guide, "Compute Capabilities": 65,536 registers in units of 256 a
warp, 32 blocks). Shared memory that a launch asks for is not in it.

A kernel that gets worse is an error. cuda_static.json has, for the instances of each kernel on sm_90a: the fewest resident
threads and their sum, how many spill, the 64-bit divisions of integers in the PTX (each takes about as long as an access to
memory), and how many have accesses of 128 bits. --write records the numbers of these files; numbers that are worse need a reason
in the commit."""
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

THREADS, REGISTERS, BLOCK, WARP, BLOCKS = 2048, 65536, 256, 32, 32
SHARED = {"80": 164, "90a": 228, "100": 228}  # KiB of a multiprocessor


def resident(registers: int, shared: int, architecture: str) -> int:
    of_warp = -(-registers * WARP // 256) * 256
    blocks = min(BLOCKS, THREADS // BLOCK, REGISTERS // (of_warp * BLOCK // WARP))
    if shared:
        blocks = min(blocks, SHARED.get(architecture, 100) * 1024 // (shared + 1024))
    return blocks * BLOCK


def kernels(files):
    for file in files:
        entry = None
        for line in Path(file).read_text().splitlines():
            if found := re.search(r"Compiling entry function '(\S+)' for 'sm_(\w+)'", line):
                entry = {"name": found[1], "architecture": found[2], "family": Path(file).name.split(".")[0]}
            elif entry and (found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill", line)):
                entry |= {"stack": int(found[1]), "spills": int(found[2]) + int(found[3])}
            elif entry and (found := re.search(r"Used (\d+) registers", line)):
                shared = re.search(r"(\d+) bytes smem", line)
                yield entry | {"registers": int(found[1]), "shared": int(shared[1]) if shared else 0}
                entry = None


WIDE = re.compile(r"(ld|st)\.global[a-z0-9._]*(v4\.[ufb]32|v2\.[ufb]64)|cp\.async\.cg\.")


DIVISION = re.compile(r"\b(?:div|rem)\.[su]64\b")
RECORD = Path(__file__).with_name("cuda_static.json")


def bodies(files):
    """Of the kernels in PTX: name, whether it has a 128-bit access, and its 64-bit divisions of integers."""
    for file in files:
        for body in Path(file).read_text().split(".entry ")[1:]:
            yield {"name": re.match(r"[\w$]+", body)[0], "family": Path(file).stem, "wide": WIDE.search(body) is not None,
                   "divisions": len(DIVISION.findall(body))}


def numbers(found, ptx):
    """The record of the kernels on sm_90a, by family and name without arguments of the template."""
    record = {}
    for kernel in (k for k in found if k["architecture"] == "90a"):
        one = record.setdefault(f"{kernel['family']} {kernel['name'].split('<')[0]}",
                                {"kernels": 0, "fewest": THREADS, "resident": 0, "spilling": 0, "divisions": 0, "wide": 0})
        threads = resident(kernel["registers"], kernel["shared"], "90a")
        one["kernels"] += 1
        one["fewest"] = min(one["fewest"], threads)
        one["resident"] += threads
        one["spilling"] += kernel["spills"] > 0
    for kernel in ptx:
        if one := record.get(f"{kernel['family']} {kernel['name'].split('<')[0]}"):
            one["divisions"] += kernel["divisions"]
            one["wide"] += kernel["wide"]
    return record


def worse(now, before):
    """What got worse, a line each."""
    for name, one in sorted(now.items()):
        if name not in before:
            continue
        old = before[name]
        for key, better, words in (("fewest", 1, "resident threads of the instance that has fewest"), ("spilling", -1, "instances that spill"),
                                   ("divisions", -1, "64-bit divisions")):
            if (one[key] - old[key]) * better < 0:
                yield f"{name}: {one[key]} {words}, {old[key]} before"
        for key, words in (("resident", "resident threads"), ("wide", "instances with 128-bit accesses")):  # shares of instances
            if one[key] * old["kernels"] < old[key] * one["kernels"]:
                yield f"{name}: {one[key]} {words} of {one['kernels']} instances, {old[key]} of {old['kernels']} before"


def judge(found, ptx, write):
    now = numbers(found, ptx)
    if not now or not ptx:
        return  # of other architectures
    if write:  # of these files alone; other kernels keep theirs
        families = {kernel["family"] for kernel in ptx}
        old = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        now = {k: v for k, v in old.items() if k.split()[0] not in families} | now
        RECORD.write_text("{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(now.items())) + "\n}\n")
    before = json.loads(RECORD.read_text())
    if new := sorted(set(now) - set(before)):
        print(f"not in {RECORD.name}, which --write changes: {', '.join(new)}")
    lines = list(worse(now, before))
    print(*(f"worse: {line}" for line in lines), sep="\n", end="\n" if lines else "")
    if lines:
        sys.exit(f"{len(lines)} kernels or numbers are worse than in {RECORD.name}")


def short(names):
    """Names without name spaces and types of arguments."""
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    for name in plain.splitlines():
        name = re.sub(r"\(anonymous namespace\)::|gangway::|cuda::|_GLOBAL__N\w*::", "", name)
        yield re.sub(r"^void ", "", name).split("(")[0].replace("__nv_bfloat16", "bf16").replace("__half", "f16")


def main(files):
    write = "--write" in files
    found = list(kernels(f for f in files if f.endswith(".txt")))
    ptx = list(bodies(f for f in files if f.endswith(".ptx")))
    if not found:
        sys.exit("no kernel in these files")
    for kernel, name in zip(found + ptx, short([k["name"] for k in found + ptx]), strict=True):
        kernel["name"] = name
    packed = defaultdict(lambda: [0, 0, 0])
    for kernel in ptx:
        for i, value in enumerate((kernel["wide"], 1, kernel["divisions"])):
            packed[kernel["family"]][i] += value
    groups = defaultdict(list)
    for kernel in found:
        groups[kernel["architecture"], kernel["family"]].append(kernel)
    print(f"{'sm':5}{'family':20}{'kernels':>8}{'registers':>15}{'spilling':>9}{'shared, B':>11}{'resident threads':>18}{'128-bit':>9}{'divisions':>11}")
    for (architecture, family), group in sorted(groups.items()):
        registers = [k["registers"] for k in group]
        threads = [resident(k["registers"], k["shared"], architecture) for k in group]
        print(f"{architecture:5}{family:20}{len(group):8}{f'{min(registers)} to {max(registers)}':>15}"
              f"{sum(k['spills'] > 0 for k in group):9}{max(k['shared'] for k in group):11}"
              f"{f'{min(threads)} to {max(threads)}':>18}", end="")
        print(f"{packed[family][0]:9}{packed[family][2]:11}" if architecture == "90a" and packed[family][1] else "")
    for kernel in sorted((k for k in found if k["spills"]), key=lambda k: -k["spills"]):
        print(f"spills {kernel['spills']:4} bytes  sm_{kernel['architecture']:4} {kernel['registers']:3} registers  {kernel['name'][:90]}")
    print(f"{len(found)} kernels, {sum(k['spills'] > 0 for k in found)} spill")
    judge(found, ptx, write)


main(sys.argv[1:])
