#!/bin/sh
# leak_test.sh FOLDER-OF-EXAMPLES valgrind|sanitizer [GANGRUN]: checks that short runs of the C examples leak
# no memory, on one rank, or with gangrun on each of two ranks. Valgrind finds leaks, or the address sanitizer
# of the build.
set -eu
examples=$1 by=$2 gangrun=${3:-}
if [ "$by" = valgrind ] && ! command -v valgrind >/dev/null; then
  echo "valgrind is not installed (bash tests/run.sh installs it)"
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
launch() {
  if [ -n "$gangrun" ]; then "$gangrun" -n 2 "$@"; else "$@"; fi
}
check() {
  echo "== $*"
  if [ "$by" = sanitizer ]; then
    ASAN_OPTIONS=detect_leaks=1 launch "$@" >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
    return
  fi
  # Possibly lost memory is allowed, because a thread that has not ended yet has some.
  launch valgrind --quiet --leak-check=full --errors-for-leak-kinds=definite,indirect \
    --show-leak-kinds=definite,indirect --error-exitcode=99 --undef-value-errors=no "$@" >"$work/out" 2>&1 ||
    { cat "$work/out"; exit 1; }
}
check "$examples/01_all_reduce"
check "$examples/03_custom_module"
check "$examples/04_shard_group"
head -c 3000 "$0" >"$work/text"
# Two examples train a Llama with the same calls. Only this one takes sizes, which must be small for valgrind.
check "$examples/llama_trainer" --text "$work/text" --out "$work/trained" --steps 2 --batch 2 --sequence 16 --dim 32 \
  --layers 1 --heads 2 --kv-heads 1 --ffn 32 --sample 4
