#!/usr/bin/env python3
"""What Doxygen reads instead of a public header: its comments as Doxygen's, in a group of the header's name. Functions
that every handle and struct has in the same way (init, retain, release, the _async forms) may go without a comment.

usage: filter.py HEADER > HEADER-FOR-DOXYGEN
"""
import pathlib
import re
import sys

CONVENTIONS = [
    (r"gw_(\w+)_init", "Local. Zeroes all `size` bytes of a gw_{0}, sets struct_size and the defaults."),
    (r"gw_\w+_retain", "Local. One more reference; returns its argument. Null is allowed."),
    (r"gw_\w+_release", "Local. Drops one reference; null is allowed. On any thread."),
    (r"(gw_\w+)_async", "Collective. Starts {0}: the caller releases *out_work, and nothing but gw_work_wait or "
                        "gw_work_order orders the result. INVALID_ARGUMENT, INVALID_STATE; the work has what fails later."),
]


def escaped(text):
    """Words that Doxygen leaves as they are."""
    return re.sub(r"([\\@#<>%&*])", r"\\\1", text)


def by_convention(function):
    for pattern, text in CONVENTIONS:
        match = re.fullmatch(pattern, function)
        if match:
            return f"/** {escaped(text.format(*match.groups()))} */\n"
    return ""


def documented(match):
    """A comment that stands before a declaration."""
    lines = [re.sub(r"^\s*\* ?", "", line) for line in match[2].splitlines()]
    return f"{match[1]}/** " + "\n".join(map(escaped, lines)).strip() + " */"


def filtered(name, text):
    # Titles of sections are not said of what follows.
    text = re.sub(r"^/\* ---.*?\*/$", "", text, flags=re.M)
    # Behind a field or an enumerator; then before a declaration.
    text = re.sub(r"(?<=\S) +/\* (.*?) \*/$", lambda m: f" /**< {escaped(m[1])} */", text, flags=re.M)
    text = re.sub(r"^( *)/\*(?!\*) (.*?)\*/", documented, text, flags=re.M | re.S)
    text = re.sub(r"(?<!\*/\n)^GW_API [^;]*?\b(gw_\w+)\(", lambda m: by_convention(m[1]) + m[0], text, flags=re.M)
    # The first comment is the header's own.
    text = text.replace("/** ", f"/** @defgroup {name} {name}.h\n", 1).replace(" */", "\n@{ */", 1)
    return text + "/** @} */\n"


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    sys.stdout.write(filtered(path.stem, path.read_text()))
