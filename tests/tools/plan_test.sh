#!/usr/bin/env bash
# gw-plan from outside. usage: plan_test.sh GW_PLAN
set -uo pipefail
plan=$1
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
bad=0
wrong() { echo "$*"; bad=1; }

# Prints what the papers say, and what it draws and writes is whole.
"$plan" schedule --name zbv --ranks 4 --microbatches 8 --svg "$work/z.svg" --csv "$work/z.csv" --fsdp 3 >"$work/out" ||
  wrong "zbv fails"
grep -q 'makespan 25.5, without bubble 24' "$work/out" || wrong "zbv: $(head -n 1 "$work/out")"
python3 -c 'import sys, xml.dom.minidom as m; d = m.parse(sys.argv[1]); assert len(d.getElementsByTagName("g")) == 192' \
  "$work/z.svg" || wrong "the picture has not one bar for each of 192 computations"
[ "$(wc -l <"$work/z.csv")" -eq 4 ] || wrong "the CSV file has not 4 rows"
# A file that was written is read again and is the same schedule.
"$plan" schedule --file "$work/z.csv" | grep 'makespan 25.5' >/dev/null || wrong "the CSV file is another schedule"

# A refusal is one line, and names what is wrong.
refuses() { # STATUS WORDS ARGUMENTS...
  local status=$1 words=$2; shift 2
  local out; out=$("$plan" "$@" 2>&1 >/dev/null); local got=$?
  [ $got -eq "$status" ] || wrong "$*: status $got, not $status"
  case $out in *"$words"*) ;; *) wrong "$*: \"$out\" does not say \"$words\"" ;; esac
}
refuses 1 'known are gpipe' schedule --name nothing
refuses 1 'at least 1' schedule --ranks 0
refuses 1 'cannot read' schedule --file "$work/none.csv"
refuses 1 'cannot write' schedule --svg "$work/none/x.svg"
sed 's/0W1,//' "$work/z.csv" >"$work/short.csv"
refuses 1 'comes after 7 of 8 weight halves' schedule --file "$work/short.csv"

# A model of 8 billion parameters, without its memory.
cat >"$work/config.json" <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
 "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false}
JSON
"$plan" model "$work/config.json" --gpus 8 --memory 80GiB --pp 1 --cp 1 >"$work/out" || wrong "model fails"
grep -q '^dp_shard 8 .* fits$' "$work/out" || wrong "8B does not fit on 8 ranks of 80 GiB: $(cat "$work/out")"
grep -q '^dp_replicate 8 .* no$' "$work/out" || wrong "8B, 16 bytes a parameter, fits one rank of 80 GiB"
grep -Eq '^[0-9]+ of 10 meshes fit 80GiB' "$work/out" || wrong "meshes are not counted: $(tail -n 1 "$work/out")"
"$plan" model "$work/config.json" --gpus 16 --tp 16 --dp-shard 1 >"$work/out"
grep -q '8 key and value heads, which tp 16 does not divide' "$work/out" || wrong "8 KV heads over tp 16 are not refused: $(cat "$work/out")"
"$plan" model "$work/config.json" --gpus 8 --pp 1 --cp 1 --tp 1 --dp-replicate 1 --cpu-offload >"$work/out"
grep -q '^dp_shard 8 .* on the host$' "$work/out" || wrong "what cpu_offload keeps on the host is not told: $(cat "$work/out")"
"$plan" model "$work/config.json" --gpus 8 --strategy no_shard --cpu-offload --dp-shard 8 >"$work/out"
grep -q 'cpu_offload is 1, but NO_SHARD' "$work/out" || wrong "cpu_offload without shards is not refused: $(cat "$work/out")"
refuses 2 '' model "$work/config.json" --ranks 8 --cpu-offload
activations() { "$plan" model "$work/config.json" --gpus 8 --pp 1 --cp 1 --tp 1 --dp-replicate 1 "$@" | grep '^dp_shard 8 '; }
activations --activation-offload | grep -q ' on the host$' || wrong "activations on the host are not told: $(activations --activation-offload)"
[ "$(activations | awk '{print $12 $13}')" != "$(activations --activation-offload | awk '{print $12 $13}')" ] || wrong "activation_offload leaves the device's bytes as they were"
refuses 2 '' model "$work/config.json" --ranks 8 --activation-offload
refuses 1 'cannot read' model "$work/none.json" --gpus 8
refuses 1 '--gpus or --ranks is missing' model "$work/config.json"
refuses 1 'no mesh of 8 ranks' model "$work/config.json" --gpus 8 --tp 3
refuses 1 '--memory is "much"' model "$work/config.json" --gpus 8 --memory much
refuses 2 '' model "$work/config.json" --gpus 8 --strategy all
refuses 2 '' schedule --name gpipe --file "$work/z.csv"
refuses 2 ''
exit $bad
