#!/usr/bin/env bash
# The examples are the same programs in C, Python, Rust and Julia. Over 1 and 2 ranks the first five end well
# and print what C's do (speeds and samples apart). So do, over 2 ranks, evaluation with reload, a plan of tensor
# parallelism and a movement over a partition (C's gathers 12 pieces), and the pipeline of own stages; and
# training over tp 2 x pp 2 x dp_shard 2 in the bindings. A killed rank changes no loss of resume. Julia's
# compiler takes long, so that GANGWAY_TEST_ALL=1 alone runs Julia's evaluation, plan and movement. In Ruby, which
# has no binding, shard_group reads abi.json and prints what C's does.
#   usage: tests/bindings/examples/test.sh BUILD_DIR
# BUILD_DIR and the programs of the languages as for tests/bindings/mixed/test.sh, with the C examples built, too.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
build=$(cd "${1:?usage: test.sh BUILD_DIR}" && pwd) || exit 2
cargo=${CARGO:-cargo} julia=${JULIA:-julia} python=${PYTHON:-$build/python/venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$build/capi${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} GANGWAY_LIB_DIR=$build/capi
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 # as bindings/rust/test.sh, whose programs are used again
export CARGO_TARGET_DIR=$build/rust CARGO_NET_OFFLINE=true GANGWAY_LIBRARY=$build/capi/libgangway.so
export JULIA_DEPOT_PATH=$work/depot JULIA_LOAD_PATH=$top/bindings/julia:@stdlib
passed=0 failed=0 skipped=0
good() { passed=$((passed + 1)); echo "passed: $*"; }
bad() { failed=$((failed + 1)); echo "FAILED: $*"; }

source_of() { # LANGUAGE EXAMPLE
  case $1 in
    c) echo "$top"/examples/[0-9][0-9]_"$2".c ;;
    python) echo "$top/bindings/python/examples/$2.py" ;;
    rust) echo "$top/bindings/rust/gangway/examples/$2.rs" ;;
    julia) echo "$top/bindings/julia/examples/$2.jl" ;;
    ruby) echo "$top/examples/dlopen/$2.rb" ;;
  esac
}

# Sets `program` to the command of LANGUAGE's EXAMPLE. Each rank of Julia compiles for itself, so that more than one
# interpret what does not call the library, unless the example computes in Julia.
find_program() { # LANGUAGE EXAMPLE [RANKS]
  local file mode=(-O1); file=$(source_of "$1" "$2")
  case ${3:-2}${GANGWAY_TEST_ALL:+.all}.$2 in
    [2-9].all_reduce | [2-9].train_llama | [2-9].train_3d | [2-9].resume) mode=(-O0 --compile=min) ;;
  esac
  case $1 in
    c) program=("$build/examples/$(basename "$file" .c)") ;;
    python) program=("$python" -P "$file") ;;
    rust) program=("$build/rust/debug/examples/$2") ;;
    julia) program=("$julia" --startup-file=no "${mode[@]}" "$file") ;;
    ruby) program=(ruby "$file") ;;
  esac
}

# Whether the language is there, and its examples are built.
is_there() {
  case $1 in
    c) [ -x "$build/examples/01_all_reduce" ] ;;
    python) [ -x "$python" ] && "$python" -P -c 'import gangway' ;;
    rust) command -v "$cargo" && (cd "$top/bindings/rust" && "$cargo" build -q -p gangway --examples) ;;
    julia) command -v "$julia" ;;
  esac >"$work/log" 2>&1
}

# What a run printed, without speeds and samples, and in the order of the ranks. gangrun puts the lines of two ranks beside
# each other, whole, and the rank before each: a rank that writes a line in two pieces (unbuffered Python) mixes with none.
shown() {
  sed -E 's/^\[[0-9]+\] //' | case $1 in
    train_llama) sed -E 's/  [0-9]+ tokens.s$//; s/^(sample: The ).*/\1/' | grep -aE '^(step|sample)' ;;
    all_reduce) sort ;;
    *) cat ;;
  esac
}

# same_output LANGUAGE EXAMPLE RANKS: runs it, and compares with the first language that ran it.
same_output() {
  local language=$1 name=$2 ranks=$3 out=$work/$1.$2.$3 reference=$work/first.$2.$3
  find_program "$language" "$name" "$ranks"
  case $name in
    train_llama) program+=("$work/text" "$work/$language$ranks" 40) ;;
    evaluate) program+=("$work/text" "$work/held_out" "$work/$language.evaluate") ;;
  esac
  if ! "$build/impl/tools/gangrun" -n "$ranks" --timeout 600 -- "${program[@]}" >"$work/out" 2>"$work/log"; then
    bad "$language $name over $ranks ranks"; cat "$work/out" "$work/log"; return; fi
  shown "$name" <"$work/out" >"$out"
  [ -e "$reference" ] || cp "$out" "$reference"
  if [ -s "$out" ] && diff "$reference" "$out"; then
    good "$language $name over $ranks ranks prints what the others do"; else bad "$language $name over $ranks ranks"; fi
}

# resumes LANGUAGE: a run whose rank 1 kills itself goes on from a checkpoint, and ends with the loss of a run
# without a death, to the last digit. That loss is also the one of the first language that ran it.
resumes() {
  local language=$1 reference=$work/first.resume start=("$build/impl/tools/gangrun" -n 2 --no-prefix --timeout 600 --max-restarts 2)
  find_program "$language" resume
  "${start[@]}" -- "${program[@]}" "$work/text" "$work/$language.whole" >"$work/whole" 2>"$work/log" &&
    "${start[@]}" -- "${program[@]}" "$work/text" "$work/$language.killed" 13 >"$work/killed" 2>>"$work/log" ||
    { bad "$language resume"; cat "$work/whole" "$work/killed" "$work/log"; return; }
  [ -e "$reference" ] || cp "$work/whole" "$reference"
  if grep -q 'gangrun: restart 1 of 2$' "$work/log" && grep -qE '^goes on after step (5|10)$' "$work/killed" &&
    [ "$(grep -c '^step ' "$work/whole")" -eq 20 ] && diff "$reference" "$work/whole" &&
    diff <(tail -n 1 "$work/whole") <(tail -n 1 "$work/killed") &&
    ! grep '^step ' "$work/killed" | grep -vxF -f "$work/whole"; then
    good "$language resume ends with the loss of the undisturbed run"; else bad "$language resume"; cat "$work/killed" "$work/log"; fi
}

# Its losses on an emulated GPU (of which every process has its own) are those of a CPU.
trains_on_a_gpu() { # LANGUAGE
  local language=$1 device gpus=$build/tests/gpu_emulation
  find_program "$language" train_llama
  for device in cpu cuda; do
    local last=$device
    [ "$language" != c ] || last=device=$device
    GANGWAY_MODULES=$gpus LD_LIBRARY_PATH=$gpus:$LD_LIBRARY_PATH "$build/impl/tools/gangrun" -n 1 --timeout 120 -- "${program[@]}" \
      "$work/text" "$work/$language.$device" 1 "$last" >"$work/out" 2>"$work/log" || { bad "$language train_llama on $device"; cat "$work/out" "$work/log"; return; }
    shown train_llama <"$work/out" | grep -a '^step' >"$work/$device.losses"
  done
  if [ -s "$work/cuda.losses" ] && diff "$work/cpu.losses" "$work/cuda.losses"; then
    good "$language train_llama on an emulated GPU prints the CPU's losses"; else bad "$language train_llama on an emulated GPU"; fi
}

for i in $(seq 1 500); do echo "Sentence $i says that $((i * 7)) is seven times $i."; done >"$work/text"
sed 's/ says / holds /' "$work/text" >"$work/held_out"
for language in c python rust julia; do
  there=1
  is_there "$language" || there=0
  for name in all_reduce train_llama custom_module shard_group resume; do
    if [ $there = 0 ]; then
      skipped=$((skipped + 1)); echo "skipped: $language $name ($(tail -n 1 "$work/log"))"
      if [ "${GANGWAY_ALL_LANGUAGES:-0}" = 1 ] || [ "$language" = c ]; then bad "$language is not there"; fi
      continue
    fi
    [ "$name" != resume ] || { resumes "$language"; continue; }
    for ranks in 1 2; do same_output "$language" "$name" $ranks; done
  done
  [ $there = 1 ] || continue
  [ "$language" = python ] || same_output "$language" pipeline_custom_stage 2
  [ "$language" = c ] || same_output "$language" train_3d 8
  case $language${GANGWAY_TEST_ALL:+.all} in
    c | c.all) for name in evaluate parallel_plan; do same_output c $name 2; done ;;
    python | python.all | rust | rust.all | julia.all)
      for name in evaluate parallel_plan partition_all_gather; do same_output "$language" $name 2; done ;;
  esac
  trains_on_a_gpu "$language"
done
if command -v ruby >/dev/null; then
  for ranks in 1 2; do same_output ruby shard_group $ranks; done
else
  skipped=$((skipped + 1)); echo "skipped: ruby shard_group (there is no ruby)"
  [ "${GANGWAY_ALL_LANGUAGES:-0}" = 0 ] || bad "ruby is not there"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
