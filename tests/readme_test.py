#!/usr/bin/env python3
"""The shell commands of every page, run as they are written.

  readme_test.py check          every command of every page is known here: it is run, or a reason says what runs it
  readme_test.py run [PAGE...]  runs them (all pages, or these) in a copy of the clone; as root on a bare Debian, since
                                they install packages and the library

A page's commands run in one shell, in the order of the page, after what SETUP says of the page: the files that the
page takes for granted, and the packages of its language. A command that ends with 77 has said what is missing here: it
and those after it are skipped. The last line is "N passed, N failed, N skipped".
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]

# The pages whose commands run, in this order: later ones use what earlier ones built.
RUN = ["README.md", "DLOPEN.md", "ABI.md", "bindings/python/README.md", "bindings/rust/README.md",
       "bindings/rust/gangway/README.md"]

# Commands that this test does not run, by their beginning, and why.
ELSEWHERE = {
    "bash tests/run.sh": "legs of their own in .ci/full, and the whole of CI",
    "bash tests/format.sh": "a test of tests/run.sh",
    "bash bindings/python/test.sh BUILD_DIR": "tests/run.sh runs it",
    "build-test/tests/train/train_step_test": "tests/run.sh runs this program",
    "(cd build && cpack)": "pkgconfig_package_test runs it, with the prefix /usr",
    "head -c 32 /dev/urandom >secret": "hosts_test starts ranks on hosts that are network namespaces, with a secret",
    "export GANGWAY_SECRET_FILE=": "hosts_test",
    "RANK=": "hosts_test",
    "cmake -S . -B build-bench": "no test: benchmarks take long and install what they compare with",
    "ninja -C build-bench": "no test, likewise",
    "build-bench/tests/bench/": "no test, likewise",
    "bash tests/cuda_build.sh build-cuda": "a leg of CI",
    "bash tests/gpu/": "gpu_first_test, over the software GPU",
}

# What a command gets at its end here, by its beginning: training that takes seconds.
SHORTER = {
    "gangrun -n 2 gw-train": "--train.steps 4 --train.global_batch 4 --data.sequence 32 --optimizer.warmup_steps 1 "
                             "--evaluate.every 2 --evaluate.batches 1 --sample.tokens 8",
}

INSTALL = 'apt-get() { DEBIAN_FRONTEND=noninteractive command apt-get -y -qq "$@" >/dev/null; }; apt-get update\n'
SETUP = {
    "README.md": INSTALL + "apt-get install doxygen\n"
                 "for i in $(seq 1 400); do printf 'Sentence %d says that %d is seven times %d.\\n\\n' $i $((7 * i)) $i; done >my.txt\n"
                 "PATH=$PWD/build-release/impl/tools:$PATH\n",
    "DLOPEN.md": INSTALL + "apt-get install ruby\n",
    "ABI.md": INSTALL + "apt-get install python3 castxml bindgen clang rustfmt abigail-tools clang-format\n"
              "cmake -B build -G Ninja -DGANGWAY_TESTS=OFF >/dev/null\n",
    "bindings/python/README.md": INSTALL + r"""cat >train.py <<'END'
import numpy as np
import gangway as gw

with gw.init() as gangs:
    model = gw.Llama(dim=32, layers=2, heads=2).parallelize(gangs)
    opt = gw.AdamW(model, lr=3e-3)
    for step in range(3):
        print(gw.train_step(model, opt, np.random.default_rng(step).integers(0, 256, (4, 16))).loss)
END
""",
    "bindings/rust/README.md": INSTALL + "apt-get install cargo rustc\n",
    "bindings/rust/gangway/README.md": "",
}


def pages():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=TOP, capture_output=True, text=True, check=True).stdout
    return listed.split()


def commands(page):
    """The commands of a page's blocks of shell, continued lines joined. Pictures are in blocks that name no language, and
    are indented, so that a line of such a block that is not indented counts as a command, too."""
    found, opened, inside, unnamed, begun = [], False, False, False, ""
    for line in (TOP / page).read_text().splitlines():
        if line.startswith("```"):
            opened, inside = not opened, not opened and re.fullmatch(r"```(sh|bash|shell|console)?", line.strip())
            unnamed = line.strip() == "```"
            continue
        if not inside or not line.strip() or line.lstrip().startswith("#") or (unnamed and line.startswith(" ")):
            continue
        begun += line + "\n"
        if line.endswith("\\"):
            continue
        found.append(begun.rstrip("\n"))
        begun = ""
    return found


def reason(command):
    return next((why for start, why in ELSEWHERE.items() if command.startswith(start)), None)


def check():
    failed = passed = 0
    for page in pages():
        for command in commands(page):
            known = page in RUN or reason(command)
            failed, passed = failed + (not known), passed + bool(known)
            if not known:
                print(f"FAILED: {page} has a command that no test runs; add the page to RUN or the command to ELSEWHERE:\n  {command}")
    return passed, failed, 0


def builds(folder, names):
    """The clone's own build folders, which a copy does not take."""
    return [name for name in names if Path(folder) == TOP and name.startswith("build")]


def run(chosen):
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "gangway"
        shutil.copytree(TOP, clone, symlinks=True, ignore=builds)
        for page in chosen:
            counts = run_page(page, clone)
            passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
    return passed, failed, skipped


def run_page(page, clone):
    script, mine, skipped = "set -euo pipefail\n" + SETUP[page], [], 0
    for command in commands(page):
        why = reason(command)
        if why:
            skipped += 1
            print(f"skipped: {page}: {command.splitlines()[0]} ({why})")
            continue
        more = next((options for start, options in SHORTER.items() if command.startswith(start)), "")
        mine.append(command)
        script += f"echo '== command {len(mine)}'\n{command} {more}\n"
    print(f"== {page}: {len(mine)} commands", flush=True)
    done = subprocess.run(["bash", "-c", script], cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    begun = done.stdout.count("== command ")
    if done.returncode == 0:
        return len(mine), 0, skipped
    at = mine[begun - 1] if begun else "what SETUP says"
    if done.returncode == 77 and begun:
        why = [line for line in done.stdout.splitlines() if line.startswith("skipped:")] or ["skipped: it ended with 77"]
        print(f"{why[-1]}: {page}: {at}")
        return begun - 1, 0, skipped + len(mine) - begun + 1
    print(f"FAILED: {page}: exit {done.returncode} of: {at}\n" + "\n".join(done.stdout.splitlines()[-40:]))
    good = max(begun - 1, 0)
    return good, len(mine) - good, skipped


def main():
    if sys.argv[1:2] == ["check"] and len(sys.argv) == 2:
        counts = check()
    elif sys.argv[1:2] == ["run"] and not set(sys.argv[2:]) - set(RUN):
        counts = run(sys.argv[2:] or RUN)
    else:
        sys.exit(__doc__)
    print("{} passed, {} failed, {} skipped".format(*counts))
    return counts[1] > 0


if __name__ == "__main__":
    sys.exit(main())
