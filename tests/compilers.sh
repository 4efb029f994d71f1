#!/usr/bin/env bash
# The library, its tools and two examples by compilers that Debian has here, without a warning; the examples run over two
# ranks. No compiler cache, so precompiled headers are in use.
#   usage: tests/compilers.sh [--no-install] [gcc|clang:BUILD-TYPE]...
#   for instance: tests/compilers.sh gcc:Debug clang:Release      (all compilers in all build types when none is named)
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/examples/packages.sh"
if [ "${1:-}" = --no-install ]; then shift; else install_packages "${build_packages[@]}" clang || exit 1; fi
[ $# -gt 0 ] || set -- {gcc,clang}:{Debug,Release,RelWithDebInfo,MinSizeRel}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for i in $(seq 1 300); do echo "Sentence $i says that $((i * 7)) is seven times $i."; done >"$work/text"

builds_and_runs() { # FOLDER C-COMPILER C++-COMPILER BUILD-TYPE
  local run="$1/impl/tools/gangrun -n 2"
  cmake -S "$top" -B "$1" -G Ninja -DCMAKE_C_COMPILER="$2" -DCMAKE_CXX_COMPILER="$3" -DCMAKE_BUILD_TYPE="$4" \
    -DGANGWAY_WERROR=ON -DGANGWAY_CCACHE= &&
    ninja -C "$1" all 01_all_reduce 02_train_llama &&
    $run "$1/examples/01_all_reduce" && $run "$1/examples/02_train_llama" "$work/text" "$1/model" 3
}

passed=0 failed=0
for pair in "$@"; do
  c=${pair%%:*} type=${pair#*:}
  case $type in Debug|Release|RelWithDebInfo|MinSizeRel) ;; *) echo "$pair names no build type" >&2; exit 2 ;; esac
  case $c in gcc) cxx=g++ ;; clang) cxx=clang++ ;; *) echo "$pair names no compiler: gcc or clang" >&2; exit 2 ;; esac
  what="$("$c" --version | head -n 1), $type" started=$SECONDS
  if builds_and_runs "$work/build" "$c" "$cxx" "$type" >"$work/log" 2>&1; then
    passed=$((passed + 1)); echo "passed: $what, $((SECONDS - started)) s"; else
    failed=$((failed + 1)); echo "FAILED: $what"
    grep -E 'error|warning|FAILED' "$work/log" | head -n 20; tail -n 10 "$work/log"; fi
  rm -rf "$work/build"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
