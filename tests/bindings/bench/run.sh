#!/usr/bin/env bash
# What a call costs in Rust, Julia and Python, next to the same call in C in the same process, over two ranks; one rule for
# all (calls.c): medians of 201 batches that alternate. The goals are ratios to C.
#   usage: tests/bindings/bench/run.sh BUILD_DIR
# BUILD_DIR has capi/libgangway.so and impl/tools/gangrun, and python/venv by bindings/python/test.sh (else PYTHON names an
# interpreter that has gangway). CC, CARGO and JULIA name other programs. A language that is not there has no rows.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
build=$(cd "${1:?usage: run.sh BUILD_DIR}" && pwd) || exit 2
work=$build/calls cargo=${CARGO:-cargo} julia=${JULIA:-julia} python=${PYTHON:-$build/python/venv/bin/python}
mkdir -p "$work/depot"

# What compiles has compiled before the clock runs.
"${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -O2 -shared -fPIC "$here/calls.c" -o "$work/libcalls.so" -I "$top/capi/include" \
  -L "$build/capi" -lgangway || exit 1
if command -v "$cargo" >/dev/null; then
  (cd "$here" && GANGWAY_LIB_DIR=$build/capi CARGO_TARGET_DIR=$work CARGO_NET_OFFLINE=true RUSTFLAGS="-L native=$work" \
    "$cargo" build -q --release) || exit 1
fi

# ranks PROGRAM...: every language uses the same library, so that calls.c uses it, too.
ranks() { "$build/impl/tools/gangrun" -n 2 --no-prefix -- env LD_LIBRARY_PATH="$work:$build/capi" "$@"; }
measure() {
  if command -v "$cargo" >/dev/null; then ranks "$work/release/calls" || return 1; fi
  if command -v "$julia" >/dev/null; then
    ranks env JULIA_DEPOT_PATH="$work/depot" JULIA_LOAD_PATH="$top/bindings/julia:@stdlib" \
      GANGWAY_LIBRARY="$build/capi/libgangway.so" "$julia" --startup-file=no "$here/calls.jl" "$work/libcalls.so" || return 1
  fi
  if [ -x "$python" ]; then ranks "$python" -P "$here/calls.py" "$work/libcalls.so" || return 1; fi
}
measure | awk -F '\t' '
  BEGIN {
    goal["Rust rank()"] = 1.3; goal["Julia rank()"] = 2; goal["Python rank()"] = 15
    goal["Rust all_reduce of 64 KiB"] = 1.2; goal["Julia all_reduce of 64 KiB"] = 1.3; goal["Python all_reduce of 64 KiB"] = 4
    printf "%-8s%-32s %10s %10s %7s %6s\n", "", "call", "C ns", "own ns", "ratio", "goal"
  }
  { name = $1 " " $2; printf "%-8s%-32s %10s %10s %7s %6s\n", $1, $2, $3, $4, $5, (name in goal) ? goal[name] : "-"; fflush() }'
