"""What nvcc says of the kernels, as a table: registers, spills, shared memory, and how full a multiprocessor gets.
usage: cuda_static.py FILE...      the .o.txt files beside the module's objects (tests/cuda_build.sh), and PTX; sorted by family

128-bit: kernels with accesses of 16 bytes to global memory, in the PTX of sm_90a. A kernel of a bandwidth-bound operation is
there twice: with them, and with single elements for rows that are not multiples of 16 bytes.

Resident threads: of the 2,048 that a multiprocessor of sm_80, sm_90 and sm_100 can hold, those that registers and static shared
memory leave for blocks of 256 threads (CUDA C++ Programming Guide, "Compute Capabilities": 65,536 registers in units of 256 a
warp, 32 blocks). Shared memory that a launch asks for is not in it."""
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


def wide(files):
    """By family: kernels with a 128-bit access, and all."""
    found = defaultdict(lambda: [0, 0])
    for file in files:
        for body in Path(file).read_text().split(".entry ")[1:]:
            of_family = found[Path(file).stem]
            of_family[0] += WIDE.search(body) is not None
            of_family[1] += 1
    return found


def short(names):
    """Names without name spaces and types of arguments."""
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    for name in plain.splitlines():
        name = re.sub(r"\(anonymous namespace\)::|gangway::|cuda::|_GLOBAL__N\w*::", "", name)
        yield re.sub(r"^void ", "", name).split("(")[0].replace("__nv_bfloat16", "bf16").replace("__half", "f16")


def main(files):
    found = list(kernels(f for f in files if f.endswith(".txt")))
    packed = wide(f for f in files if f.endswith(".ptx"))
    if not found:
        sys.exit("no kernel in these files")
    for kernel, name in zip(found, short([k["name"] for k in found]), strict=True):
        kernel["name"] = name
    groups = defaultdict(list)
    for kernel in found:
        groups[kernel["architecture"], kernel["family"]].append(kernel)
    print(f"{'sm':5}{'family':20}{'kernels':>8}{'registers':>15}{'spilling':>9}{'shared, B':>11}{'resident threads':>18}{'128-bit':>9}")
    for (architecture, family), group in sorted(groups.items()):
        registers = [k["registers"] for k in group]
        threads = [resident(k["registers"], k["shared"], architecture) for k in group]
        print(f"{architecture:5}{family:20}{len(group):8}{f'{min(registers)} to {max(registers)}':>15}"
              f"{sum(k['spills'] > 0 for k in group):9}{max(k['shared'] for k in group):11}"
              f"{f'{min(threads)} to {max(threads)}':>18}{packed[family][0] if architecture == '90a' and packed[family][1] else '':>9}")
    for kernel in sorted((k for k in found if k["spills"]), key=lambda k: -k["spills"]):
        print(f"spills {kernel['spills']:4} bytes  sm_{kernel['architecture']:4} {kernel['registers']:3} registers  {kernel['name'][:90]}")
    print(f"{len(found)} kernels, {sum(k['spills'] > 0 for k in found)} spill")


main(sys.argv[1:])
