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
# gw-train takes sizes, which must be small for valgrind. It uses data, checkpoints and metrics, too.
cat "$0" "$0" >"$work/text.u8"
mkdir "$work/model"
cat >"$work/model/config.json" <<'CONFIG'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
 "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}
CONFIG
cat >"$work/run.toml" <<TOML
[model]
folder = "$work/model"
[data]
train = "$work/text.u8"
sequence = 16
[train]
steps = 3
global_batch = 2
[checkpoint]
folder = "$work/run"
every = 2
[metrics]
peak_tflops = 0.1
[sample]
prompt = "a"
tokens = 4
TOML
check "$examples/09_resume" "$work/text.u8" "$work/resume"
check "$examples/../impl/tools/gw-train" "$work/run.toml"
