#!/usr/bin/env python3
"""Checks that released levels of the ABI do not change. It releases an invented level in a copy of the
headers. Later functions then go to the next symbol node, and no part of the level can be changed or written
again.

usage: levels_test.py SOURCE-ROOT
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # trees are compared file by file
root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root / "capi"))
import version  # noqa: E402

WITH_RELEASE = [name for name in version.outputs() if not name.startswith("capi/")]
NEW = "/* Local. */\nGW_API gw_status gw_new(void);\n"
# name, header, old and new text, the expected error (None: a later level may have the change)
CHANGES = [
    ("an enumerator's number changes", "base", "GW_E_CORRUPT = 15", "GW_E_CORRUPT = 17",
     "enumerator GW_E_CORRUPT of gw_status_value was 15 and is 17"),
    ("an enumerator goes away", "collectives", "  GW_SUM = 1,\n", "", "enumerator GW_SUM of gw_reduce_value was 1 and is gone"),
    ("an enumerator is new", "collectives", "GW_MAX = 5", "GW_MAX = 5, GW_BAND = 6", None),
    ("an enumeration's type changes", "collectives", "typedef int32_t gw_op;", "typedef int64_t gw_op;", "typedef gw_op was"),
    ("a field goes away", "train", "  int64_t top_k; ", "  //", "struct gw_generate_options has lost or changed"),
    ("a field's type changes", "train", "double temperature;", "int64_t temperature;",
     "struct gw_generate_options has lost or changed the field \"24 8 double temperature\""),
    ("a field in the middle", "train", "double temperature;", "double between; double temperature;",
     "struct gw_generate_options has lost or changed the field \"24 8 double temperature\""),
    ("a field at the end", "train", "} gw_generate_options;", "  int64_t more;\n} gw_generate_options;", None),
    ("a frozen struct grows", "view", "} gw_view;", "  int64_t more;\n} gw_view;", "struct gw_view is frozen"),
    ("a reserved field gets a name", "train", "int32_t reserved;", "int32_t more;", None),
    ("a field is named again", "train", "int64_t token_count;", "int64_t tokens;",
     "struct gw_generate_options has lost or changed"),
    ("a function goes away", "mesh", "GW_API gw_status gw_gangs_abort", "gw_status gw_else",
     "function gw_gangs_abort is gone"),
    ("a parameter's type changes", "optim", "gw_optimizer *optimizer, double lr)", "gw_optimizer *optimizer, float lr)",
     "function gw_optimizer_set_lr was"),
    ("a result's type changes", "optim", "GW_API gw_status gw_optimizer_set_lr", "GW_API int64_t gw_optimizer_set_lr",
     "function gw_optimizer_set_lr was"),
    ("a callback's type changes", "base", "(*gw_free_fn)(void *user)", "(*gw_free_fn)(void *user, int32_t more)",
     "typedef gw_free_fn was"),
    ("a function is new", "mesh", "#ifdef __cplusplus\n}", NEW + "#ifdef __cplusplus\n}", None),
]
bad = []


class Tree:
    """A copy of the files that the generators read and write."""

    def __init__(self, folder):
        self.folder, self.capi = folder, folder / "capi"
        shutil.copytree(root / "capi", self.capi, ignore=shutil.ignore_patterns("levels", "__pycache__", "manual"))
        for name in ("CMakeLists.txt", "tests/regenerate.sh", "tests/capi/abi/gangway.abi", "tests/capi/abi/old_consumer.base64", *WITH_RELEASE):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)

    def edit(self, name, old, new):
        path = self.capi / name
        text = path.read_text()
        assert old in text, (name, old)
        path.write_text(text.replace(old, new, 1))

    def release(self, number):
        path = self.folder / "CMakeLists.txt"
        path.write_text(re.sub(r"VERSION [\d.]+ L", f"VERSION {number} L", path.read_text()))

    def made(self, level):
        """Writes all files that follow from the headers and the release, as regenerate.sh does."""
        for script in ("generate", "abi", "version"):
            self.must(script)
        for script in ("generate", "abi", "version", "levels"):
            self.must(script, "--check")
        said = re.findall(r"kAbi\w+ = (\d+);", (self.capi / "level.h").read_text())
        if ".".join(said) != level:
            bad.append(f"level.h says level {said}, not {level}")

    def run(self, *command):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def python(self, script, *arguments):
        return self.run(sys.executable, "-B", f"capi/{script}.py", *arguments)

    def must(self, script, *arguments):
        status, said = self.python(script, *arguments)
        if status != 0:
            bad.append(f"{script} {' '.join(arguments)}: {said}")

    def refuses(self, name, what, script, *arguments):
        status, said = self.python(script, *arguments)
        if status == 0 or what not in said:
            bad.append(f"{name}: {script} says {said!r} instead of {what!r}")

    def files(self):
        return {path: path.read_bytes() for path in self.capi.rglob("*") if path.is_file()}

    def nodes(self):
        """Returns the symbol node of each function, as the linker reads the version script."""
        script = self.capi / "exports.map"
        names = re.findall(r"\bgw_\w+(?=;)", script.read_text())
        source, library = self.folder / "stub.c", self.folder / "libstub.so"
        source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, f"-Wl,--version-script={script}"], check=True)
        said = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
        return dict(re.findall(r" T (gw_\w+)@@(\S+)", said))


def released(folder):
    tree = Tree(folder)
    tree.release("0.9.3")
    tree.refuses("files of another release", "not of release 0.9.3, level 0.0", "version", "--check")
    tree.made("0.0")
    if set(tree.nodes().values()) != {"GW_0"}:
        bad.append(f"nodes of level 0: {tree.nodes()}")
    tree.refuses("a released level 0", "level 0 stays open", "levels", "--release")
    tree.release("1.0.0")
    tree.refuses("the version script of level 0", "exports.map", "generate", "--check")
    tree.made("1.0")
    tree.must("levels", "--release")
    tree.made("1.0")
    return tree


def changes(place):
    for number, (name, header, old, new, said) in enumerate(CHANGES):
        folder = place / str(number)
        shutil.copytree(place / "released", folder)
        tree = Tree.__new__(Tree)
        tree.folder, tree.capi = folder, folder / "capi"
        tree.edit(f"include/gangway/{header}.h", old, new)
        if said is None:
            tree.made("1.1")
            continue
        said = f"level 1.0 is broken by the headers: {said}"
        before = tree.files()
        status, text = tree.run("bash", "tests/regenerate.sh", str(folder))
        if status == 0 or said not in text or tree.files() != before:
            bad.append(f"{name}: regenerate.sh ends with {status}, {text!r}, and has changed "
                       f"{[str(p) for p, data in tree.files().items() if before.get(p) != data]}")


def growth(tree):
    """Adds a second level, and a third that is still open."""
    tree.refuses("a level without anything new", "nothing is new since level 1.0", "levels", "--release")
    of_1_0 = tree.nodes()
    listed = (tree.capi / "exports.txt").read_text()
    if set(of_1_0.values()) != {"GW_1.0"} or len(of_1_0) < 200:
        bad.append(f"nodes of level 1.0: {of_1_0}")
    for minor, function in ((1, "gw_first"), (2, "gw_second")):
        # The function is declared before all others, because the table must have the order of the levels all
        # the same.
        tree.edit("include/gangway/base.h", "/* Local.", NEW.replace("gw_new", function) + "/* Local.")
        tree.made(f"1.{minor}")
        listed += f"{function}\n"
        if (tree.capi / "exports.txt").read_text() != listed:
            bad.append(f"{function} is not the last of exports.txt")
        if minor == 1:
            tree.must("levels", "--release")
    if tree.nodes() != of_1_0 | {"gw_first": "GW_1.1", "gw_second": "GW_1.2"}:
        bad.append(f"nodes: {tree.nodes()}")
    tree.edit("defaults.txt", "lr = 0.001\n", "lr = 0.002\n")
    tree.refuses("another default", "level 1.0 is broken: default gw_adamw_options.lr was 0.001 and is 0.002", "levels",
                 "--check")
    tree.edit("defaults.txt", "lr = 0.002\n", "lr = 0.001\n")
    tree.edit("include/gangway/base.h", "gw_first(void)", "gw_first(int32_t more)")
    tree.refuses("a function of the second level", "level 1.1 is broken by the headers: function gw_first was", "levels",
                 "--check")
    tree.edit("include/gangway/base.h", "GW_API gw_status gw_first(int32_t more);", "")
    tree.refuses("a function that is gone", "gw_first is gone from the headers", "generate")


with tempfile.TemporaryDirectory() as name:
    place = pathlib.Path(name)
    tree = released(place / "released")
    changes(place)
    growth(tree)
print("\n".join(bad) or f"{len(CHANGES)} changes judged as they should be, three levels with nodes of their own")
sys.exit(1 if bad else 0)
