"""What nvcc says of the kernels, as a table: registers, spills, shared memory, and how full a multiprocessor gets.
usage: cuda_static.py [--write] [--record FILE] FILE...
FILE: the .o.txt files beside the module's objects (tests/cuda_build.sh), their PTX (.ptx) and their instructions (.sass, from cuobjdump)

128-bit: kernels with accesses of 16 bytes to global memory, in the PTX of sm_90a. A kernel of a bandwidth-bound operation is
there twice: with them, and with single elements for rows that are not multiples of 16 bytes.

Resident threads: of the 2,048 that a multiprocessor of sm_80, sm_90 and sm_100 can hold, those that registers and static shared
memory leave for blocks of 256 threads (CUDA C++ Programming Guide, "Compute Capabilities": 65,536 registers in units of 256 a
warp, 32 blocks). Shared memory that a launch asks for is not in it.

A kernel that gets worse is an error. cuda_static.json has, for the instances of each kernel on sm_90a: the fewest resident
threads and their sum, how many spill, the 64-bit divisions of integers in the PTX (each takes about as long as an access to
memory), and how many have accesses of 128 bits. From the instructions (cuda_sass.py) it has the accesses to global memory, those of
128 bits among them, and the bytes in flight; `hmma` has, of each instance on tensor cores, the instructions a product and the resident
threads; `large`, of the others that have accesses of 128 bits, the bytes in flight and the resident threads. Rates of kernels are
estimated from these two (tests/timeline/kernel_rates.h). A kernel that is not in the record is an error, too, because nothing
would tell when it gets worse. --write records the numbers of these files; numbers that are worse need a reason in the commit."""
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import cuda_sass

THREADS, REGISTERS, BLOCK, WARP, BLOCKS = 2048, 65536, 256, 32, 32
TENSOR_CORE_BLOCK = 128  # kTensorCoreThreads of impl/ops/cuda/tensor_core.h
SHARED = {"80": 164, "90a": 228, "100": 228}  # KiB of a multiprocessor


def resident(registers: int, shared: int, architecture: str, block: int = BLOCK) -> int:
    of_warp = -(-registers * WARP // 256) * 256
    blocks = min(BLOCKS, THREADS // block, REGISTERS // (of_warp * block // WARP))
    if shared:
        blocks = min(blocks, SHARED.get(architecture, 100) * 1024 // (shared + 1024))
    return blocks * block


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


def key_of(kernel):
    return f"{kernel['family']} {kernel['name'].split('<')[0]}"


def numbers(found, ptx, sass):
    """The record of the kernels on sm_90a, by family and name without arguments of the template."""
    record, taken = {}, {}  # taken: registers and shared memory of an instance
    for kernel in (k for k in found if k["architecture"] == "90a"):
        one = record.setdefault(key_of(kernel), {"kernels": 0, "fewest": THREADS, "resident": 0, "spilling": 0, "divisions": 0, "wide": 0,
                                                 "accesses": 0, "wide_accesses": 0, "in_flight": 0})
        taken[kernel["family"], kernel["name"]] = kernel["registers"], kernel["shared"]
        threads = resident(kernel["registers"], kernel["shared"], "90a")
        one["kernels"] += 1
        one["fewest"] = min(one["fewest"], threads)
        one["resident"] += threads
        one["spilling"] += kernel["spills"] > 0
    for kernel in ptx:
        if one := record.get(key_of(kernel)):
            one["divisions"] += kernel["divisions"]
            one["wide"] += kernel["wide"]
    for kernel in sass:
        if not (one := record.get(key_of(kernel))):
            continue
        one["accesses"] += kernel["accesses"]
        one["wide_accesses"] += kernel["wide"]
        one["in_flight"] += kernel["in_flight"]
        instance, of_thread = kernel["name"].partition("<")[2].rstrip(">"), taken[kernel["family"], kernel["name"]]
        if kernel["hmma"]:
            one.setdefault("hmma", {})[instance] = [kernel["hmma"], resident(*of_thread, "90a", TENSOR_CORE_BLOCK)]
        elif kernel["wide"]:
            one.setdefault("large", {})[instance] = [kernel["in_flight"], resident(*of_thread, "90a")]
    return record


# Of a record: the number, whether more is better, of what it is a share (None: it is compared as it is), and
# words.
FIGURES = (("fewest", 1, None, "resident threads of the instance that has fewest"), ("spilling", -1, None, "instances that spill"),
           ("divisions", -1, None, "64-bit divisions"), ("resident", 1, "kernels", "resident threads"),
           ("wide", 1, "kernels", "instances with 128-bit accesses"), ("wide_accesses", 1, "accesses", "accesses of 128 bits"),
           ("in_flight", 1, "kernels", "bytes in flight"))


def worse(now, before):
    """What got worse, a line each."""
    for name, one in sorted(now.items()):
        if name not in before:
            yield f"{name}: not in the record, which --write changes"
            continue
        old = before[name]
        for figure, better, of, words in FIGURES:
            if of is None and (one[figure] - old[figure]) * better < 0:
                yield f"{name}: {one[figure]} {words}, {old[figure]} before"
            elif of and one[figure] * old[of] < old[figure] * one[of]:
                yield f"{name}: {one[figure]} {words} to {one[of]} {of}, {old[figure]} to {old[of]} before"
        for instance, (ratio, _) in sorted(one.get("hmma", {}).items()):
            if instance in old.get("hmma", {}) and ratio > old["hmma"][instance][0]:
                yield f"{name}<{instance}>: {ratio} instructions a product, {old['hmma'][instance][0]} before"
        for instance in sorted(set(old.get("hmma", {})) - set(one.get("hmma", {}))):
            yield f"{name}<{instance}>: no instance with products of tensor cores, {old['hmma'][instance][0]} instructions each before"


def judge(found, ptx, sass, write, path):
    now = numbers(found, ptx, sass)
    if not now or not ptx:
        return  # of other architectures
    families = {kernel["family"] for kernel in found}
    if missing := sorted(families - {k["family"] for k in ptx}) + sorted(families - {k["family"] for k in sass}):
        sys.exit(f"PTX or instructions are missing of: {', '.join(missing)}")
    recorded = json.loads(path.read_text()) if path.exists() else {}
    if write:  # of these files alone; other kernels keep theirs
        now = {k: v for k, v in recorded.items() if k.split()[0] not in families} | now
        path.write_text("{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(now.items())) + "\n}\n")
        return
    lines = list(worse(now, recorded))
    print(*(f"worse: {line}" for line in lines), sep="\n", end="\n" if lines else "")
    if lines:
        sys.exit(f"{len(lines)} kernels or numbers are worse than in {path.name}")


def short(names):
    """Names without name spaces and types of arguments."""
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    for name in plain.splitlines():
        name = re.sub(r"\(anonymous namespace\)::|gangway::|cuda::|_GLOBAL__N\w*::", "", name)
        name = re.sub(r"\(\w+\)(\d)", r"\1", name)  # the value of an enumeration, without its type
        yield re.sub(r"^void ", "", name).split("(")[0].replace("__nv_bfloat16", "bf16").replace("__half", "f16")


def main(files):
    write = "--write" in files
    record = Path(files[files.index("--record") + 1]) if "--record" in files else RECORD
    found = list(kernels(f for f in files if f.endswith(".txt")))
    ptx = list(bodies(f for f in files if f.endswith(".ptx")))
    if not found:
        sys.exit("no kernel in these files")
    sass = list(cuda_sass.kernels(f for f in files if f.endswith(".sass")))
    every = found + ptx + sass
    for kernel, name in zip(every, short([k["name"] for k in every]), strict=True):
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
    judge(found, ptx, sass, write, record)


main(sys.argv[1:])
