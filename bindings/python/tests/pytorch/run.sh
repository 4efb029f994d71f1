#!/usr/bin/env bash
# Runs PyTorch's own distributed tests over gangway and Gloo with the wheel of a build, in the venv of test.sh, which borrows
# PyTorch (GANGWAY_TEST_VENV, else that of the benchmarks).
#   usage: bash bindings/python/tests/pytorch/run.sh BUILD_DIR [ARGUMENT of distributed_suite.py]...
set -uo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,5p' "$0"; exit 2; }
build=$(cd "$1" && pwd) || exit 2
shift
. "$here/testing.sh"
work=$build/python venv=$build/python/venv
mkdir -p "$work/wheels"
make_venv "$venv" && pip_install "$venv" -r "$here/tests/pytorch/requirements.txt" || exit 1
lend "$venv" "${GANGWAY_TEST_VENV:-$build/tests/bench/venv}"
install_wheel "$venv" "$build" "$work" || exit 1
"$venv/bin/python" -c "import torch" 2>/dev/null || { echo "PyTorch is not installed"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
cd "$work" && env -u PYTHONPATH -u LD_LIBRARY_PATH "$venv/bin/python" -P "$here/tests/pytorch/distributed_suite.py" "$@"
