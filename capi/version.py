#!/usr/bin/env python3
"""Copies the release number into the files that repeat it. Its only source is `project(gangway VERSION
X.Y.Z)` in CMakeLists.txt. X is the major level of the ABI; the minor level follows from the released levels
(capi/levels.py). CMake derives the SONAME and the Debian packages from the release, and capi/generate.py the
symbol nodes. This script writes the files that CMake does not read:

  capi/level.h                                 the level that gw_abi_version and the function table report
  level.py, level.rs, level.jl in bindings/    release, level and library that the binding was made from
  pyproject.toml, Cargo.toml, Cargo.lock, Project.toml and the README files: the lines that contain one of
  these

usage: version.py [--check]      --check: changes nothing, exits 1 if a file has another number
       version.py NAME           prints the release, soname, package or level
"""
import re
import sys

import levels

ROOT = levels.CAPI.parent
# Each of the two wheels requires the same version of the other.
WHEELS = ["bindings/python/pyproject.toml", "bindings/python/cuda/pyproject.toml"]
MANIFESTS = [*WHEELS, "bindings/rust/gangway/Cargo.toml", "bindings/rust/gangway-sys/Cargo.toml", "bindings/julia/Project.toml"]
LOCKS = [f"{folder}/Cargo.lock" for folder in ("bindings/rust", "tests/bindings/bench", "tests/bindings/mixed")]
TEXTS = ["README.md", "bindings/python/README.md", "bindings/rust/README.md", "bindings/julia/README.md"]


def facts():
    """Returns each number by its name."""
    major = levels.MAJOR
    level = levels.current()
    return {"release": ".".join(map(str, levels.RELEASE)), "soname": f"libgangway.so.{major}",
            "package": f"libgangway{major}", "level": f"{level[0]}.{level[1]}"}


def replaced(path, pattern, value, text=None):
    """Returns the text of a file with `value` in place of what the pattern's group matches."""
    text, count = re.subn(pattern, lambda m: m[0].replace(m[1], value), text or (ROOT / path).read_text(), flags=re.M)
    if count == 0:
        sys.exit(f"{path} has nothing like {pattern}")
    return text


def outputs():
    """Returns the text of each file by its path."""
    known, (major, minor) = facts(), levels.current()
    numbers, soname = ", ".join(map(str, levels.RELEASE)), known["soname"]
    made = "Made by capi/version.py: do not edit."
    about = "The release and the ABI level that this was made from, and the name of that library."
    found = {
        "capi/level.h": f"""// {made}
#pragma once

#include <cstdint>

namespace gangway::capi {{

constexpr int32_t kAbiMajor = {major};
constexpr int32_t kAbiMinor = {minor};

}}  // namespace gangway::capi
""",
        "bindings/python/gangway/level.py": f"""# {made}
\"\"\"{about}\"\"\"

RELEASE = ({numbers})
ABI = ({major}, {minor})
LIBRARY = "{soname}"
""",
        "bindings/rust/gangway-sys/src/level.rs": f"""// {made}
/// The release that these bindings were made from.
pub const RELEASE: (i32, i32, i32) = ({numbers});
/// The ABI level that these bindings were made from.
pub const ABI: (i32, i32) = ({major}, {minor});
/// The name of the library of that level.
pub const LIBRARY: &str = "{soname}";
""",
        "bindings/julia/src/level.jl": f"""# {made}
# {about}
const RELEASE = v"{known["release"]}"
const ABI_MAJOR, ABI_MINOR = Int32({major}), Int32({minor})
const LIBRARY = "{soname}"
""",
    }
    for name in MANIFESTS:
        found[name] = replaced(name, r'^(?:gangway-sys = .*)?version = "([^"]*)"', known["release"])
    for name in WHEELS:
        found[name] = replaced(name, r'"libgangway(?:-cuda)?==([^"]*)"', known["release"], found[name])
    for name in LOCKS:
        found[name] = replaced(name, r'^name = "gangway(?:-sys)?"\nversion = "([^"]*)"$', known["release"])
    for name in TEXTS:
        found[name] = replaced(name, r"(libgangway\.so\.\d+)\b", soname)
    return found


def main():
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    if asked in facts():
        print(facts()[asked])
        return
    stale = []
    for name, text in outputs().items():
        path = ROOT / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if asked != "--check":
                path.write_text(text)
    if asked == "--check" and stale:
        sys.exit(f"not of release {facts()['release']}, level {facts()['level']}: run capi/version.py for {', '.join(stale)}")


if __name__ == "__main__":
    main()
