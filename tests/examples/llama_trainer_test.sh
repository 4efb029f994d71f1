#!/usr/bin/env bash
# The quickstart's program: learns from a text, writes all its files, gives the same losses for the same seed and mesh, and
# refuses what is wrong with a text.
#   usage: llama_trainer_test.sh GANGRUN LLAMA_TRAINER
set -euo pipefail
gangrun=$1 train=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

# A text with something to learn: numbered sentences.
for i in $(seq 1 3000); do echo "Sentence $i says that $((i * 7)) is seven times $i."; done >"$work/text"
small=(--text "$work/text" --dim 32 --layers 2 --heads 2 --sequence 32 --batch 8 --steps 60 --sample 40)

run() { # OUT RANKS OPTIONS...
  local out=$work/$1 ranks=$2
  shift 2
  "$gangrun" -n "$ranks" --no-prefix "$train" "${small[@]}" --out "$out" "$@" >"$out.log" 2>&1 ||
    { cat "$out.log" >&2; fail "$out did not run"; }
}
last_loss() { tail -n 1 "$work/$1/loss.csv" | cut -d, -f2; }
close() { awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; exit !(d < t && -d < t) }'; }

run a 2
run again 2
cmp "$work/a/loss.csv" "$work/again/loss.csv" || fail "the same seed and mesh gave other losses"
cmp "$work/a/model.safetensors" "$work/again/model.safetensors" || fail "the same seed and mesh gave another model"
for file in loss.csv loss.svg sample.txt model.safetensors config.json; do
  [ -s "$work/a/$file" ] || fail "$file is empty or absent"
done
awk -v l="$(last_loss a)" 'BEGIN { exit !(l < 3.5) }' || fail "the last loss is $(last_loss a), it did not learn"
grep -q 'step 1/60 .*tokens/s .*left' "$work/a.log" || fail "no progress line"

run one 1
close "$(last_loss a)" "$(last_loss one)" 0.01 || fail "two ranks end at $(last_loss a), one at $(last_loss one)"
run bf16 2 --precision bf16 --recompute selective --strategy grad
close "$(last_loss a)" "$(last_loss bf16)" 0.1 || fail "bf16 ends at $(last_loss bf16), f32 at $(last_loss a)"
run f16 2 --precision f16 --recompute selective --strategy grad
close "$(last_loss a)" "$(last_loss f16)" 0.1 || fail "f16 ends at $(last_loss f16), f32 at $(last_loss a)"
run hybrid 4 --dp-replicate 2 --microbatches 2
close "$(last_loss a)" "$(last_loss hybrid)" 0.01 || fail "2 x 2 ranks end at $(last_loss hybrid), 2 at $(last_loss a)"

if "$gangrun" -n 2 --no-prefix "$train" "${small[@]}" --dp-shard 3 --out "$work/x" >"$work/refused" 2>&1; then
  fail "3 shards over 2 ranks were accepted"
fi
grep -q 'dp_shard 3.*root gang has 2 ranks' "$work/refused" || { cat "$work/refused"; fail "the refusal does not say why"; }
echo "the trainer works"
