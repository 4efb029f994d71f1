"""What a test reads, as hashes that are the same in every clone: programs, libraries, scripts, data, the machine.

A program counts by what is loaded of it, without debug information and without the ids of this build, which every edit
changes and which are the same in all its programs. It names the files that it opens as "@build@/..." and "@source@/..."
(support/placed.h). Of a script its folder counts, what its text names, and, where it looks above its folder, all that
is tracked. Too much here runs a test once more; too little would hide a failure.
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


def named_in(data):
    """The files that a program names: pairs of "build" or "source" and a path below it."""
    for mark in (b"@build@/", b"@source@/"):
        at = data.find(mark)
        while at >= 0:
            yield mark.decode()[1:-2], re.match(rb"[\w.+/-]*", data[at + len(mark):at + 1000])[0].decode().rstrip("/.")
            at = data.find(mark, at + 1)


class Elf:
    """The loaded bytes of a program or shared library, and the folders in which it looks for libraries."""

    def __init__(self, data):
        offset, size, count = struct.unpack_from("<Q14xHH", data, 0x20)
        headers = [struct.unpack_from("<IIQQQQQQ", data, offset + i * size) for i in range(count)]
        loaded = [h for h in headers if h[0] == 1]
        # Where the sections begin, and how many there are, follows from the debug information; the notes have the
        # hash of all of it.
        blanks = [(0x28, 8), (0x3C, 4), *((h[2], h[5]) for h in headers if h[0] == 4)]
        pieces = []
        for _, rights, start, address, _, length, memory, _ in loaded:
            piece = bytearray(data[start:start + length])
            for at, size in ((at - start, size) for at, size in blanks if start <= at < start + length):
                piece[at:at + size] = bytes(size)
            pieces += [struct.pack("<IQQ", rights, address, memory), piece]
        self.bytes = b"".join(pieces)
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

    def is_built(self, path):
        return str(path).startswith(f"{self.build}/")

    def without_folders(self, text):
        return text.replace(str(self.build), "@build@").replace(str(self.source), "@source@")

    def content(self, path):
        """The bytes of a file as they count, and for a program its Elf."""
        data = path.read_bytes()
        if data[:4] != b"\x7fELF" or data[16] not in (2, 3):
            if self.is_built(path):  # CMake's files name the folders
                data = data.replace(bytes(self.build), b"@build@").replace(bytes(self.source), b"@source@")
            return data, None
        elf = Elf(data)
        for one in self.ids:
            elf.bytes = elf.bytes.replace(one, b"@" * 16)
        return elf.bytes, elf

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
        paths = [self.source / name for name in sorted(listed.split("\0")) if name]
        return [path for path in paths if path.is_file()]

    @functools.cache
    def hash_of_tree(self, folder):
        inside = [path for path in self.tracked() if str(path).startswith(f"{folder}/")]
        return digest(*(f"{path.relative_to(self.source)} {self.hash_of_all(path)}" for path in inside))

    @functools.cache
    def hash_of_all(self, path):
        return digest(path.read_bytes())

    def stands_for(self, path):
        """The files and the folders of sources that a path in a command, a variable or a program stands for."""
        if path == self.build:
            tools = {one for one in self.programs().values() if self.build / "tests" not in one.parents}
            libraries = self.libraries_in(path / "capi") | self.libraries_in(path / "tests/gpu_emulation")
            return tools | libraries | {path / "CMakeCache.txt"}, set()
        if path == self.build / "examples":
            return {one for one in self.programs().values() if one.parent == path}, set()
        if self.is_built(path) and path.is_dir():
            return self.libraries_in(path), set()
        if path.is_dir():
            return set(), {path}
        return {path} if path.is_file() and path.parent != self.build / "results" else set(), set()

    def all_of(self, paths):
        pairs = [self.stands_for(path) for path in paths]
        return set().union(*(files for files, _ in pairs)), set().union(*(folders for _, folders in pairs))

    @functools.cache
    def look_at(self, path):
        """The hash of a file, the files that it opens, and the folders of which it may read all."""
        data, elf = self.content(path)
        files, folders = set(), set()
        if elf:
            roots = {"build": self.build, "source": self.source}
            files, folders = self.all_of(roots[root] / name for root, name in named_in(data))
            for folder in elf.folders:
                folder = pathlib.Path(folder.replace("$ORIGIN", str(path.parent))).resolve()
                files |= self.libraries_in(folder) if self.is_built(folder) else set()
        elif path.suffix in (".sh", ".py") and path.name not in WRAPPERS:
            text = re.sub(r"(?m)^\s*#.*", "", data.decode(errors="replace"))
            above = path.parent in (self.source / "tests", self.source / "capi") or LOOKS_ABOVE.search(text)
            files, folders = self.named_by(path, text), {self.source if above else path.parent}
        return digest(data), files, folders

    def named_by(self, path, text):
        """The files that a script's text names: sources by their paths, scripts beside it, programs of the build."""
        text = re.sub(r"\$\{?\w+\}?/", " ", text)
        words = set(re.findall(r"[\w.+-]+(?:/[\w.+-]+)*", text))
        beside = [word for word in words if "/" in word or word.endswith((".sh", ".py"))]
        places = [os.path.normpath(path.parent / word) for word in beside]
        places += [os.path.normpath(self.source / word.lstrip("./")) for word in words if "/" in word]
        files = {place for place in map(pathlib.Path, places) if place.is_file() and self.source in place.parents}
        names = {word.rsplit("/", 1)[-1] for word in words}
        return files | {self.programs()[name] for name in names if name in self.programs()}

    def hashes(self, paths, whole=False):
        """Of each path, of what it opens, and so on, the hash with the name. `whole`: of all bytes of programs."""
        found, (left, folders) = set(), self.all_of(paths)
        while left:
            path = left.pop()
            if path not in found:
                found.add(path)
                _, opened, read = self.look_at(path)
                left |= opened
                folders |= read
        rows = [f"{folder} {self.hash_of_tree(folder)}" for folder in folders]
        for path in found:
            all_bytes = whole and self.is_built(path)
            rows.append(f"{path} {self.hash_of_all(path) if all_bytes else self.look_at(path)[0]}")
        return sorted(map(self.without_folders, rows))

    @functools.cache
    def machine(self):
        """What tests see of the machine, and the variables around them."""
        text = pathlib.Path("/proc/cpuinfo").read_text()
        flags = re.search(r"^(?:flags|Features)\s*:.*$", text, re.M)
        rights = re.search(r"^CapEff:.*$", pathlib.Path("/proc/self/status").read_text(), re.M)
        gpus = sorted(str(path) for path in pathlib.Path("/dev").glob("nvidia*"))
        names = re.compile(r"(?:GANGWAY|GPU_EMULATION|GTEST|OMP|LD|LC|NCCL|FI|UCX|MALLOC)_|PYTHON|RUST|(?:CC|CXX|CARGO|JULIA|LANG|PATH)$")
        variables = sorted(f"{k}={v}" for k, v in os.environ.items() if names.match(k) and k not in OWN_VARIABLES)
        cores = len(os.sched_getaffinity(0))
        return digest(flags and flags[0], os.uname().release, cores, os.geteuid(), rights and rights[0], gpus,
                      sys.version, said("dpkg-query", "-W"), self.without_folders("\n".join(variables)))
