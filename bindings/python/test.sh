#!/usr/bin/env bash
# Builds the wheel around a built library, installs it into a venv of its own and runs every test of the binding.
#   usage: bash bindings/python/test.sh BUILD_DIR
# BUILD_DIR has capi/libgangway.so and impl/tools/gangrun. GANGWAY_TEST_VENV names a venv to borrow PyTorch from (default:
# that of the benchmarks in BUILD_DIR). GANGWAY_NO_INSTALL=1: no Debian packages are installed.
# GANGWAY_TEST_DEVICE=cuda: models, plans, states, shard groups, partitions, pipelines and arrays on the software GPU instead.
# GANGWAY_TEST_ALL=1: also what repeats a fact.
# GANGWAY_TEST_PIP_BUILD=1: also what pip builds from the source folder alone, library included; minutes the first time.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 1 ] || { echo "usage: bash bindings/python/test.sh BUILD_DIR" >&2; exit 2; }
build=$(cd "$1" && pwd) || exit 2
. "$here/testing.sh"
need_packages || exit 1

work=$build/python venv=$build/python/venv
mkdir -p "$work/wheels"
make_venv "$venv" || exit 1
install_from "$venv" "$here/tests/frameworks.txt" --retries 2 ||
  echo "skip: JAX, matplotlib and TensorBoard could not be installed; what needs them is skipped"
lend "$venv" "${GANGWAY_TEST_VENV:-$build/tests/bench/venv}"
install_wheel "$venv" "$build" "$work" || exit 1
# What the wheel needs lies next to it: test_wheel.py installs both where nothing else is.
missing=()
for needed in $(grep -E '^(numpy|ml_dtypes)==' "$here/tests/requirements.txt"); do
  compgen -G "$work/wheels/${needed%==*}-${needed#*==}-*.whl" >/dev/null || missing+=("$needed")
done
[ ${#missing[@]} -eq 0 ] ||
  "$venv/bin/pip" download -q --disable-pip-version-check --no-deps -d "$work/wheels" "${missing[@]}" || exit 1
# Of the extra: with the software GPU's module in place of nvcc's, which tests/cuda_build.sh tries.
PATH=$venv/bin:$PATH PYTHON=$venv/bin/python bash "$here/cuda_wheel.sh" "$build" "$work/wheels" "$build/tests/gpu_emulation/libgangway_cuda.so" || exit 1
export GANGWAY_TEST_GPUS=$build/tests/gpu_emulation
# On the software GPU: what needs neither PyTorch nor NumPy in a GPU's memory; ranks are processes, each with GPUs of its own.
tests=("$here/tests")
if [ -n "${GANGWAY_TEST_DEVICE:-}" ]; then
  export GANGWAY_MODULES=$GANGWAY_TEST_GPUS
  tests=("$here"/tests/test_{arrays,gpu_arrays,gpu_models,models,partition,pipeline,plans,shard_groups,state}.py -k "not torch")
fi
[ -n "${GANGWAY_TEST_ALL:-}" ] ||
  echo "left to GANGWAY_TEST_ALL=1: examples that tests/bindings/examples/test.sh compares, 10,080 rounds of what leaves nothing"
GANGWAY_TEST_WHEELS=$work/wheels run_tests "$venv" "$work" "${tests[@]}"
