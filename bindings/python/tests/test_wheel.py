"""What the wheel carries."""

import subprocess
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
