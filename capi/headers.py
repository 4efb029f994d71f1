"""The public headers in the order of their dependencies, which is that of the lists that are made from them. `gangway.h`
includes all of them, and `api.h`, the function table, is made from them."""
import pathlib

INCLUDE = pathlib.Path(__file__).resolve().parent / "include"
HEADERS = ["base", "view", "store", "gang", "work", "collectives", "mesh", "partition", "pipeline", "module", "parameter",
           "layers", "custom", "frame", "checkpoint", "parallel", "optim", "train"]


def check(include=INCLUDE):
    """Refuses a header that is missing in the list."""
    found = {path.stem for path in (include / "gangway").glob("*.h")} - {"api", "gangway"}
    if found != set(HEADERS):
        raise SystemExit(f"capi/headers.py does not list {', '.join(sorted(found ^ set(HEADERS)))}")
