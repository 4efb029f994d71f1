#!/usr/bin/env bash
# Runs that record the gradient norms of their parameters: gw-compare finds equal ones equal, also over other meshes and
# after a resume, and names the step and the parameter where another learning rate begins to show. Every step of
# these runs is computed twice, and replicas are compared.
#   usage: compare_test.sh BUILD_DIR
set -euo pipefail
tools=$1/impl/tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; cat "$work/log" >&2; exit 1; }

for i in $(seq 1 300); do echo "Sentence $i says that $((i * 7)) is seven times $i."; done >"$work/text.u8"
mkdir "$work/model"
cat >"$work/model/config.json" <<'CONFIG'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 32}
CONFIG
touch "$work/run.toml"
train() { # OUT RANKS OPTIONS...
  local out=$1 ranks=$2
  shift 2
  "$tools/gangrun" -n "$ranks" --no-prefix "$tools/gw-train" "$work/run.toml" --model.folder "$work/model" \
    --data.train "$work/text.u8" --data.sequence 16 --train.steps 6 --train.global_batch 4 --optimizer.lr 0.01 \
    --train.replay_every 1 --train.check_replicas_every 2 --metrics.norms_every 1 --metrics.peak_tflops 0.1 \
    --checkpoint.folder "$work/$out" "$@" >"$work/log" 2>&1 || fail "$out: $?"
}
compare() { "$tools/gw-compare" "$work/$1" "$work/$2" "${@:3}" >"$work/log" 2>&1; }

train one 1
train again 1
compare one again --tolerance 0 || fail "the same run twice"
grep -q '^6 steps are equal within 0$' "$work/log" || fail "not six steps"
train tp 2 --mesh.tp 2
train pp 2 --mesh.pp 2
for mesh in tp pp; do compare one $mesh --tolerance 1e-3 || fail "one rank and $mesh"; done

train other 1 --optimizer.lr 0.02
status=0; compare one other || status=$?
[ $status -eq 1 ] || fail "another learning rate: $status"
grep -q '^step 2 is the first that differs by more than 1e-06: loss ' "$work/log" || fail "not step 2"
grep -q '^  first   model.embed_tokens.weight: ' "$work/log" || fail "not the embedding"

train resumed 1 --train.steps 3
train resumed 1
compare one resumed --tolerance 0 || fail "a resumed run"

status=0; compare one model || status=$?
[ $status -eq 2 ] && grep -q 'has no norms.jsonl; gw-train writes it with metrics.norms_every = 1' "$work/log" || fail "no norms"

mkdir "$work/broken"
refuses() { # LINE WORDS
  echo "$1" >"$work/broken/norms.jsonl"
  status=0; compare one broken || status=$?
  [ $status -eq 2 ] && grep -qF "norms.jsonl: line 1 is no line of norms: $2" "$work/log" || fail "$1: $status"
}
refuses '{"step":1,"loss":2' 'it is not JSON at byte '
refuses '{"step":1,"norms":{}}' '"loss" is missing'
refuses '{"step":1,"loss":null,"norms":{}}' '"null" is no number'
refuses '{"step":1.5,"loss":1,"norms":{}}' '"1.5" is no step'
refuses '{"step":1,"loss":1,"norms":[]}' 'it is no JSON object'
echo '{"step":1,"loss":"nan","norms":{"b":1e3,"a":"-inf"}}' >"$work/broken/norms.jsonl"
compare broken broken --tolerance 0 || fail "numbers that JSON does not have"
echo "gw-compare names what differs"
