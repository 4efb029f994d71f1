#!/usr/bin/env bash
# Makes every committed file that follows from the table of optimizers and from the public headers anew: the optimizers of C
# and of each binding, the list of exports, the linker's script, the
# function table, the golden ABI as text and as JSON, the release and level in each binding, the lowest layers
# of Rust and Julia, Python's stubs, and abidiff's baseline from a build of the library. (Python's lowest
# layer and the manual are made whenever they are built.) Headers that break what a released level promised
# are refused before anything is written.
#   usage: bash tests/regenerate.sh BUILD_DIR              the library is built there first
#          bash tests/regenerate.sh --release BUILD_DIR    likewise, then the next level is fixed for ever in capi/levels
#          bash tests/regenerate.sh --check BUILD_DIR      changes and builds nothing; 1: a file is out of date
# A generator that is not installed is a failure; with GANGWAY_ALLOW_MISSING=1 its files are left out, and the end is 77. So
# it is where a generator is of another version than the one that the committed files are of.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
check=() release=0
case ${1:-} in --check) check=(--check); shift ;; --release) release=1; shift ;; esac
case ${1:-} in ''|-*) sed -n '2,10p' "$0"; exit 2 ;; *) build=$(realpath -- "$1") ;; esac
library=$build/capi/libgangway.so
cd "$top" || exit 2
bad=0 skipped=0

# make FILES TOOL COMMAND...: TOOL is what the generator needs besides Python. Its arguments come last, after --check.
make() {
  local files=$1 tool=$2; shift 2
  if ! command -v "$tool" >/dev/null; then
    echo "no $tool: $files not made"
    if [ "${GANGWAY_ALLOW_MISSING:-0}" = 1 ]; then skipped=1; else bad=1; fi
  else
    "$@" "${check[@]}"
    case $? in 0) echo "up to date: $files" ;; 77) skipped=1 ;; *) bad=1 ;; esac
  fi
}
# The header of optimizers follows from their table, so it comes before all that follows from headers.
make "optimizers of the C library and of each binding" python3 python3 capi/optimizers.py
if command -v castxml >/dev/null; then
  python3 capi/levels.py --check || { echo "the headers do not keep the released levels: nothing was made"; exit 1; }
fi
make "capi/exports.txt, exports.map, api.h, api.cpp" python3 python3 capi/generate.py
make "capi/abi.txt, abi.json" castxml python3 capi/abi.py
make "capi/level.h and the release in each binding" python3 python3 capi/version.py
make "bindings/julia/src/LibGangway.jl" castxml python3 bindings/julia/gen/generate.py
make "bindings/python/gangway/_low.pyi, low.pyi" python3 python3 bindings/python/swig/stubs.py
make "bindings/rust/gangway-sys/src" "${BINDGEN:-bindgen}" bash bindings/rust/gangway-sys/generate.sh
if [ ${#check[@]} -eq 0 ]; then
  ninja -C "$build" gangway >/dev/null || { echo "the library does not build: no baseline"; exit 1; }
fi
make "capi/defaults.txt" python3 python3 capi/defaults.py "$library"
make "tests/capi/abi/gangway.abi" abidw python3 tests/capi/abi/abidiff.py --baseline "$library"
make "tests/capi/abi/old_consumer.base64" cc python3 tests/capi/abi/consumer.py "$library"
[ $bad -eq 0 ] || exit 1
[ $skipped -eq 0 ] || exit 77
[ $release -eq 0 ] || { python3 tests/capi/abi/consumer.py --make "$library" && python3 capi/levels.py --release; }
