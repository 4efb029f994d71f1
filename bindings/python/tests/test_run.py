"""python -m gangway.run: which interpreter scripts and modules get, and that the command of the README works as written."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = "import os, sys\nprint(os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], sys.executable, sys.argv[1:])\n"


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "VIRTUAL_ENV")}
    return subprocess.run([sys.executable, "-m", "gangway.run", *arguments], cwd=folder, env=environment, text=True,
                          capture_output=True, timeout=60)


def lines(done: "subprocess.CompletedProcess[str]") -> list[str]:
    assert done.returncode == 0, done.stderr
    return sorted(re.sub(r"^\[\d+\] ", "", line) for line in done.stdout.splitlines())


def expected(*arguments: str, ranks: int = 2) -> list[str]:
    return [f"{rank} of {ranks} {sys.executable} {list(arguments)}" for rank in range(ranks)]


def test_a_script_a_module_and_the_word_python_run_under_this_interpreter(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "job.py").write_text(SCRIPT)
    assert lines(run(tmp_path, "-n", "2", "train.py", "--lr", "3")) == expected("--lr", "3")
    assert lines(run(tmp_path, "-n", "2", "-m", "package.job", "-n", "7")) == expected("-n", "7")
    assert lines(run(tmp_path, "--nproc-per-node", "2", "python", "train.py")) == expected()
    assert lines(run(tmp_path, "--nproc_per_node=1", "--standalone", "python3", "train.py", "x")) == expected("x", ranks=1)


def test_the_commands_of_the_pages_work_as_written(tmp_path: Path) -> None:
    top = Path(__file__).resolve().parents[3]
    (tmp_path / "train.py").write_text(SCRIPT)
    found = 0
    for page in (top / "README.md", top / "bindings" / "python" / "README.md"):
        for words in re.findall(r"python -m gangway\.run ((?:-[\w-]+(?:[ =]\w+)? )*(?:python )?train\.py)", page.read_text()):
            found += 1
            assert lines(run(tmp_path, *words.split())) == expected(), f"{page.name}: {words}"
    assert found >= 2


def test_what_cannot_run_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "-n", "2", "missing.py")
    assert (done.returncode, done.stderr) == (127, "gangrun: cannot run missing.py: No such file or directory\n")
    done = run(tmp_path, "-n", "2", "--rdzv-backend", "c10d", "train.py")
    assert done.returncode == 2 and "unknown option --rdzv-backend" in done.stderr
