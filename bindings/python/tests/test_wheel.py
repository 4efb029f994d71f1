"""What the wheel carries."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gangway

TOP = Path(__file__).resolve().parents[1]
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


MAPPED = """
import gangway
print(gangway.__file__, *{line.split()[-1] for line in open("/proc/self/maps") if "libgangway" in line})
"""


def test_wheel_and_numpy_are_all_that_a_fresh_environment_needs(tmp_path):
    """No path into a source tree, a build folder or another environment is left."""
    if "GANGWAY_TEST_WHEELS" not in os.environ:
        pytest.skip("GANGWAY_TEST_WHEELS, a folder with wheels of gangway and NumPy, is not set")
    kept = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}

    def run(*command, timeout=120):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
                              cwd=tmp_path, env=kept)
        assert done.returncode == 0, done.stdout
        return done.stdout

    fresh = tmp_path / "fresh"
    python = str(fresh / "bin" / "python")
    run(sys.executable, "-m", "venv", "--without-pip", str(fresh))
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--find-links",
        os.environ["GANGWAY_TEST_WHEELS"], "gangway")
    package, *mapped = run(python, "-c", MAPPED).split()
    assert package.startswith(str(fresh)) and mapped == [str(Path(package).with_name("libgangway.so.1"))]
    example = shutil.copy(TOP / "examples" / "all_reduce.py", tmp_path)
    output = run(python, "-m", "gangway.run", "-n", "2", "--timeout", "60", python, example)
    assert "rank 0 of 2: sum 3" in output and "rank 1 of 2: sum 3" in output
