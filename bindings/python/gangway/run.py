"""python -m gangway.run -n RANKS [options] [--] PROGRAM [arguments]: gangrun with this Python for scripts and modules."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def gangrun() -> str:
    """The launcher of this package, else the one on the PATH."""
    own = Path(__file__).with_name("gangrun")
    found = str(own) if own.exists() else shutil.which("gangrun")
    if found is None:
        sys.exit("gangway.run: gangrun is neither in the package nor on the PATH")
    return found


def main() -> None:
    """Becomes gangrun. A .py file, a module (-m) and the word python run under the interpreter that runs this."""
    program = gangrun()
    own = ["--python", sys.executable] if sys.executable else []
    os.execv(program, [program, *own, *sys.argv[1:]])


if __name__ == "__main__":
    main()
