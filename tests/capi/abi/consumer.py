#!/usr/bin/env python3
"""Keeps the old program as an x86-64 binary. It was compiled once from old_consumer*.c, with the names that
the function table had then, and is kept as text. Each released level keeps its own program in capi/levels.

usage: consumer.py --check LIBRARY     runs every kept program on the library
       consumer.py LIBRARY             does the same; at level 0, which is open, it replaces a program that fails
       consumer.py --make LIBRARY      compiles the program again, as the release of a level does
"""
import base64
import gzip
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "capi"))
import levels  # noqa: E402

KEPT = levels.CONSUMER
SKIPPED = 77


def kept():
    return [*sorted(levels.LEVELS.glob(f"{levels.MAJOR}.*.consumer")), *([KEPT] if KEPT.exists() else [])]


def make(library):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        entries = (ROOT / "capi/exports.txt").read_text().split()
        (folder / "old_table.inc").write_text("".join(f'"{entry}",\n' for entry in entries))
        sources = sorted(source.name for source in HERE.glob("old_consumer*.c"))
        program = folder / "program"
        # Compiles in the folder of the sources, so that the program contains no path of this machine.
        subprocess.run(["cc", "-std=gnu11", "-O1", "-s", "-Wl,--build-id=none", f"-I{folder}", "-o", program, *sources,
                        library, "-ldl"], check=True, cwd=HERE)
        text = base64.encodebytes(gzip.compress(program.read_bytes(), 9, mtime=0)).decode()
    major, minor = levels.current()
    KEPT.write_text(f"# Made by tests/capi/abi/consumer.py at level {major}.{minor} from {', '.join(sources)}: "
                    f"a program of {len(entries)} functions for x86-64 Linux, gzip in base64.\n{text}")


def run(text, library):
    """Returns what is wrong, or ""."""
    with tempfile.TemporaryDirectory() as name:
        program = pathlib.Path(name) / "program"
        encoded = text.read_text().split("\n", 1)[1]
        program.write_bytes(gzip.decompress(base64.b64decode(encoded)))
        program.chmod(0o755)
        env = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
        done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=100)
    said = (done.stdout + done.stderr).strip()
    if done.returncode == 0:
        print(f"{text.name}: {said}")
    return "" if done.returncode == 0 else f"{text.name} ends with {done.returncode}: {said}\n"


def main():
    library = pathlib.Path(next(a for a in sys.argv[1:] if not a.startswith("--"))).absolute()
    if platform.machine() != "x86_64":
        print(f"the kept programs are for x86-64, this is {platform.machine()}")
        return SKIPPED
    if "--make" in sys.argv:
        make(library)
    said = "".join(run(text, library) for text in kept()) or ("" if kept() else "no program is kept\n")
    if not said:
        return 0
    print(said, end="")
    if "--check" in sys.argv or "--make" in sys.argv or levels.MAJOR > 0:
        print("a program of an earlier day does not run on this library")
        return 1
    make(library)
    print("level 0 is open: the program was made anew")
    return 1 if run(KEPT, library) else 0


if __name__ == "__main__":
    sys.exit(main())
