#!/usr/bin/env python3
"""Compiles each public header alone, in every language standard that a binding's compiler may use, and checks
that bindings can use all its names.

usage: header_test.py INCLUDE-FOLDER
"""
import keyword
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

include = pathlib.Path(sys.argv[1])
headers = sorted((include / "gangway").glob("*.h"))
bad = []

LANGUAGES = {"gcc": ["c99", "c11", "c17"], "g++": ["c++11", "c++14", "c++17", "c++20"],
             "clang": ["c99", "c11", "c17"], "clang++": ["c++11", "c++14", "c++17", "c++20"]}
FLAGS = ["-pedantic", "-Wall", "-Wextra", "-Werror", "-Wstrict-prototypes", "-fsyntax-only"]

checked, missing = 0, []
with tempfile.TemporaryDirectory() as folder:
    for compiler, standards in LANGUAGES.items():
        if shutil.which(compiler) is None:
            missing.append(compiler)
            continue
        suffix = "cpp" if "+" in compiler else "c"
        flags = [f for f in FLAGS if suffix == "c" or f != "-Wstrict-prototypes"]
        files = []
        for header in headers:
            source = pathlib.Path(folder) / f"{header.stem}.{suffix}"
            # Including it twice tests the guard. The declaration after it tests that the header closes all it
            # opens.
            source.write_text(f"#include <gangway/{header.name}>\n#include <gangway/{header.name}>\nextern int after;\n")
            files.append(str(source))
        for standard in standards:
            done = subprocess.run([compiler, f"-std={standard}", *flags, f"-I{include}", *files], capture_output=True,
                                  text=True)
            checked += len(files)
            if done.returncode != 0:
                bad.append(f"{compiler} -std={standard}: {done.stderr[:2000]}")

# Keywords that a binding cannot use as the name of a field or a parameter.
CPP = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace new
noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid
typename union unsigned using virtual void volatile wchar_t while xor xor_eq import module final override"""
PYTHON = """False None True and as assert async await break class continue def del elif else except finally for from
global if import in is lambda nonlocal not or pass raise return try while with yield match self"""
RUST = """as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move
mut pub ref return self Self static struct super trait true type unsafe use where while abstract become box do final macro
override priv try typeof unsized virtual yield union gen"""
JULIA = """baremodule begin break catch const continue do else elseif end export false finally for function global if
import let local macro module quote return struct true try using while abstract mutable primitive type where in isa outer
public"""
reserved = set((CPP + " " + PYTHON + " " + RUST + " " + JULIA).split())
reserved |= set(keyword.kwlist + keyword.softkwlist) - {"_"}  # newer versions of Python have more


def c_macros():
    """Returns every macro that a program may have before it includes a header: of the C library, POSIX and
    Linux."""
    lists = {"gcc": """assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign
                 stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar
                 wctype arpa/inet dirent dlfcn fcntl ftw grp netdb netinet/in netinet/tcp poll pthread pwd regex sched
                 search semaphore spawn strings sys/epoll sys/eventfd sys/ioctl sys/mman sys/param sys/prctl
                 sys/resource sys/select sys/shm sys/signalfd sys/socket sys/stat sys/statvfs sys/syscall
                 sys/sysmacros sys/time sys/times sys/types sys/uio sys/un sys/utsname sys/wait syslog termios
                 ucontext unistd utime linux/futex linux/types""",
             "g++": "cassert cerrno cmath cstdio ciso646 version"}
    found = set(C_MACROS.split())
    for compiler, names in lists.items():
        if compiler in missing:
            continue
        ending = ".h" if compiler == "gcc" else ""
        text = "".join(f"#if __has_include(<{n}{ending}>)\n#include <{n}{ending}>\n#endif\n" for n in names.split())
        language = "c" if compiler == "gcc" else "c++"
        made = subprocess.run([compiler, f"-x{language}", "-D_GNU_SOURCE", "-dM", "-E", "-"], input=text,
                              capture_output=True, text=True, check=True).stdout
        found |= set(re.findall(r"^#define (\w+)", made, re.M))
    return found


C_MACROS = "errno stdin stdout stderr EOF NULL assert offsetof INFINITY NAN major minor makedev unix linux"
macros = c_macros() - {"__cplusplus", "__GNUC__", "NULL"}  # the headers test these

TYPE = {"void", "char", "double", "float", "int", "struct", "const"}  # parts of types, never names
fields = 0
for header in headers:
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    text = re.sub(r"^\s*#.*(\\\n.*)*$", "", text, flags=re.M)
    for name in sorted(set(re.findall(r"\b[A-Za-z_]\w*", text)) & macros):
        bad.append(f"{header.name}: \"{name}\" is a macro of the C library")
    names = []
    # A declared name is the last word before one of ; , ) [ or, for a function pointer, the word after "(*".
    for match in re.finditer(r"(\w+)\s*(?:\[\w*\]\s*)*[;,)]|\(\*(\w+)\)", text):
        names.append(match.group(1) or match.group(2))
    for name in names:
        if name.isdigit() or name in TYPE or re.match(r"(gw_|GW_)", name) or name.endswith("_t"):
            continue
        fields += 1
        # This includes the entries of the function table, which are names of functions without the prefix.
        if name in reserved:
            bad.append(f"{header.name}: \"{name}\" is a keyword of C++, Python, Rust or Julia")
    for forbidden in ("long ", "FILE", "size_t gw_static", "static inline", "__int128"):
        if re.search(rf"\b{forbidden}", text):
            bad.append(f"{header.name}: has \"{forbidden.strip()}\"")
    for line in re.findall(r"^\s*#\s*include\s*(\S+)", header.read_text(), re.M):
        if line not in ("<stddef.h>", "<stdint.h>") and not line.startswith("<gangway/"):
            bad.append(f"{header.name}: includes {line}")
    for enum, body in re.findall(r"enum (\w+) \{(.*?)\}", text, re.S):
        if not re.search(r"=\s*-\d", body):
            bad.append(f"{header.name}: enum {enum} has no negative member, so its size may differ")

print("\n".join(bad) or f"{len(headers)} headers, {checked} compilations, {fields} names, {len(reserved)} keywords, "
      f"{len(macros)} macros")
if missing:  # all else has been checked
    print(f"not installed: {', '.join(missing)} (Debian: g++, clang)")
allowed = os.environ.get("GANGWAY_ALLOW_MISSING") == "1"
sys.exit(1 if bad or (missing and not allowed) else 77 if missing else 0)
