#!/usr/bin/env bash
# Installs what lacks, builds, and runs every test.
#   usage: bash tests/run.sh [--no-install] [--build-dir DIR] [-L LABEL] [--sanitize address|thread]
# Without --sanitize: the whole suite. With it: a build of its own by clang; address has undefined behaviour with it.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/examples/packages.sh"

install=1 build='' label='' sanitize=''
while [ $# -gt 0 ]; do
  case $1 in
    --no-install) install=0; shift ;;
    --build-dir) build=$2; shift 2 ;;
    -L) label=$2; shift 2 ;;
    --sanitize) sanitize=$2; shift 2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
done
case $sanitize in ''|address|thread) ;; *) echo "--sanitize takes address or thread" >&2; exit 2 ;; esac

if [ $install -eq 1 ]; then
  install_packages "${build_packages[@]}" libgtest-dev libgmock-dev libcmocka-dev ccache python3 clang-14 \
    libclang-rt-14-dev castxml jargon-text valgrind || exit 1
fi

# build_and_test NAME DIR CTEST-ARGUMENTS -- CMAKE-ARGUMENTS: adds its counts to passed, failed, skipped.
# Want of memory is a status here, so the sanitizer must hand it on as the system would.
export ASAN_OPTIONS=${ASAN_OPTIONS:-allocator_may_return_null=1} TSAN_OPTIONS=${TSAN_OPTIONS:-allocator_may_return_null=1}
passed=0 failed=0 skipped=0
build_and_test() {
  local name=$1 dir=$2; shift 2
  local select=()
  while [ "$1" != -- ]; do select+=("$1"); shift; done
  shift
  echo "== $name: building into $dir"
  mkdir -p "$dir"
  local target=all
  [ "$name" != thread ] || target=tsan_tests
  if ! { cmake -S "$top" -B "$dir" -G Ninja "$@" && ninja -C "$dir" "$target"; } >"$dir/build.log" 2>&1; then
    grep -E 'error|FAILED|Error' "$dir/build.log" | head -n 40
    tail -n 20 "$dir/build.log"
    echo "== $name: the build failed"
    failed=$((failed + 1))
    return
  fi
  echo "== $name: testing"
  # oneDNN is not instrumented and its caches look like races, so threads are checked with our own products.
  if [ "$name" = thread ]; then export GANGWAY_CPU_ISA=portable; else unset GANGWAY_CPU_ISA; fi
  rm -rf "$dir/results"; mkdir -p "$dir/results"
  GTEST_OUTPUT="xml:$dir/results/" ctest --test-dir "$dir" --output-on-failure -j1 \
    "${select[@]}" || true
  # GoogleTest's files count single tests; other programs count as one each.
  local counts
  counts=$(python3 "$top/tests/count_results.py" "$dir") || { echo "== $name: no results"; failed=$((failed + 1)); return; }
  read -r p f s <<<"$counts"
  echo "== $name: $p passed, $f failed, $s skipped"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

select=()
[ -z "$label" ] || select+=(-L "$label")
clang=(-DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14)
if [ -n "$sanitize" ]; then
  # The thread sanitizer runs where ranks are threads: processes share nothing that it could see.
  [ "$sanitize" != thread ] || [ -n "$label" ] || select+=(-L tsan)
  [ "$sanitize" != address ] || select+=(-LE noasan)
  build_and_test "$sanitize" "${build:-$top/build-$sanitize}" "${select[@]}" -- "${clang[@]}" \
    -DGANGWAY_SANITIZE="$sanitize"
else
  build_and_test plain "${build:-$top/build-test}" "${select[@]}" --
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
