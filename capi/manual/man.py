#!/usr/bin/env python3
"""Writes a man page for each function from the XML that Doxygen made of the headers: what the function does,
and the structs that it takes.

usage: man.py XML-FOLDER HEADERS-FOLDER RELEASE DATE OUT-FOLDER      writes OUT-FOLDER/gw_*.3
"""
import pathlib
import re
import shutil
import sys
import textwrap
import xml.etree.ElementTree

xml_folder, headers, release, date, out = sys.argv[1:]
STRUCT = re.compile(r"^typedef struct (gw_\w+) \{\n.*?^\} \1;$", re.M | re.S)


def plain(node):
    return " ".join("".join(node.itertext()).split())


def escaped(text):
    """Escapes text for troff: backslashes, hyphens, and dots and quotes at the start of a line."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def declaration(member):
    """Returns the declaration as in the header, with one argument a line if it would be long."""
    head = plain(member.find("definition"))
    head = re.sub(r"\* (?=\w+$)", "*", head)
    arguments = plain(member.find("argsstring"))
    if len(head + arguments) > 76:
        arguments = arguments.replace(", ", ",\n    ")
    return f"{head}{arguments};"


def paragraphs(text):
    """Starts each sentence on a new line, as is usual in man pages."""
    sentences = re.sub(r"(?<=[a-z)*])\. (?=[A-Z*])", ".\n", text).split("\n")
    return "\n".join(textwrap.fill(sentence, 78, break_long_words=False, break_on_hyphens=False) for sentence in sentences)


def page(header, member, structs, others):
    name, text = member.findtext("name"), plain(member.find("briefdescription")) + plain(member.find("detaileddescription"))
    what = re.sub(r"^(Local|Collective)\b[^.]*\. ", "", text)
    first = re.split(r"(?<=[a-z)*])[.:;] ", what)[0].rstrip(".")
    used = [structs[t] for t in dict.fromkeys(re.findall(r"\bgw_\w+", plain(member.find("argsstring")))) if t in structs]
    lines = [f'.TH {name.upper()} 3 {date} "gangway {release}" "Gangway"', ".SH NAME", escaped(name) + r" \- " + escaped(textwrap.shorten(first, 200, placeholder=" ...")),
             ".SH SYNOPSIS", ".nf", f"#include <gangway/{header}.h>", "", escaped(declaration(member)), ".fi",
             ".SH DESCRIPTION", escaped(paragraphs(text))]
    if used:
        lines += [".SH STRUCTS", ".nf", escaped("\n\n".join(used)), ".fi"]
    if plain(member.find("type")) == "gw_status":
        lines += [".SH RETURN VALUE", "GW_OK, or a code of which\n.BR gw_last_error (3)\nsays more."]
    lines += [".SH SEE ALSO", ",\n".join(f".BR {escaped(other)} (3)" for other in others[:12]).replace(",\n", " ,\n")]
    return "\n".join(lines) + "\n"


def main():
    folder = pathlib.Path(out)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    texts = {path.stem: path.read_text() for path in pathlib.Path(headers).glob("gangway/*.h")}
    structs = {match[1]: match[0] for name, text in texts.items() if name != "api" for match in STRUCT.finditer(text)}
    for path in sorted(pathlib.Path(xml_folder).glob("group__*.xml")):
        group = xml.etree.ElementTree.parse(path).getroot().find("compounddef")
        members = [m for m in group.iter("memberdef") if m.get("kind") == "function"]
        names = [m.findtext("name") for m in members]
        for index, member in enumerate(members):
            around = names[max(0, index - 4):index] + names[index + 1:index + 5]
            text = page(group.findtext("compoundname"), member, structs, around)
            (folder / f"{names[index]}.3").write_text(text)


main()
