#!/usr/bin/env bash
# The example of evaluation: the held-out loss falls, and the reloaded model has the same (the program compares all
# of its digits), over 1 and 2 ranks.
#   usage: evaluate_test.sh GANGRUN 10_EVALUATE
set -euo pipefail
gangrun=$1 evaluate=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; cat "$work/log" >&2; exit 1; }

for i in $(seq 1 500); do echo "Sentence $i says that $((i * 7)) is seven times $i."; done >"$work/text"
sed 's/ says / holds /' "$work/text" >"$work/held_out"
for ranks in 1 2; do
  "$gangrun" -n $ranks --no-prefix "$evaluate" "$work/text" "$work/held_out" "$work/model$ranks" >"$work/log" 2>&1 ||
    fail "$ranks ranks"
  awk 'NR == 1 { first = $5 } NR == 2 { second = $5 } NR == 3 { again = $4 }
       END { exit !(NR == 3 && second < first && again == second) }' "$work/log" || fail "$ranks ranks print other lines"
done
