#!/usr/bin/env bash
# The module for NVIDIA GPUs as it ships: built by nvcc from PyPI, without a warning, and tried where no GPU is. Then a table
# of its kernels.
#   usage: tests/cuda_build.sh [--no-install] [BUILD_DIR]        CUDA_ARCHITECTURES="80;90a;100": of a release; 90a alone by default
# BUILD_DIR may be the one of tests/run.sh: only the module is added to what is built there.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/examples/packages.sh"
if [ "${1:-}" = --no-install ]; then shift; else install_packages "${build_packages[@]}" python3-venv libgtest-dev libgmock-dev libcmocka-dev libboost-context-dev || exit 1; fi
build=$(realpath -m "${1:-$top/build-cuda}")
toolkit=$build/toolkit
passed=0 failed=0
check() { # WHAT COMMAND...
  local what=$1 log=$build/check.log; shift
  if "$@" >"$log" 2>&1; then passed=$((passed + 1)); echo "passed: $what"; else failed=$((failed + 1)); echo "FAILED: $what"; tail -n 20 "$log"; fi
}

without_nccl() { # GANGWAY_CUDA WORDS
  { cmake -S "$top" -B "$build/without_nccl" -G Ninja -DGANGWAY_CUDA="$1" -DCUDAToolkit_ROOT="$root" -DGANGWAY_NCCL_INCLUDE=OFF 2>&1 || :; } |
    tr -s ' \n' ' ' | grep -o "$2"
}
ptx() {
  mkdir -p "$build/ptx"
  local kernel extra
  for kernel in "$top"/impl/ops/cuda/*.cu; do
    extra=()
    [ "$(basename "$kernel")" != random.cu ] || extra=(-fmad=false)  # as impl/cuda/CMakeLists.txt has it
    "$root/bin/nvcc" -std=c++20 -O3 -arch=compute_90a --expt-relaxed-constexpr "${extra[@]}" "-I$top/impl" -ptx "$kernel" \
      -o "$build/ptx/$(basename "$kernel" .cu).ptx" || return 1
  done
}

# The instructions of the kernels, for the figures that cuda_static.py compares with its record.
sass() {
  mkdir -p "$build/sass"
  local kernel name
  for kernel in "$top"/impl/ops/cuda/*.cu; do
    name=$(basename "$kernel" .cu)
    PATH=$root/bin:$PATH cuobjdump -arch sm_90a -sass "$build/impl/cuda/$name.o" >"$build/sass/$name.sass" || return 1
  done
}

# Tests on the software GPU, which runs this PTX in place of the kernels' source and looks for races in it:
# every kernel in small sizes, the sectors of memory that some touch, and of the operations' tests those that
# end in time, or with GANGWAY_TEST_ALL=1 those of every operation, which take an hour or two. An entry is
# PROGRAM | FILTER.
few='-*FiniteDifferences*:*Bits*:*ThreadCount*:*NumberOfThreads*:*SameRunToRun*'
every=("gpu_emulation/every_kernel | *" "gpu_emulation/sectors | *")
ptx_runs=("${every[@]}" "ops/norm | $few" "ops/rope | $few" "ops/swiglu | $few" "ops/layernorm | $few" "ops/dropout | $few" "ops/attention_merge | $few"
  "ops/optimizer | AdamW8bit.*:Adafactor.TakesVectors*:AdamW.FiveSteps*:AdamW.Nothing*:Lion.TheSign*"
  "gpu_emulation/cuda_ops | ModelOps.*:LossOfTerms.*:AttentionScores.EveryWidth*" "nn/fp8 | Fp8Codes.*:Fp8Linear.EveryDevice*")
ptx_seconds=300
if [ -n "${GANGWAY_TEST_ALL:-}" ]; then
  ptx_seconds=7200
  most='-*FiniteDifferences*:*ThreadsDoNotChangeBits*:*BitsAreTheSame*:*SameRunToRun*:*MoreShapes*'
  ptx_runs=("${every[@]}" "nn/fp8 | Fp8Codes.*:Fp8Linear.EveryDevice*" "gpu_emulation/cuda_ops | *")
  for unit in activation attention attention_merge dropout elementwise embedding gemm head_loss layernorm loss_parts norm optimizer rope swiglu; do
    ptx_runs+=("ops/$unit | $most")
  done
fi
all_ran_from_ptx() { # so that a new kernel, or a new instance of one, gets a case in every_kernel_test
  local all never
  all=$(grep -ho '\.entry [^ (]*' "$build"/ptx/*.ptx | cut -d ' ' -f 2 | sort -u)
  never=$(comm -23 <(echo "$all") <(sort -u "$build/ptx_used.txt"))
  [ -z "$never" ] || { echo "never launched:"; c++filt <<<"$never"; }
  [ -n "$all" ] && [ -z "$never" ]
}
run_ptx() {
  local run program emulated=$build/tests/gpu_emulation
  rm -f "$build/ptx_used.txt"
  for run in "${ptx_runs[@]}"; do
    program=${run% | *}
    check "PTX agrees with its source: ${program#*/}" env GANGWAY_TEST_DEVICE=cuda GANGWAY_CUDNN=0 "GANGWAY_MODULES=$emulated" "LD_LIBRARY_PATH=$emulated" \
      "GPU_EMULATION_PTX=$build/ptx" "GPU_EMULATION_PTX_USED=$build/ptx_used.txt" timeout "$ptx_seconds" \
      "$build/tests/${program}_test" "--gtest_filter=${run#* | }"
  done
  check "all $(sort -u "$build/ptx_used.txt" | wc -l) kernels ran from PTX" all_ran_from_ptx
}

mkdir -p "$build"
[ -x "$toolkit/bin/pip" ] || python3 -m venv "$toolkit" || exit 1
"$toolkit/bin/pip" install -q --disable-pip-version-check nvidia-cuda-nvcc==13.0.* nvidia-cuda-runtime==13.0.* \
  nvidia-cuda-crt==13.0.* nvidia-nvvm==13.0.* nvidia-cublas==13.0.* nvidia-cuda-nvrtc==13.0.* \
  nvidia-cudnn-cu13==9.19.* nvidia-cudnn-frontend==1.32.* nvidia-nccl-cu13==2.28.* \
  nvidia-cuda-cuobjdump==13.2.* nvidia-cuda-nvdisasm==13.2.* || exit 1
site=$(echo "$toolkit"/lib/python3*/site-packages)
root=$site/nvidia/cu13
for library in cublas cublasLt cudart; do ln -sf "lib$library.so.13" "$root/lib/lib$library.so"; done # what a linker looks for

started=$SECONDS
check "compiled by $("$root/bin/nvcc" --version | grep -o 'release [0-9.]*')" bash -c '
  cmake -S "$0" -B "$1" -G Ninja -DGANGWAY_TESTS=ON -DGANGWAY_CUDA=ON -DGANGWAY_CUDNN=ON -DGANGWAY_WERROR=ON -DCUDAToolkit_ROOT="$2" \
    -DGANGWAY_CUDA_ARCHITECTURES="$3" -DGANGWAY_CUDNN_INCLUDE="$4" -DGANGWAY_CUDNN_FRONTEND_INCLUDE="$5" -DGANGWAY_NCCL_INCLUDE="$6" &&
    ninja -C "$1" gangway gangway_cuda gw-info cudnn_plans_test cudnn_calls_test && cat "$1"/impl/cuda/*.o.txt >"$1/nvcc.txt" && ! grep -i "warning" "$1/nvcc.txt"' \
  "$top" "$build" "$root" "${CUDA_ARCHITECTURES:-90a}" "$site/nvidia/cudnn/include" "$site/include" "$site/nvidia/nccl/include"
[ $failed -eq 0 ] || { echo "$passed passed, $failed failed, 0 skipped"; exit 1; }
echo "compiled in $((SECONDS - started)) s"
check "no undefined symbol" bash -c '! ldd -r "$1/capi/libgangway_cuda.so" | grep -E "undefined symbol|not found"' - "$build"
check "it needs no cuDNN" bash -c '! ldd "$1/capi/libgangway_cuda.so" | grep -i cudnn' - "$build"
check "without cuDNN, or with an old one, it is said in words" "$build/tests/ops/cudnn_calls_test"
check "cuDNN makes plans of attention for sm_80, sm_90 and sm_100" env LD_LIBRARY_PATH="$build/tests/ops/driver:$site/nvidia/cudnn/lib:$root/lib" \
  bash -c 'set -o pipefail; "$0" | tee "$1" && ! grep SKIPPED "$1"' "$build/tests/ops/cudnn_plans_test" "$build/cudnn_plans.txt"
if [ -e /dev/nvidiactl ]; then
  check "it is loaded" bash -c '"$0/impl/tools/gw-info" | grep "^devices:.*cuda"' "$build"
else
  check "without a driver it is refused in words" bash -c '"$0/impl/tools/gw-info" | grep -A1 "device \"cuda\"" | grep "no NVIDIA driver"' "$build"
fi
check "a toolkit without nccl.h: AUTO leaves the module out, and says so" without_nccl AUTO "nccl.h not found: the module for NVIDIA GPUs is not built"
check "a toolkit without nccl.h: ON is refused" without_nccl ON "GANGWAY_CUDA is ON, but nccl.h is not found"
check "PTX of the kernels" ptx
if [ -n "${GANGWAY_TEST_ALL:-}" ]; then
  programs=("${ptx_runs[@]%% | *}")
  programs=("${programs[@]##*/}")
  check "the operations' tests are built" ninja -C "$build" gangway_cuda_emulated "${programs[@]/%/_test}"
fi
if [ -x "$build/tests/ops/norm_test" ]; then run_ptx; else echo "PTX was not run: the operations' tests are not built in $build"; fi
if [[ ";${CUDA_ARCHITECTURES:-90a};" = *";90a;"* ]]; then check "instructions of the kernels" sass; fi
shopt -s nullglob
python3 "$top/tests/bench/cuda_static.py" "$build"/impl/cuda/*.o.txt "$build"/ptx/*.ptx "$build"/sass/*.sass || failed=$((failed + 1))
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
