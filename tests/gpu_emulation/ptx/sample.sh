#!/usr/bin/env bash
# Makes sample/sample.ptx from sample.cu.   usage: tests/gpu_emulation/ptx/sample.sh [NVCC]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"  # the name of the file becomes part of the kernels' names
mkdir -p sample
"${1:-nvcc}" -std=c++20 -O3 -arch=compute_90a --expt-relaxed-constexpr "-I../../../impl" -ptx sample.cu -o sample/sample.ptx
