#!/usr/bin/env bash
# What a call costs in Rust and Julia, next to the same call in C in the same process: nanoseconds, medians of 201 batches over
# two ranks, and the ratio.
#   usage: tests/bindings/bench/run.sh BUILD_DIR       CC, CARGO and JULIA name other programs
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
build=$(cd "${1:?usage: run.sh BUILD_DIR}" && pwd) || exit 2
work=$build/calls cargo=${CARGO:-cargo} julia=${JULIA:-julia}
mkdir -p "$work/depot"
export LD_LIBRARY_PATH=$work:$build/capi${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
"${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -O2 -shared -fPIC "$here/calls.c" -o "$work/libcalls.so" -I "$top/capi/include" \
  -L "$build/capi" -lgangway || exit 1
if command -v "$cargo" >/dev/null; then
  (cd "$here" && GANGWAY_LIB_DIR=$build/capi CARGO_TARGET_DIR=$work CARGO_NET_OFFLINE=true RUSTFLAGS="-L native=$work" \
    "$cargo" build -q --release) || exit 1
fi
# The machine is shared: what compiles has compiled before the clock runs.
printf '%-7s%-24s %10s %10s %7s\n' '' call 'C ns' own ratio
if command -v "$cargo" >/dev/null; then "$build/impl/tools/gangrun" -n 2 --no-prefix -- "$work/release/calls" || exit 1; fi
if command -v "$julia" >/dev/null; then
  export JULIA_DEPOT_PATH=$work/depot JULIA_LOAD_PATH=$top/bindings/julia:@stdlib GANGWAY_LIBRARY=$build/capi/libgangway.so
  "$build/impl/tools/gangrun" -n 2 --no-prefix -- "$julia" --startup-file=no "$here/calls.jl" "$work/libcalls.so" || exit 1
fi
