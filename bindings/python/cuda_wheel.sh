#!/usr/bin/env bash
# Makes the wheel libgangway-cuda, of the extra libgangway[cuda], from a build folder whose library is in the
# wheel libgangway.
#   usage: bash bindings/python/cuda_wheel.sh BUILD_DIR OUT_DIR [MODULE]     PYTHON names an interpreter with pip and scikit-build-core
# MODULE: another libgangway_cuda.so than the one that nvcc made in BUILD_DIR.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?usage: cuda_wheel.sh BUILD_DIR OUT_DIR [MODULE]}" && pwd)
mkdir -p "${2:?usage: cuda_wheel.sh BUILD_DIR OUT_DIR [MODULE]}"
out=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
module=${3:-}
if [ -z "$module" ]; then # installed, it names no folder of this machine
  cmake --install "$build" --component cuda --prefix "$work/stage" >"$work/log" || { cat "$work/log"; exit 1; }
  module=$(find "$work/stage" -name libgangway_cuda.so)
  [ -n "$module" ] || { echo "$build has no module for NVIDIA GPUs: configure it with GANGWAY_CUDA=ON, and build" >&2; exit 1; }
fi
cp -R "$here/cuda" "$work/sources"
cp "$here/../../LICENSE" "$work/sources"
rm -f "$out"/libgangway_cuda-*.whl
"${PYTHON:-python3}" -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w "$out" \
  --config-settings="cmake.define.GANGWAY_CUDA_MODULE=$(realpath "$module")" "$work/sources"
