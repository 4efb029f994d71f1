#!/usr/bin/env bash
# The example of a plan learns the same over 1, 2 and 4 ranks of tp, and shows how its parameters are split.
#   usage: parallel_plan_test.sh GANGRUN 07_PARALLEL_PLAN
set -euo pipefail
gangrun=$1 plan=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; cat "$work/log" >&2; exit 1; }

for ranks in 1 2 4; do
  "$gangrun" -n $ranks --no-prefix "$plan" >"$work/log" 2>&1 || fail "$ranks ranks"
  grep ' loss ' "$work/log" >"$work/loss$ranks"
  cmp -s "$work/loss1" "$work/loss$ranks" || fail "one rank: $(cat "$work/loss1"), but $ranks ranks"
  [ $ranks -eq 1 ] && continue
  for line in '0.weight +tp: Shard\(0\)' '0.bias +tp: Shard\(0\)' '1.gate_proj.weight +tp: Shard\(0\)' \
    '1.up_proj.weight +tp: Shard\(0\)' '1.down_proj.weight +tp: Shard\(1\)' '2.weight +tp: Shard\(1\)' \
    '2.bias +tp: Replicate'; do
    grep -qE "^$line" "$work/log" || fail "$ranks ranks show no line $line"
  done
done
[ "$(wc -l <"$work/loss1")" -eq 5 ] || fail "not 5 losses"
awk 'NR == 1 { first = $4 } END { exit !($4 < first / 20) }' "$work/loss1" || fail "it does not learn"
