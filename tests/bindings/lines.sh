#!/usr/bin/env bash
# Lines per language, of the files that git knows: written by hand, made by a program (the first lines say so), tests, examples.
# Lines by hand are every line of a source, a header or a generator, with comments and empty ones; scripts that only run
# tests (*.sh), packaging (*.toml, CMakeLists.txt), READMEs, install scripts and benchmarks are in no column.
#   usage: tests/bindings/lines.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

# count hand|made FILE...
count() {
  local want=$1 lines=0 file kind; shift
  for file in "$@"; do
    kind=hand
    if head -n 3 "$file" | grep -qiE 'do not edit|automatically generated'; then kind=made; fi
    [ "$kind" != "$want" ] || lines=$((lines + $(wc -l <"$file")))
  done
  echo "$lines"
}

# row LANGUAGE SOURCES TESTS EXAMPLES: lists of git's patterns.
row() {
  local sources tests examples
  read -ra sources <<<"$2"; read -ra tests <<<"$3"; read -ra examples <<<"$4"
  mapfile -t sources < <(git ls-files -- "${sources[@]}")
  mapfile -t tests < <(git ls-files -- "${tests[@]}")
  mapfile -t examples < <(git ls-files -- "${examples[@]}")
  printf '%-8s %8d %8d %8d %8d\n' "$1" "$(count hand "${sources[@]}")" "$(count made "${sources[@]}")" \
    "$(count hand "${tests[@]}")" "$(count hand "${examples[@]}")"
}

printf '%-8s %8s %8s %8s %8s\n' '' by-hand made tests examples
row C 'capi/*.cpp capi/*.h capi/include/gangway/*.h capi/*.py' 'tests/capi/*.c tests/capi/*.cpp tests/capi/*.h' \
  ':(glob)examples/*.c :(glob)examples/*.h'
row Python 'bindings/python/gangway/*.py bindings/python/gangway/*.pyi bindings/python/swig/*' 'bindings/python/tests/*.py' \
  'bindings/python/examples/*.py'
row Rust 'bindings/rust/gangway/src/*.rs bindings/rust/gangway-sys/*.rs bindings/rust/gangway-sys/generate.sh' \
  'bindings/rust/gangway/tests/*.rs' 'bindings/rust/gangway/examples/*.rs'
row Julia 'bindings/julia/src/*.jl bindings/julia/gen/*.py' 'bindings/julia/test/*.jl' 'bindings/julia/examples/*.jl'
