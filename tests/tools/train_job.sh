# For tests of gw-train: a folder of its own with a small model, a text and a run.toml, and functions that
# run it. Source it with BUILD_DIR as the argument.
tools=$1/impl/tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=1
fail() { echo "FAILED: $*" >&2; exit 1; }

for i in $(seq 1 300); do echo "Sentence $i says that $((i * 7)) is seven times $i."; done >text.u8
mkdir model
cat >model/config.json <<'CONFIG'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
 "num_attention_heads": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}
CONFIG
cat >run.toml <<'TOML'
[model]
folder = "model"
[data]
train = "text.u8"
sequence = 16
[train]
steps = 10
global_batch = 2
[checkpoint]
folder = "run"
[metrics]
peak_tflops = 0.1
TOML

# Runs gw-train on one rank with these options, and must end with the status. What it says is in `log`.
ends() { # STATUS OPTIONS...
  local want=$1 got=0
  shift
  "$tools/gw-train" run.toml "$@" >log 2>&1 || got=$?
  [ "$got" -eq "$want" ] || { cat log >&2; fail "gw-train $* ended with $got, not $want"; }
}
says() { grep -q -- "$1" log || { cat log >&2; fail "it does not say '$1'"; }; }
is_silent_about() { if grep -q -- "$1" log; then cat log >&2; fail "it says '$1'"; fi; }
