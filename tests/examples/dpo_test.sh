#!/usr/bin/env bash
# The example of preference training: its loss is log(2) while the policy is the reference, and then falls,
# over 1 and 2 ranks.
#   usage: dpo_test.sh GANGRUN 11_DPO
set -euo pipefail
gangrun=$1 dpo=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; cat "$work/log" >&2; exit 1; }

for i in $(seq 1 500); do echo "Sentence $i says that $((i * 7)) is seven times $i."; done >"$work/text"
for ranks in 1 2; do
  "$gangrun" -n $ranks --no-prefix "$dpo" "$work/text" 20 >"$work/log" 2>&1 || fail "$ranks ranks"
  awk 'NR == 1 { first = $4 } { last = $4 } END { exit !(NR == 3 && first == 0.6931 && last < 0.6) }' "$work/log" ||
    fail "$ranks ranks print other losses"
done
