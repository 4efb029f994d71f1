"""What the wheel carries."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gangway

FOLDER = Path(gangway.__file__).parent


def dynamic(path):
    return subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout


def test_the_library_keeps_its_soname_and_is_found_next_to_the_module():
    if (FOLDER / "libgangway.so.1").is_symlink():
        pytest.skip("runs from the source folder, not from a wheel")
    assert "soname: [libgangway.so.1]" in dynamic(FOLDER / "libgangway.so.1")
    (module,) = FOLDER.glob("_low.*.so")
    facts = dynamic(module)
    assert "[libgangway.so.1]" in facts and "[$ORIGIN]" in facts
    assert str(FOLDER / "libgangway.so.1") in Path("/proc/self/maps").read_text()
    assert (FOLDER / "gangrun").stat().st_mode & 0o111 and (FOLDER / "py.typed").exists()


MOVED = """
import sys
import numpy as np
import gangway as gw
assert gw.__file__.startswith(sys.argv[1]), gw.__file__
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "libgangway" in line}
assert mapped == {sys.argv[1] + "/gangway/libgangway.so.1"}, mapped
with gw.init() as gangs:
    assert gangs.size == 2 and (gangs["dp"].all_reduce(np.full(1000, gangs.rank + 1.0)) == 3).all()
    print("moved and well")
"""


def test_the_package_needs_nothing_outside_of_its_folder(tmp_path):
    """No path into a source tree, a build folder or site-packages is left."""
    shutil.copytree(FOLDER, tmp_path / "gangway", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run([sys.executable, "-P", "-m", "gangway.run", "-n", "2", "--timeout", "60", sys.executable, "-P", "-c",
                           MOVED, str(tmp_path)], capture_output=True, text=True, timeout=90, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0 and done.stdout.count("moved and well") == 2, done.stdout + done.stderr
