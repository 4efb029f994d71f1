#!/usr/bin/env bash
# The short training example learns the same on any number of ranks, writes the model, and says how it is used.
#   usage: train_llama_test.sh GANGRUN 02_TRAIN_LLAMA
set -euo pipefail
gangrun=$1 train=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; cat "$work/log" >&2; exit 1; }

for i in $(seq 1 500); do echo "Sentence $i says that $((i * 7)) is seven times $i."; done >"$work/text"
loss() { sed -n "s|^step $1/40  loss \([0-9.]*\) .*|\1|p" "$work/log"; } # of a step
for ranks in 1 2 4; do
  "$gangrun" -n $ranks --no-prefix "$train" "$work/text" "$work/model$ranks" 40 >"$work/log" 2>&1 || fail "$ranks ranks"
  for file in model.safetensors config.json; do
    [ -s "$work/model$ranks/$file" ] || fail "$ranks ranks wrote no $file"
  done
  grep -q '^sample: The .' "$work/log" || fail "$ranks ranks show no sample"
  first=$(loss 1) last=$(loss 40) one=${one:-$(loss 40)}
  awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < 0.6 * a) }' || fail "$ranks ranks: from $first to $last"
  awk -v a="$one" -v b="$last" 'BEGIN { exit !(a - b < 0.02 && b - a < 0.02) }' ||
    fail "$ranks ranks end at $last, one at $one"
done
# Each axis, and products of them. The first steps' losses are one rank's.
want=$(loss 1)
for mesh in "dp_replicate=2" "tp=2 sequence_parallel=1" "tp=2 loss_parallel=0 recompute=full" "cp=2" \
  "cp=2 context_method=all_to_all strategy=shard_grad_op" "pp=2 schedule=zbv microbatches=4" \
  "dp_shard=2 tp=2 recompute=selective" "tp=2 pp=2 microbatches=2" "cp=2 pp=2 stages_per_rank=2 schedule=interleaved-1f1b \
  microbatches=2"; do
  ranks=$(($(grep -oE '(dp_[a-z]+|cp|tp|pp)=[0-9]+' <<<"$mesh" | cut -d= -f2 | paste -sd'*')))
  # shellcheck disable=SC2086
  "$gangrun" -n $ranks --no-prefix "$train" "$work/text" "$work/model" 20 $mesh >"$work/log" 2>&1 || fail "$mesh"
  sed -n 's|^step 1/20  loss \([0-9.]*\) .*|\1|p' "$work/log" | grep -x "$want" >/dev/null || fail "$mesh: the first loss is not $want"
done
for wrong in "" "$work/text" "$work/absent $work/model" "$work/text $work/model 1 tp=x" "$work/text $work/model 1 xp=2" \
  "$work/text $work/model 1 recompute=some" "$work/text $work/model 1 tp"; do
  # shellcheck disable=SC2086
  if "$train" $wrong 2>"$work/log"; then fail "\"$wrong\" was accepted"; fi
  grep -q '^usage: ' "$work/log" || fail "\"$wrong\" is not told how it is used"
done
