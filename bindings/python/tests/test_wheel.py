"""What the wheel carries."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import gangway
from gangway.level import ABI, LIBRARY, RELEASE

TOP = Path(__file__).resolve().parents[1]
FOLDER = Path(gangway.__file__).parent


def dynamic(path):
    return subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout


def test_the_library_keeps_its_soname_and_is_found_next_to_the_module():
    if (FOLDER / LIBRARY).is_symlink():
        pytest.skip("runs from the source folder, not from a wheel")
    assert f"soname: [{LIBRARY}]" in dynamic(FOLDER / LIBRARY)
    (module,) = FOLDER.glob("_low.*.so")
    facts = dynamic(module)
    assert f"[{LIBRARY}]" in facts and "[$ORIGIN]" in facts
    assert str(FOLDER / LIBRARY) in Path("/proc/self/maps").read_text()
    assert (FOLDER / "gangrun").stat().st_mode & 0o111 and (FOLDER / "py.typed").exists()


def test_every_binary_of_the_package_is_hardened():
    """Stack canaries, read-only relocations, immediate binding; checked libc calls where the build is optimised."""
    (module,) = FOLDER.glob("_low.*.so")
    for path in (module, FOLDER / LIBRARY, FOLDER / "gangrun"):
        facts = dynamic(path)
        headers = subprocess.run(["readelf", "-lW", str(path)], capture_output=True, text=True, check=True).stdout
        assert "BIND_NOW" in facts and "NOW" in facts.partition("FLAGS_1")[2], path.name
        assert "GNU_RELRO" in headers and " RWE " not in headers, path.name
        used = subprocess.run(["nm", "-D", "--undefined-only", str(path)], capture_output=True, text=True, check=True).stdout
        assert "__stack_chk_fail" in used, path.name
        assert path != module or "_chk@" in used.replace("__stack_chk_fail@", ""), path.name


def test_the_distribution_says_what_it_is():
    """Imported as gangway, but of another name: gangway on PyPI is another project's."""
    about = metadata.metadata("libgangway")
    assert about["Name"] == "libgangway" and about["License-Expression"] == "Apache-2.0" and about["License-File"] == "LICENSE"
    assert about["Author-email"] and {url.partition(",")[0] for url in about.get_all("Project-URL")} >= {"Homepage", "Source", "Issues"}
    assert {"progress", "tensorboard", "cuda"} <= set(about.get_all("Provides-Extra"))
    needed = [line for line in metadata.requires("libgangway") if "extra" not in line]
    assert sorted(re.split(r"[<>=]", line)[0] for line in needed) == ["ml_dtypes", "numpy"]
    files = {str(file) for file in metadata.files("libgangway")}
    assert [name for name in files if name.endswith("LICENSE")] and "gangway/__init__.py" in files
    assert "gangway" in metadata.packages_distributions() and "libgangway" in metadata.packages_distributions()["gangway"]


# Commands that would bring the stranger's package from PyPI.
STRANGER = re.compile(r"""(?:pip|pip3|pipx|uv|poetry|conda)\b[^\n]*\b(?:install|add|download)\b[^\n]*[\s"'`]gangway(?:-cuda)?(?:\[\w+\])?(?=[\s"'`.,;]|[<>=~!]|$)
                          |pypi\.org/project/gangway\b|\bgangway\[\w+\]|\bgangway-cuda\b""", re.X)


def test_no_page_installs_the_strangers_package():
    for text in ("pip install gangway", "pip install -U 'gangway[cuda]'", "https://pypi.org/project/gangway/", "uv add gangway"):
        assert STRANGER.search(text), text
    for text in ("pip install ./bindings/python", "pip install wheels/libgangway-0.1.0.whl", "libgangway[cuda]"):
        assert not STRANGER.search(text), text
    root = TOP.parents[1]
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("no git repository: there are no pages")
    ends = (".md", ".py", ".toml", ".sh", ".txt", ".h", ".c", ".cpp", ".rs", ".jl", ".yml", ".cmake")
    pages = [root / name for name in listed.stdout.split("\0") if name.endswith(ends) and name != "bindings/python/tests/test_wheel.py"]
    assert len(pages) > 500
    found = [f"{path}: {line}" for path in pages if path.is_file()
             for line in path.read_text(errors="replace").splitlines() if STRANGER.search(line)]
    assert found == []


def test_pip_builds_no_module_for_gpus_unless_it_is_asked_for():
    text = (TOP / "CMakeLists.txt").read_text()
    assert text.index("set(GANGWAY_CUDA OFF CACHE") < text.index("add_subdirectory(${GANGWAY_SOURCE_DIR}")


def test_one_module_serves_every_python_from_3_10():
    """By its name, and by what it takes from Python."""
    abi3info = pytest.importorskip("abi3info")
    (module,) = FOLDER.glob("_low.*.so")
    assert module.name == "_low.abi3.so"
    stable = {s.name: what.added for s, what in {**abi3info.FUNCTIONS, **abi3info.DATAS}.items()}
    listed = subprocess.run(["nm", "-D", "--undefined-only", str(module)], capture_output=True, text=True, check=True).stdout
    used = {line.split()[-1] for line in listed.splitlines() if " _Py" in line or " Py" in line}
    assert len(used) > 50
    assert {name for name in used if name not in stable or stable[name] > abi3info.models.PyVersion(3, 10)} == set()


OTHER = """
#include <stdint.h>
void gw_version(int32_t *major, int32_t *minor, int32_t *patch) { *major = RELEASE_0, *minor = RELEASE_1, *patch = 5; }
void gw_abi_version(int32_t *major, int32_t *minor) { *major = ABI_0, *minor = ABI_1; }
"""


@pytest.mark.parametrize("release, abi, fits", [
    (RELEASE[:2], ABI, True), ((RELEASE[0], RELEASE[1] + 1), ABI, ABI[0] > 0), ((RELEASE[0], RELEASE[1]), (ABI[0], ABI[1] + 1), True),
    ((RELEASE[0] + 1, 0), (ABI[0] + 1, 0), False), (RELEASE[:2], (ABI[0], ABI[1] - 1), False)])
def test_a_library_of_another_release_is_refused(tmp_path, release, abi, fits):
    """These functions come before the library's own."""
    source, library = tmp_path / "other.c", tmp_path / "libother.so"
    source.write_text(OTHER)
    numbers = [f"-D{name}_{i}={value}" for name, pair in (("RELEASE", release), ("ABI", abi)) for i, value in enumerate(pair)]
    subprocess.run(["cc", "-shared", "-fPIC", *numbers, "-o", str(library), str(source)], check=True)
    done = subprocess.run([sys.executable, "-c", "import gangway"], env={**os.environ, "LD_PRELOAD": str(library)},
                          capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode == 0) == fits, done.stderr
    own = f"{'.'.join(map(str, RELEASE))} (ABI level {ABI[0]}.{ABI[1]})"
    other = f"libgangway {release[0]}.{release[1]}.5 (ABI level {abi[0]}.{abi[1]}) does not fit"
    assert fits or f"ImportError: {other}" in done.stderr and own in done.stderr


def test_nothing_that_only_a_debugger_reads_is_carried():
    if (FOLDER / LIBRARY).is_symlink():
        pytest.skip("runs from the source folder, not from a wheel")
    for path in (FOLDER / LIBRARY, FOLDER / "gangrun", *FOLDER.glob("_low.*.so")):
        sections = subprocess.run(["readelf", "-SW", str(path)], capture_output=True, text=True, check=True).stdout
        assert ".debug_info" not in sections and ".symtab" not in sections, path.name


def source_archive(folder):
    subprocess.run(["bash", str(TOP / "sdist.sh"), str(folder)], check=True, env={**os.environ, "PYTHON": sys.executable})
    (archive,) = folder.glob("libgangway-*.tar.gz")
    return archive


def test_the_source_archive_has_every_source(tmp_path):
    root = TOP.parents[1]
    tracked = subprocess.run(["git", "-C", str(root), "ls-files", "CMakeLists.txt", "LICENSE", "pkgconfig/cmake", "capi", "impl"],
                             capture_output=True, text=True)
    if tracked.returncode != 0:
        pytest.skip("no git repository: there is nothing to compare with")
    with tarfile.open(source_archive(tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"library/{name}" for name in tracked.stdout.split()} - names == set()
    assert {"pyproject.toml", "CMakeLists.txt", "LICENSE", "swig/gangway.i", "gangway/__init__.py"} <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith((".o", ".so", ".a"))]


MAPPED = """
import gangway
print(gangway.__file__, *{line.split()[-1] for line in open("/proc/self/maps") if "libgangway" in line})
"""


def run(*command, folder, env, timeout=600):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
                          cwd=folder, env=env)
    assert done.returncode == 0, done.stdout
    return done.stdout


def all_reduce_works(fresh, folder, env):
    """By the package of this environment and no other."""
    python = str(fresh / "bin" / "python")
    package, *mapped = run(python, "-c", MAPPED, folder=folder, env=env).split()
    assert package.startswith(str(fresh)) and mapped == [str(Path(package).with_name(LIBRARY))]
    example = shutil.copy(TOP / "examples" / "all_reduce.py", folder)
    output = run(python, "-m", "gangway.run", "-n", "2", "--timeout", "60", python, example, folder=folder, env=env)
    assert "rank 0 of 2: sum 3" in output and "rank 1 of 2: sum 3" in output


def test_the_wheel_and_what_it_requires_are_all_that_a_fresh_environment_needs(tmp_path):
    """No path into a source tree, a build folder or another environment is left."""
    if "GANGWAY_TEST_WHEELS" not in os.environ:
        pytest.skip("GANGWAY_TEST_WHEELS, a folder with wheels of libgangway, NumPy and ml_dtypes, is not set")
    kept = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    fresh = tmp_path / "fresh"
    run(sys.executable, "-m", "venv", "--without-pip", str(fresh), folder=tmp_path, env=kept)
    run(sys.executable, "-m", "pip", "--python", str(fresh / "bin" / "python"), "install", "-q", "--no-compile", "--no-index",
        "--find-links", os.environ["GANGWAY_TEST_WHEELS"], "libgangway", folder=tmp_path, env=kept)
    all_reduce_works(fresh, tmp_path, kept)


ON_A_GPU = """
import gangway as gw
try:
    with gw.init(device="cuda") as gangs:
        module, = {line.split()[-1] for line in open("/proc/self/maps") if "libgangway_cuda" in line}
        print("loaded", module, gangs.root.device)
except gw.GangwayError as error:
    print("refused", error)
"""

# The first word of the module's table.
BUILD_ID = """
import ctypes, sys
entry = ctypes.CDLL(sys.argv[1]).gangway_cuda_module
entry.restype = ctypes.POINTER(ctypes.c_char_p)
print(entry()[0].decode())
"""


def test_the_extra_cuda_puts_the_module_beside_the_library(tmp_path):
    """With the module on the software GPU as the wheel's: found in the package, refused without a driver or of another build."""
    gpus = os.environ.get("GANGWAY_TEST_GPUS", "")
    if "GANGWAY_TEST_WHEELS" not in os.environ or not Path(gpus, "libnccl.so.2").exists():
        pytest.skip("GANGWAY_TEST_WHEELS or GANGWAY_TEST_GPUS, folders with wheels and the software GPU, are not set")
    release = ".".join(map(str, RELEASE))
    assert f'libgangway-cuda=={release}; extra == "cuda"' in metadata.requires("libgangway")
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LD_LIBRARY_PATH": gpus}
    fresh = tmp_path / "fresh"
    python = str(fresh / "bin" / "python")
    run(sys.executable, "-m", "venv", "--without-pip", str(fresh), folder=tmp_path, env=env)

    def install(*names):
        run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile", "--no-index", "--no-deps", "--find-links",
            os.environ["GANGWAY_TEST_WHEELS"], *names, folder=tmp_path, env=env)

    def on_a_gpu(**settings):
        return run(python, "-c", ON_A_GPU, folder=tmp_path, env={**env, **settings})

    install("libgangway", "numpy")
    without = {"LD_LIBRARY_PATH": ""}  # the folder of the software GPU has a module, too
    assert on_a_gpu(**without).startswith('refused device "cuda": libgangway_cuda.so')
    install(f"libgangway-cuda=={release}")
    (module,) = fresh.glob("lib/python3*/site-packages/gangway/libgangway_cuda.so")
    assert on_a_gpu() == f"loaded {module} cuda\n"
    assert "this machine has no NVIDIA driver" in on_a_gpu(GPU_EMULATION_DRIVER="0")
    build = run(python, "-c", BUILD_ID, str(module), folder=tmp_path, env=env).strip().encode()
    stranger = b"0" * len(build)
    module.write_bytes(module.read_bytes().replace(build, stranger))
    refused = on_a_gpu()
    assert refused.startswith("refused") and build.decode() in refused and stranger.decode() in refused


def test_auditwheel_bundles_what_the_library_links_to(tmp_path):
    """libgangway keeps its name; the libraries that it links to come along under names of their own."""
    tool = Path(sys.executable).with_name("auditwheel")
    if not tool.exists() or "GANGWAY_TEST_WHEELS" not in os.environ:
        pytest.skip("auditwheel is not installed, or GANGWAY_TEST_WHEELS, a folder with wheels of libgangway, NumPy and ml_dtypes, is not set")
    (wheel,) = Path(os.environ["GANGWAY_TEST_WHEELS"]).glob("libgangway-*.whl")
    env = {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"}
    run(str(tool), "repair", "--plat", "auto", "-w", str(tmp_path / "repaired"), str(wheel), folder=tmp_path, env=env)
    (repaired,) = (tmp_path / "repaired").glob("libgangway-*-manylinux_*.whl")
    with zipfile.ZipFile(repaired) as archive:
        names = archive.namelist()
    assert f"gangway/{LIBRARY}" in names and [n for n in names if n.startswith("libgangway.libs/libdnnl-")]
    fresh = tmp_path / "fresh"
    run(sys.executable, "-m", "venv", "--without-pip", str(fresh), folder=tmp_path, env=env)
    run(sys.executable, "-m", "pip", "--python", str(fresh / "bin" / "python"), "install", "-q", "--no-compile", "--no-index",
        "--find-links", os.environ["GANGWAY_TEST_WHEELS"], str(repaired), folder=tmp_path, env=env)
    python = str(fresh / "bin" / "python")
    used = run(python, "-c", MAPPED.replace('"libgangway" in', '"libdnnl" in'), folder=tmp_path, env={"HOME": str(tmp_path)})
    assert "libgangway.libs/libdnnl-" in used


def lend_build_requirements(fresh, folder):
    """Links to what builds the wheel, and nothing else of this environment: pip may not look for it elsewhere."""
    folder.mkdir(exist_ok=True)
    for name in ("scikit-build-core", "packaging", "pathspec"):
        for entry in {file.parts[0] for file in metadata.files(name)} - {"..", "__pycache__"}:
            if not (folder / entry).exists():
                (folder / entry).symlink_to(metadata.distribution(name).locate_file(entry))
    (site,) = fresh.glob("lib/python3*/site-packages")
    (site / "lender.pth").write_text(str(folder))


@pytest.mark.parametrize("source", ["folder", "archive"])
def test_pip_install_of_the_sources_builds_the_library_too(tmp_path, source):
    """Minutes where no compiler cache knows the sources, so it is asked for. The build folder stays for the next time."""
    if "GANGWAY_TEST_PIP_BUILD" not in os.environ or "GANGWAY_TEST_WHEELS" not in os.environ:
        pytest.skip("GANGWAY_TEST_PIP_BUILD=1 is not set: pip install of the sources, library included, is not tried")
    wheels = Path(os.environ["GANGWAY_TEST_WHEELS"])
    work = wheels.parent / "pip_build" / source
    work.mkdir(parents=True, exist_ok=True)
    sources = TOP if source == "folder" else source_archive(tmp_path / "archive")
    fresh = work / "fresh"  # always the same: CMake would begin anew for another interpreter
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "LD_LIBRARY_PATH", "GANGWAY_BUILD_DIR")}
    run(sys.executable, "-m", "venv", "--clear", "--without-pip", str(fresh), folder=tmp_path, env=env)
    lend_build_requirements(fresh, work / "lender")
    run(sys.executable, "-m", "pip", "--python", str(fresh / "bin" / "python"), "install", "-q", "--no-compile", "--no-index",
        "--find-links", str(wheels), "--no-build-isolation", f"--config-settings=build-dir={work / 'build'}", str(sources),
        folder=tmp_path, env=env, timeout=1800)
    cache = (work / "build" / "CMakeCache.txt").read_text()
    assert "GANGWAY_BUILD_DIR:PATH=\n" in cache and "GANGWAY_CUDA:STRING=OFF\n" in cache
    all_reduce_works(fresh, tmp_path, env)
