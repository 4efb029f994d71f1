#!/usr/bin/env python3
"""Rewrites a public header for Doxygen: turns its comments into Doxygen comments, in a group with the
header's name, and adds a comment to functions that have none because they follow a convention (init, retain,
release, the _async forms).

usage: filter.py HEADER > HEADER-FOR-DOXYGEN
"""
import pathlib
import re
import sys

CONVENTIONS = [
    (r"gw_(\w+)_init", "Local. Zeroes all `size` bytes of a gw_{0}, sets struct_size and the defaults."),
    (r"gw_\w+_retain", "Local. Adds a reference and returns its argument. Null is allowed."),
    (r"gw_\w+_release", "Local. Drops one reference; null is allowed. On any thread."),
    (r"(gw_\w+)_async", "Collective. Starts {0} and returns: the caller releases *out_work, and only gw_work_wait or "
                        "gw_work_order orders the result. INVALID_ARGUMENT, INVALID_STATE; the work has later errors."),
]


def escaped(text):
    """Escapes the characters that Doxygen would interpret."""
    return re.sub(r"([\\@#<>%&*])", r"\\\1", text)


def by_convention(function):
    """Returns the comment of a function that follows a convention; empty if it follows none."""
    for pattern, text in CONVENTIONS:
        match = re.fullmatch(pattern, function)
        if match:
            return f"/** {escaped(text.format(*match.groups()))} */\n"
    return ""


def documented(match):
    """Returns the Doxygen form of a comment before a declaration."""
    lines = [re.sub(r"^\s*\* ?", "", line) for line in match[2].splitlines()]
    return f"{match[1]}/** " + "\n".join(map(escaped, lines)).strip() + " */"


def filtered(name, text):
    # Removes the titles of sections, which Doxygen would take for comments of the next declaration.
    text = re.sub(r"^/\* ---.*?\*/$", "", text, flags=re.M)
    # Converts comments after a field or an enumerator, then comments before a declaration.
    text = re.sub(r"(?<=\S) +/\* (.*?) \*/$", lambda m: f" /**< {escaped(m[1])} */", text, flags=re.M)
    text = re.sub(r"^( *)/\*(?!\*) (.*?)\*/", documented, text, flags=re.M | re.S)
    text = re.sub(r"(?<!\*/\n)^GW_API [^;]*?\b(gw_\w+)\(", lambda m: by_convention(m[1]) + m[0], text, flags=re.M)
    # The first comment is that of the header itself: it becomes the group.
    text = text.replace("/** ", f"/** @defgroup {name} {name}.h\n", 1).replace(" */", "\n@{ */", 1)
    return text + "/** @} */\n"


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    sys.stdout.write(filtered(path.stem, path.read_text()))
