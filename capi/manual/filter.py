#!/usr/bin/env python3
"""Rewrites a public header for Doxygen: turns its comments into Doxygen comments, in a group with the
header's name, and adds the comment of their rule in base.h to functions that have none (init, retain,
release, the _async forms).

usage: filter.py HEADER > HEADER-FOR-DOXYGEN
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from headers import commented  # noqa: E402


def escaped(text):
    """Escapes the characters that Doxygen would interpret."""
    return re.sub(r"([\\@#<>%&*])", r"\\\1", text)


def documented(match):
    """Returns the Doxygen form of a comment before a declaration."""
    lines = [re.sub(r"^\s*\* ?", "", line) for line in match[2].splitlines()]
    return f"{match[1]}/** " + "\n".join(map(escaped, lines)).strip() + " */"


def filtered(name, text):
    text = commented(text)
    # Removes the titles of sections, which Doxygen would take for comments of the next declaration.
    text = re.sub(r"^/\* ---.*?\*/$", "", text, flags=re.M)
    # Converts comments after a field or an enumerator, then comments before a declaration.
    text = re.sub(r"(?<=\S) +/\* (.*?) \*/$", lambda m: f" /**< {escaped(m[1])} */", text, flags=re.M)
    text = re.sub(r"^( *)/\*(?!\*) (.*?)\*/", documented, text, flags=re.M | re.S)
    # The first comment is that of the header itself: it becomes the group.
    text = text.replace("/** ", f"/** @defgroup {name} {name}.h\n", 1).replace(" */", "\n@{ */", 1)
    return text + "/** @} */\n"


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    sys.stdout.write(filtered(path.stem, path.read_text()))
