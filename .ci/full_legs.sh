#!/usr/bin/env bash
# The longer commands of .ci/full's legs.
#   usage: .ci/full_legs.sh LEG [ARGUMENT]...      LEG is a function of this file
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=$PWD/build-test

# PyTorch and its launcher from PyPI, and every MPI launcher: what run.sh does without.
all_tests() {
  bash tests/bench/peers/install.sh collectives . && bash tests/bench/peers/install.sh train "$build/tests/bench" || return 1
  GANGWAY_TEST_PIP_BUILD=1 GANGWAY_TEST_ALL=1 bash tests/run.sh
}

# The build is that of all_tests, where it has run.
kills() {
  { cmake -S . -B "$build" -G Ninja -DGANGWAY_TESTS=ON -DGANGWAY_WERROR=ON && ninja -C "$build" host_process_test kill_storm_test hosts_storm_test; } >/dev/null &&
    GANGWAY_TEST_KILLS=2000 "$build/tests/gang/host/host_process_test" --gtest_filter='HostKill.KillsAtRandomPoints*' &&
    GANGWAY_TEST_KILLS=2000 "$build/tests/kill_storm/kill_storm_test" &&
    GANGWAY_TEST_KILLS=1000 "$build/tests/gang/network/hosts_storm_test"
}

# Training runs that are killed and go on: each ends with the bits of the undisturbed run.
run_kills() {
  { cmake -S . -B "$build" -G Ninja -DGANGWAY_TESTS=ON -DGANGWAY_WERROR=ON && ninja -C "$build" gangrun gw-checkpoint gw-train; } >/dev/null &&
    python3 tests/tools/train_kill_test.py "$build" --kills 300
}

# Training steps on the deferred device, for as many orders of its streams.
seeds() {
  { cmake -S . -B "$build" -G Ninja -DGANGWAY_TESTS=ON -DGANGWAY_WERROR=ON && ninja -C "$build" train_deferred_test; } >/dev/null &&
    GANGWAY_TEST_SEEDS=100 "$build/tests/train/train_deferred_test" --gtest_filter='DeferredStep.GivesTheCpusBits*'
}

# A step of two ranks on software GPUs, as often as it makes calls of CUDA, cuBLASLt and NCCL: each call fails once.
faults() {
  { cmake -S . -B "$build" -G Ninja -DGANGWAY_TESTS=ON -DGANGWAY_WERROR=ON && ninja -C "$build" cuda_training_test; } >/dev/null || return 1
  seq 8 | xargs -P 8 -I{} env GANGWAY_TEST_FAULTS={}/8 "$build/tests/gpu_emulation/cuda_training_test" --gtest_filter='CudaFaults.*'
}

# A binding's tests on software GPUs; what they cannot do there they skip with a reason.
on_gpus() { # COMMAND...
  { cmake -S . -B "$build" -G Ninja -DGANGWAY_TESTS=ON -DGANGWAY_WERROR=ON &&
    ninja -C "$build" gangway gangrun gangway_cuda_emulated; } >/dev/null &&
    GANGWAY_TEST_DEVICE=cuda "$@" "$build"
}
julia_on_gpus() {
  local julia
  julia=$(command -v julia || echo "$build/julia/bin/julia")
  [ -x "$julia" ] || bash bindings/julia/install-julia.sh "$build/julia" >/dev/null || return 1
  JULIA=$julia on_gpus bash bindings/julia/test.sh
}

# PyTorch's own distributed tests over gangway and over Gloo, counted side by side, in the venv that all_tests lends PyTorch.
pytorch() {
  bash tests/bench/peers/install.sh train "$build/tests/bench" && bash bindings/python/tests/pytorch/run.sh "$build"
}

fresh() { bash tests/fresh_machine.sh --suite "$1" . "$2"; }

# Every command of every page, run as it stands there.
pages() {
  fresh "$1" 'apt-get update -qq && apt-get install -y -qq python3 >/dev/null && python3 tests/readme_test.py run'
}

"$@"
