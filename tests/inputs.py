"""What a test reads, as hashes that are the same in every clone: programs, libraries, scripts, data, the machine.

A program counts by what is loaded of it, without debug information and without the ids of this build, which every edit
changes and which are the same in all its programs. It names the files that it opens as "@build@/..." and "@source@/..."
(support/placed.h). Of a script the whole folder counts, what its text names, and, where it looks above its folder, all
that is tracked. Too much here runs a test once more; too little would hide a failure.
"""
import functools
import hashlib
import os
import pathlib
import re
import struct
import subprocess
import sys

WRAPPERS = ("run_cmocka.sh",)  # run one program, and read nothing else
LOOKS_ABOVE = re.compile(r"parents\[|\.parent\.parent|\.\./\.\.(?![\w/])")
OWN_VARIABLES = ("GANGWAY_PASSES", "GANGWAY_USE_PASSES", "GANGWAY_TEST_JOBS", "GANGWAY_FAILED_LIST", "GTEST_OUTPUT")


def digest(*parts):
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        part = part if isinstance(part, bytes) else str(part).encode()
        total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()


def said(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout
    except OSError:
        return ""


class Elf:
    """The loaded bytes of a program or shared library, and the folders in which it looks for libraries."""

    def __init__(self, data):
        offset, size, count = struct.unpack_from("<Q14xHH", data, 0x20)
        headers = [struct.unpack_from("<IIQQQQQQ", data, offset + i * size) for i in range(count)]
        # Where the sections begin, and how many there are, follows from the debug information.
        data = data[:0x28] + bytes(8) + data[0x30:0x3C] + bytes(4) + data[0x40:]
        loaded = [h for h in headers if h[0] == 1]
        self.bytes = b"".join(struct.pack("<IQQ", h[1], h[3], h[6]) + data[h[2]:h[2] + h[5]] for h in loaded)
        self.folders = []
        for _, _, start, _, _, length, _, _ in (h for h in headers if h[0] == 2):
            tags = [struct.unpack_from("<qQ", data, at) for at in range(start, start + length, 16)]
            strings = dict(tags).get(5)
            base = next((h[2] - h[3] for h in loaded if strings and h[3] <= strings < h[3] + h[5]), 0)
            for value in (value for tag, value in tags if tag in (15, 29)):
                at = base + strings + value
                self.folders += filter(None, data[at:data.index(b"\0", at)].decode().split(":"))


class Inputs:
    def __init__(self, build):
        self.build = pathlib.Path(build).resolve()
        cache = (self.build / "CMakeCache.txt").read_text()
        self.source = pathlib.Path(re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache, re.M).group(1))
        self.sanitized = re.search(r"^GANGWAY_SANITIZE:\w+=(.+)$", cache, re.M) is not None
        generated = [self.build / "impl/base" / name for name in ("library_build.cpp", "include/gangway_build_id.h")]
        texts = [path.read_text() for path in generated if path.exists()]
        self.ids = [found.encode() for text in texts for found in re.findall(r'"([0-9a-f]{16})"', text)]

    def without_folders(self, text):
        return text.replace(str(self.build), "@build@").replace(str(self.source), "@source@")

    @functools.cache
    def content(self, path):
        """The bytes of a file as they count, and for a program its Elf."""
        data = path.read_bytes()
        if data[:4] != b"\x7fELF" or data[16] not in (2, 3):
            if self.build in path.parents:  # CMake's files name the folders
                data = data.replace(bytes(self.build), b"@build@").replace(bytes(self.source), b"@source@")
            return data, None
        elf = Elf(data)
        loaded = re.sub(rb"\x04\0\0\0([\x08\x10\x14\x20])\0\0\0\x03\0\0\0GNU\0", rb"@note@\1", elf.bytes)
        loaded = re.sub(rb"(?s)@note@(.)(.{32})", lambda m: b"@note@" + m[1] + m[2][m[1][0]:], loaded)
        for one in self.ids:
            loaded = loaded.replace(one, b"@" * 16)
        return loaded, elf

    @functools.cache
    def hash_of(self, path, whole=False):
        return digest(path.read_bytes() if whole and self.build in path.parents else self.content(path)[0])

    def libraries_in(self, folder):
        return {path for path in folder.glob("*.so*") if path.is_file()} if folder.is_dir() else set()

    @functools.cache
    def programs(self):
        """Each program of the build by its name."""
        found = {}
        for folder, folders, names in os.walk(self.build):
            folders[:] = [name for name in folders if name not in ("CMakeFiles", "bench")]
            if os.path.relpath(folder, self.build).split("/")[0] in ("capi", "examples", "impl", "tests"):
                paths = [pathlib.Path(folder, name) for name in names if "." not in name]
                found.update((path.name, path) for path in paths if os.access(path, os.X_OK))
        return found

    @functools.cache
    def tracked(self):
        listed = said("git", "-C", self.source, "ls-files", "-z", "-co", "--exclude-standard")
        if not listed:  # an archive's sources
            walked = [pathlib.Path(folder, name) for folder, _, names in os.walk(self.source) for name in names]
            listed = "\0".join(str(path.relative_to(self.source)) for path in walked if self.build not in path.parents)
        return sorted(self.source / name for name in listed.split("\0") if name)

    @functools.cache
    def tree(self, folder):
        """The files of a folder of the sources."""
        return {path for path in self.tracked() if folder in path.parents and path.is_file()}

    @functools.cache
    def read_by(self, path):
        """What a file opens: programs and libraries by the names in their bytes, scripts by their text."""
        path = pathlib.Path(path)
        data, elf = self.content(path)
        if elf:
            named = set(re.findall(rb"@(build|source)@/([\w.+/-]*[\w+-])", data))
            files = set().union(*(self.opened(getattr(self, root.decode()) / name.decode()) for root, name in named))
            for folder in elf.folders:
                folder = pathlib.Path(folder.replace("$ORIGIN", str(path.parent))).resolve()
                files |= self.libraries_in(folder) if self.build in folder.parents else set()
            return files
        if path.suffix not in (".sh", ".py") or path.name in WRAPPERS:
            return set()
        return self.named_in(path, data.decode(errors="replace"))

    def named_in(self, path, text):
        top = path.parent in (self.source / "tests", self.source / "capi")
        above = LOOKS_ABOVE.search(text) or top
        files = set(self.tree(self.source)) if above else set()
        files |= set() if top else self.tree(path.parent)
        for word in set(re.findall(r"[\w.+-]+(?:/[\w.+-]+)+", re.sub(r"\$\{?\w+\}?/", " ", text))):
            places = (os.path.normpath(path.parent / word), os.path.normpath(self.source / word.lstrip("./")))
            files |= {place for place in map(pathlib.Path, places) if place.is_file() and self.source in place.parents}
        return files | {self.programs()[word] for word in set(re.findall(r"[\w-]+", text)) if word in self.programs()}

    def opened(self, path):
        """The files that a path in a command, a variable or a program stands for."""
        if path == self.build:
            tools = {one for one in self.programs().values() if self.build / "tests" not in one.parents}
            libraries = self.libraries_in(path / "capi") | self.libraries_in(path / "tests/gpu_emulation")
            return tools | libraries | {path / "CMakeCache.txt"}
        if path.is_dir():
            return self.libraries_in(path) | self.examples_in(path) if self.build in path.parents else self.tree(path)
        return {path} if path.is_file() and path.parent != self.build / "results" else set()

    def examples_in(self, folder):
        return {program for program in self.programs().values() if program.parent == folder == self.build / "examples"}

    def all_read(self, files):
        """The files, and all that these open, and so on."""
        found, left = set(), set(files)
        while left:
            path = left.pop()
            if path not in found:
                found.add(path)
                left |= self.read_by(path)
        return found

    def hashes(self, files, whole=False):
        return sorted(f"{self.without_folders(str(path))} {self.hash_of(path, whole)}" for path in files)

    @functools.cache
    def machine(self):
        """What tests see of the machine, and the variables around them."""
        text = pathlib.Path("/proc/cpuinfo").read_text()
        flags = re.search(r"^(?:flags|Features)\s*:.*$", text, re.M)
        rights = re.search(r"^CapEff:.*$", pathlib.Path("/proc/self/status").read_text(), re.M)
        gpus = sorted(str(path) for path in pathlib.Path("/dev").glob("nvidia*"))
        names = re.compile(r"(?:GANGWAY|GPU_EMULATION|GTEST|OMP|LD|LC)_|(?:CC|CXX|CARGO|JULIA|LANG|PATH)$")
        variables = sorted(f"{k}={v}" for k, v in os.environ.items() if names.match(k) and k not in OWN_VARIABLES)
        cores = len(os.sched_getaffinity(0))
        return digest(flags and flags[0], os.uname().release, cores, os.geteuid(), rights and rights[0], gpus,
                      sys.version, said("dpkg-query", "-W"), self.without_folders("\n".join(variables)))
