#!/usr/bin/env bash
# The binding's tests over a library with the address sanitizer, which checks the SWIG module too.
#   usage: bash bindings/python/sanitize.sh BUILD_DIR
# BUILD_DIR: by clang with -DGANGWAY_SANITIZE=address; everything made here is in BUILD_DIR/python, or GANGWAY_TEST_FOLDER.
# GANGWAY_NO_INSTALL=1: no Debian packages are installed. Leaks are counted in the tests: the interpreter's own would drown
# a report at exit.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 1 ] || { echo "usage: bash bindings/python/sanitize.sh BUILD_DIR" >&2; exit 2; }
build=$(cd "$1" && pwd) || exit 2
. "$here/testing.sh"
need_packages clang libclang-rt-dev || exit 1
work=${GANGWAY_TEST_FOLDER:-$build/python} clang=${CC:-clang}
library=$work/library venv=$work/venv
mkdir -p "$work/wheels" "$library/impl/tools"
ln -sfn "$build/capi" "$library/capi"
# The launcher has a runtime of its own inside, and bears no second one; its ranks are Python again.
cat >"$library/impl/tools/gangrun" <<LAUNCHER
#!/usr/bin/env bash
options=()
while [[ \$1 == -* ]]; do options+=("\$1" "\$2"); shift 2; done
exec env -u LD_PRELOAD "$build/impl/tools/gangrun" "\${options[@]}" env LD_PRELOAD="\$LD_PRELOAD" "\$@"
LAUNCHER
chmod +x "$library/impl/tools/gangrun"
make_venv "$venv" || exit 1
CC=$clang install_wheel "$venv" "$library" "$work" "cmake.define.CMAKE_C_FLAGS=-fsanitize=address" cmake.define.CMAKE_STRIP= || exit 1

tests=()
for name in lifetime owned arrays models callbacks texts collectives counted errors interrupts; do
  tests+=("$here/tests/test_$name.py")
done
# libstdc++ by name: the interpreter does not load it before the sanitizer looks for its exceptions.
export LD_PRELOAD="$("$clang" -print-file-name=libclang_rt.asan-x86_64.so) $(gcc -print-file-name=libstdc++.so.6)"
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0:allocator_may_return_null=1 PYTHONMALLOC=malloc
run_tests "$venv" "$work" "${tests[@]}"
