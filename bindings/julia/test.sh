#!/bin/bash
# test.sh BUILD_DIR: every test of Gangway.jl with the library and gangrun of BUILD_DIR, without a network; prints how many
# passed, failed and were skipped. JULIA names the program (default: julia in PATH).
# GANGWAY_TEST_DEVICE=cuda: models, partitions and pipelines on the software GPU instead.
set -euo pipefail
build=$(cd "${1:?usage: test.sh BUILD_DIR}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
julia=${JULIA:-julia}
command -v "$julia" >/dev/null || { echo "no julia in PATH: set JULIA, or run $here/install-julia.sh" >&2; exit 1; }

find_file() { # the first of the places that is there
  for place in "$@"; do [ -e "$place" ] && { echo "$place"; return; }; done
  echo "none of $* exists" >&2
  exit 1
}
GANGWAY_LIBRARY=$(find_file "$build/capi/libgangway.so" "$build/libgangway.so")
GANGWAY_GANGRUN=$(find_file "$build/impl/tools/gangrun" "$build/gangrun")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Nothing of the user's Julia is read or written.
export GANGWAY_TEST_DATA=$here/../../tests/data
export JULIA_DEPOT_PATH=$work/depot GANGWAY_TEST_COUNTS=$work/counts GANGWAY_LIBRARY GANGWAY_GANGRUN
mkdir -p "$GANGWAY_TEST_COUNTS" "$JULIA_DEPOT_PATH/registries/None"
# Without any registry Pkg would fetch one; the package needs the standard library alone.
printf '%s\n' 'name = "None"' 'uuid = "0e2a5a39-5f0c-4a52-8d3f-9a3f51b6c0de"' 'repo = "none"' '[packages]' \
  >"$JULIA_DEPOT_PATH/registries/None/Registry.toml"
export JULIA_PKG_SERVER= JULIA_PKG_OFFLINE=true

if [ -n "${GANGWAY_TEST_DEVICE:-}" ]; then
  export GANGWAY_MODULES=$build/tests/gpu_emulation
  export LD_LIBRARY_PATH=$GANGWAY_MODULES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
elif command -v castxml >/dev/null; then
  python3 "$here/gen/generate.py" --check
  echo "1 0 0" >"$GANGWAY_TEST_COUNTS/generated"
else
  echo "skip  LibGangway.jl is up to date: castxml is not installed"
  echo "0 0 1" >"$GANGWAY_TEST_COUNTS/generated"
fi
if cmp -s "$here/LICENSE" "$here/../../LICENSE"; then echo "1 0 0"; else echo "FAIL  LICENSE is not the project's" >&2; echo "0 1 0"; fi \
  >"$GANGWAY_TEST_COUNTS/licence"
# What test/memory.jl is run with.
if command -v "${CC:-cc}" >/dev/null; then
  export GANGWAY_COUNT_MALLOC=$build/libcount_malloc.so # where temporary files are, nothing may be executable
  "${CC:-cc}" -O1 -fno-builtin -shared -fPIC "$here/../../tests/bindings/count_malloc.c" -o "$GANGWAY_COUNT_MALLOC"
fi
# Pkg writes a manifest next to what it tests, so that is a copy.
cp -r "$here" "$work/Gangway"
"$julia" --startup-file=no --project="$work/Gangway" -e 'using Pkg; Pkg.test()'
