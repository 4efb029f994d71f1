"""python -m gangway.run -n RANKS [options] [--] PROGRAM [arguments]: gangrun."""

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
    """Becomes gangrun."""
    program = gangrun()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
