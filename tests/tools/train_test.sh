#!/usr/bin/env bash
# gw-train: learns from a text, is the same twice, continues on the same mesh bit by bit and on another one,
# stops when it is asked to, says what it would do, and refuses what is wrong with one line.
#   usage: train_test.sh BUILD_DIR
set -euo pipefail
tools=$1/impl/tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

# A text with something to learn: numbered sentences, a byte a token.
for i in $(seq 1 3000); do echo "Sentence $i says that $((i * 7)) is seven times $i."; done >"$work/text.u8"
mkdir "$work/model"
cat >"$work/model/config.json" <<'CONFIG'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}
CONFIG
cat >"$work/run.toml" <<TOML
[model]
folder = "$work/model"
[data]
train = "$work/text.u8"
validation = "$work/text.u8"
sequence = 32
[train]
steps = 60
global_batch = 8
[optimizer]
lr = 3e-3
schedule = "cosine"
warmup_steps = 5
max_grad_norm = 1.0
[checkpoint]
folder = "unset"
every = 20
keep = 0
[evaluate]
every = 30
batches = 2
[metrics]
peak_tflops = 0.1
TOML

run() { # OUT RANKS OPTIONS...
  local out=$1 ranks=$2
  shift 2
  "$tools/gangrun" -n "$ranks" --no-prefix "$tools/gw-train" "$work/run.toml" --checkpoint.folder "$work/$out" "$@" >"$work/log" 2>&1
}
must() { run "$@" || { cat "$work/log" >&2; fail "$* ended with $?"; }; }
losses() { cut -d, -f1,4 "$work/$1/loss.csv" | tail -n +2; }
last_loss() { tail -n 1 "$work/$1/loss.csv" | cut -d, -f4; }
close() { awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; exit !(d < t && -d < t) }'; }
same() { # OUT: equals the run "a" from losses to every bit of the values and states
  diff <(losses a) <(losses "$1") || fail "$1 has other losses"
  for file in model.safetensors optimizer.safetensors; do
    cmp "$work/a/step-00000060/$file" "$work/$1/step-00000060/$file" || fail "$1 has another $file"
  done
}

must a 2
awk -v l="$(last_loss a)" 'BEGIN { exit !(l < 3.5) }' || fail "the last loss is $(last_loss a), it did not learn"
grep -q 'step 1/60 .*tokens/s' "$work/log" || fail "no progress line"
must again 2
same again

# A run that ends, and goes on, is one run.
must two 2 --train.steps 40 --optimizer.total_steps 60
must two 2
grep -q "continuing $work/two after step 40" "$work/log" || { cat "$work/log"; fail "it does not say that it continues"; }
same two

# A signal: the ranks stop after the same step, save, and leave with 75; the same command continues.
"$tools/gangrun" -n 2 --no-prefix "$tools/gw-train" "$work/run.toml" --checkpoint.folder "$work/stopped" >"$work/log" 2>&1 &
job=$!
for _ in $(seq 1 200); do [ "$(cat "$work/stopped/loss.csv" 2>/dev/null | wc -l)" -gt 5 ] && break; sleep 0.02; done
kill -USR1 $job
code=0
wait $job || code=$?
[ $code -eq 75 ] || { cat "$work/log"; fail "after SIGUSR1 it ended with $code, not 75"; }
grep -q 'stopped after step [0-9]* (SIGUSR1)' "$work/log" || { cat "$work/log"; fail "it does not say why it stopped"; }
must stopped 2
same stopped

# A stop inside of an evaluation: the run that continues makes it up, and has the same rows. 250 batches take
# most of the time, so the signal hits the evaluation of step 3, or step 3 itself.
long_evaluations=(--train.steps 6 --checkpoint.every 0 --evaluate.every 3 --evaluate.batches 250)
rows() { cut -d, -f1-8 "$work/$1/loss.csv"; } # the columns that are no times
must calm 2 "${long_evaluations[@]}"
"$tools/gangrun" -n 2 --no-prefix "$tools/gw-train" "$work/run.toml" --checkpoint.folder "$work/cut" "${long_evaluations[@]}" >"$work/log" 2>&1 &
job=$!
for _ in $(seq 1 500); do [ "$(cat "$work/cut/loss.csv" 2>/dev/null | wc -l)" -ge 3 ] && break; sleep 0.01; done
sleep 0.05
kill -TERM $job
code=0
wait $job || code=$?
[ $code -eq 75 ] || { cat "$work/log"; fail "after SIGTERM in an evaluation it ended with $code, not 75"; }
[ "$(wc -l <"$work/cut/loss.csv")" -eq 3 ] || { cat "$work/log"; fail "the stop did not hit the evaluation of step 3"; }
must cut 2 "${long_evaluations[@]}"
diff <(rows calm) <(rows cut) || fail "a run that was stopped in an evaluation has other rows"

# A run whose container was killed as a whole, so that nobody can see its processes: the next one waits until
# the lease of a minute ends. If the lease is renewed meanwhile, a live run has it.
lease() { # SECONDS_AGO: makes the lease of such a run
  mkdir -p "$work/moved-container"
  echo '{"job": "other", "attempt": "1a2b3c4d", "token": "0", "host": "h", "boot": "0", "processes": "0", "process": 1, "start": 1}' \
    >"$work/moved-container/.lease"
  touch -d "$1 seconds ago" "$work/moved-container/.lease"
}
lease 45
must moved-container 2 --train.steps 6
grep -q 'is in use by job "other" (attempt 1a2b3c4d; process 1 of host h), whose last sign is [45][0-9].* s old; waiting up to [0-9.]* s' "$work/log" ||
  { cat "$work/log"; fail "it does not say that it waits"; }
lease 5
: >"$work/log"
(for _ in $(seq 1 500); do grep -q 'waiting up to' "$work/log" 2>/dev/null && break; sleep 0.02; done; touch "$work/moved-container/.lease") &
code=0
run moved-container 2 --train.steps 6 || code=$?
wait $!
[ $code -eq 64 ] || { cat "$work/log"; fail "beside a live run it ended with $code, not 64"; }
grep -q '^gw-train: .*attempt 1a2b3c4d.*end that job' "$work/log" || { cat "$work/log"; fail "the refusal does not name the attempt"; }

# Other meshes and precisions: the same training.
must moved 2 --train.steps 20 --optimizer.total_steps 60
must moved 4 --train.steps 40 --optimizer.total_steps 60 --mesh.tp 2
must moved 1
close "$(last_loss a)" "$(last_loss moved)" 0.01 || fail "moved over three meshes it ends at $(last_loss moved), else at $(last_loss a)"
must bf16 2 --train.param_dtype bf16 --train.recompute selective --mesh.strategy shard_grad_op
close "$(last_loss a)" "$(last_loss bf16)" 0.1 || fail "bf16 ends at $(last_loss bf16), f32 at $(last_loss a)"

must fp8 2 --model.fp8 'model.layers.*.mlp.*' --model.fp8_scaling row
close "$(last_loss a)" "$(last_loss fp8)" 0.1 || fail "FP8 ends at $(last_loss fp8), f32 at $(last_loss a)"

# Adapters: they learn, PEFT's files lie beside the checkpoints, and the run is continued with them.
must lora 2 --train.steps 10 --optimizer.total_steps 20 --lora.rank 4 --lora.patterns '**.q_proj, **.down_proj' --mesh.tp 2
must lora 2 --train.steps 20 --optimizer.total_steps 20 --lora.rank 4 --lora.patterns '**.q_proj, **.down_proj'
grep -q '"target_modules": \["down_proj", "q_proj"\]' "$work/lora/adapter/adapter_config.json" || fail "the adapter has other layers"
[ -s "$work/lora/adapter/adapter_model.safetensors" ] || fail "the run has no adapter_model.safetensors"

# A step over a mesh is that of one rank, also of adapters.
must verified 2 --verify --mesh.tp 2 --mesh.sequence_parallel true
grep -q 'verified: the loss is .*, 21 gradients are equal' "$work/log" || { cat "$work/log"; fail "--verify says something else"; }
must verified 2 --verify --lora.rank 2
grep -q 'verified: the loss is .*, 28 gradients are equal' "$work/log" || { cat "$work/log"; fail "--verify of adapters says something else"; }

# What it would do.
"$tools/gw-train" --explain "$work/run.toml" --ranks 4 --mesh.tp 2 --checkpoint.folder "$work/a" >"$work/log"
for text in 'dp_shard 2, cp 1, tp 2' 'memory  *[0-9.]* MiB on rank' '8 rows of 32 tokens = 256 tokens' 'rows an epoch' \
  'continues after step 60'; do
  grep -q "$text" "$work/log" || { cat "$work/log"; fail "--explain does not say '$text'"; }
done

tail -n 1 "$work/a/loss.csv" | cut -d, -f5 | grep -q '[0-9]' || fail "the last row has no validation loss"

# Each refusal is one line and names what is wrong.
refused() { # CODE TEXT OPTIONS...
  local want=$1 text=$2 code=0
  shift 2
  run refused 2 "$@" || code=$?
  [ $code -eq "$want" ] || { cat "$work/log"; fail "$* ended with $code, not $want"; }
  grep -q "^gw-train: .*$text" "$work/log" || { cat "$work/log"; fail "$*: the text does not say '$text'"; }
}
refused 64 'mesh.tp = 0 is outside of 1..1000000' --mesh.tp 0
refused 64 'model.fp8_scaling is set, but model.fp8 names no layers' --model.fp8_scaling row
refused 64 'dp_shard 3.*2 ranks' --mesh.dp_shard 3
code=0
"$tools/gw-train" --explain "$work/run.toml" --ranks 4 --mesh.tp 8 --checkpoint.folder "$work/a" >"$work/log" 2>&1 || code=$?
[ $code -eq 64 ] && grep -q 'product 8, which does not divide --ranks 4' "$work/log" || fail "--explain of tp 8 over 4 ranks: $code"
refused 64 'sample.prompt has 3 bytes and sample.tokens is 63, but the model has max_position_embeddings 64' \
  --sample.prompt abc --sample.tokens 63
refused 64 'there is no option beta3' --optimizer.beta3 1
refused 64 'there is no optimizer "adam"' --optimizer.name adam
refused 74 'No such file' --data.train "$work/none.u8"
refused 74 'No such file or directory' --model.folder "$work/none"
cp -r "$work/a" "$work/flipped"
printf '\377' | dd of="$work/flipped/step-00000060/optimizer.safetensors" bs=1 seek=5000 conv=notrunc status=none
code=0
run flipped 2 --train.steps 61 || code=$?
[ $code -eq 65 ] || { cat "$work/log"; fail "a flipped byte ended with $code, not 65"; }
grep -q 'optimizer.safetensors' "$work/log" || { cat "$work/log"; fail "the damaged file is not named"; }
echo "gw-train works"
