#!/usr/bin/env bash
# Makes every committed file that follows from the public headers anew: the list of exports, the linker's script, the
# function table, the golden ABI, the lowest layers of Rust and Julia; with a build folder also the baseline of abidiff.
# (Python's lowest layer and the manual are made whenever they are built.)
#   usage: bash tests/regenerate.sh [BUILD_DIR]     a build of the library is brought up to date and becomes the baseline
#          bash tests/regenerate.sh --check         changes nothing; 1: a file is out of date; 77: a generator lacks
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top" || exit 2
check=() build=''
case ${1:-} in --check) check=(--check) ;; -*) sed -n '2,7p' "$0"; exit 2 ;; *) build=${1:-} ;; esac
bad=0 skipped=0

# make FILES TOOL COMMAND...: TOOL is what the generator needs besides Python.
make() {
  local files=$1 tool=$2; shift 2
  if ! command -v "$tool" >/dev/null; then
    echo "skipped: $files (no $tool)"
    skipped=1
  elif "$@" "${check[@]}"; then
    echo "up to date: $files"
  else
    bad=1
  fi
}
make "capi/exports.txt, exports.map, api.h, api.cpp" python3 python3 capi/generate.py
make "capi/abi.txt" castxml python3 capi/abi.py
make "bindings/julia/src/LibGangway.jl" castxml python3 bindings/julia/gen/generate.py
make "bindings/rust/gangway-sys/src" "${BINDGEN:-bindgen}" bash bindings/rust/gangway-sys/generate.sh
if [ -n "$build" ]; then
  ninja -C "$build" gangway >/dev/null || { echo "the library does not build: no baseline"; exit 1; }
  make "tests/capi/abi/gangway.abi" abidw python3 tests/capi/abi/abidiff.py --write "$build/capi/libgangway.so.1"
fi
[ $bad -eq 0 ] || exit 1
[ $skipped -eq 0 ] || exit 77
