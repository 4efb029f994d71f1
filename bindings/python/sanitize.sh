#!/usr/bin/env bash
# The binding's tests of life times, arrays, models and errors over a library with the address sanitizer.
#   usage: bash bindings/python/sanitize.sh ASAN_BUILD BUILD
# ASAN_BUILD: by clang with -DGANGWAY_SANITIZE=address. BUILD: a plain one; its gangrun is used, as one that is instrumented
# brings a runtime of its own along. Leaks are counted in the tests: the interpreter's own would drown a report at exit.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 2 ] || { echo "usage: bash bindings/python/sanitize.sh ASAN_BUILD BUILD" >&2; exit 2; }
asan=$(cd "$1" && pwd) plain=$(cd "$2" && pwd) || exit 2
work=$asan/python venv=$asan/python/venv
mkdir -p "$work/library"
ln -sfn "$asan/capi" "$work/library/capi"
ln -sfn "$plain/impl" "$work/library/impl"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv" || exit 1
pip=("$venv/bin/pip" install -q --disable-pip-version-check)
"${pip[@]}" "numpy>=2.1" pytest tqdm "scikit-build-core>=0.10" || exit 1
"${pip[@]}" --force-reinstall --no-deps --no-build-isolation --config-settings="build-dir=$work/wheel" \
  --config-settings="cmake.define.GANGWAY_BUILD_DIR=$work/library" "$here" || exit 1

cd "$work" || exit 1
tests=()
for name in life arrays models collectives errors interrupts; do tests+=("$here/tests/test_$name.py"); done
# libstdc++ by name: the interpreter does not load it before the sanitizer looks for its exceptions.
LD_PRELOAD="$("${CC:-clang-14}" -print-file-name=libclang_rt.asan-x86_64.so) $(gcc -print-file-name=libstdc++.so.6)" \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONMALLOC=malloc \
  "$venv/bin/python" -P -m pytest "${tests[@]}" -q -rs --rootdir "$here/tests" -p no:cacheprovider
