#!/usr/bin/env bash
# Seconds from a fresh clone to the first trained step in each language, as a table. Debian's packages are there already, no
# compiler cache is used, and every language starts from a clone of its own.
#   usage: bash tests/bench/first_step.sh TEXT [c|python|rust|julia]...      JULIA names Julia (default: julia in PATH)
set -euo pipefail
text=$(realpath "${1:?usage: bash tests/bench/first_step.sh TEXT [c|python|rust|julia]...}")
shift
[ $# -gt 0 ] || set -- c python rust julia
for language in "$@"; do
  case $language in c|python|rust|julia) ;; *) echo "no language $language: c, python, rust or julia" >&2; exit 2 ;; esac
done
top=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
julia=${JULIA:-julia}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build_library() {
  cmake -S . -B build -G Ninja -DGANGWAY_CCACHE= && ninja -C build gangway gangrun "$@"
}
in_c() {
  build_library 02_train_llama && built=$SECONDS &&
    build/impl/tools/gangrun -n 2 build/examples/02_train_llama "$text" out 1
}
in_python() {
  python3 -m venv venv && venv/bin/pip install -q --disable-pip-version-check ./bindings/python && built=$SECONDS &&
    venv/bin/python -m gangway.run -n 2 venv/bin/python bindings/python/examples/train_llama.py "$text" out 1
}
in_rust() {
  build_library && export GANGWAY_LIB_DIR=$PWD/build/capi LD_LIBRARY_PATH=$PWD/build/capi &&
    (cd bindings/rust && cargo build -q --release --example train_llama) && built=$SECONDS &&
    build/impl/tools/gangrun -n 2 bindings/rust/target/release/examples/train_llama "$text" out 1
}
in_julia() {
  export GANGWAY_LIBRARY=$PWD/build/capi/libgangway.so JULIA_DEPOT_PATH=$work/depot
  build_library && built=$SECONDS &&
    build/impl/tools/gangrun -n 2 "$julia" --startup-file=no --project=bindings/julia \
      bindings/julia/examples/train_llama.jl "$text" out 1
}

echo "| language | clone and build, s | run one step and save, s |"
echo "|---|---|---|"
for language in "$@"; do
  (
    SECONDS=0
    git clone -q "$top" "$work/$language" && cd "$work/$language"
    if in_$language >"$work/$language.log" 2>&1; then
      echo "| $language | $built | $((SECONDS - built)) |"
    else
      echo "| $language | failed | |"; tail -n 5 "$work/$language.log" >&2
    fi
  )
done
