"""The public headers in the order of their dependencies, which is that of the lists that are made from them, and the rules that
base.h states for functions that every struct, handle or collective has. `gangway.h` includes all headers, and `api.h`, the
function table, is made from them."""
import pathlib
import re

INCLUDE = pathlib.Path(__file__).resolve().parent / "include"
HEADERS = ["base", "view", "store", "gang", "work", "collectives", "mesh", "partition", "pipeline", "module", "parameter",
           "layers", "custom", "frame", "checkpoint", "fp8", "lora", "checkpoints", "parallel", "optim", "optimizers", "custom_optimizer", "train", "verify",
           "dataset", "metrics", "plan"]


def check(include=INCLUDE):
    """Refuses a header that is missing in the list."""
    found = {path.stem for path in (include / "gangway").glob("*.h")} - {"api", "gangway"}
    if found != set(HEADERS):
        raise SystemExit(f"capi/headers.py does not list {', '.join(sorted(found ^ set(HEADERS)))}")


def rules(include=INCLUDE):
    """What base.h says of each gw_NAME_init and so on: {"init": "Local. Sets up a gw_NAME: ..."}."""
    head = (include / "gangway/base.h").read_text().partition("*/")[0]
    found = re.findall(r"^ \* - gw_NAME_(\w+): (.*?)(?=\n \* - |\n \*\n|\Z)", head, re.M | re.S)
    return {ending: " ".join(re.sub(r"^ \*", "", text, flags=re.M).split()) for ending, text in found}


RULES = rules()


def rule_of(function):
    """The comment of a function that follows a rule of base.h, else ""."""
    name, _, ending = function.rpartition("_")
    return RULES.get(ending, "").replace("gw_NAME", name)


def commented(text):
    """A header's text in which the functions that have no comment have that of their rule."""
    def comment(match):
        rule = rule_of(match[1])
        return f"/* {rule} */\n{match[0]}" if rule else match[0]
    return re.sub(r"(?<!\*/\n)^GW_API [^;(]*?\b(gw_\w+)\(", comment, text, flags=re.M)
