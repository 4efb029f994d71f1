#!/usr/bin/env bash
# The quickstart to its end on its own text: it learns as far as it says (2.4 nats a token on text that it has
# not seen, from 5.55) and leaves its files.
#   usage: quickstart_test.sh QUICKSTART BUILD_DIR
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

bash "$1" --no-install --built "$2" --out "$out" | tee "$out/log"
last=step-00000400
for file in loss.csv loss.svg metrics.jsonl sample.txt $last/model.safetensors $last/config.json $last/state.json; do
  [ -s "$out/$file" ] || fail "$file is empty or absent"
done
first=$(sed -n 2p "$out/loss.csv" | cut -d, -f4) held_out=$(tail -n 1 "$out/loss.csv" | cut -d, -f5)
awk -v l="$first" 'BEGIN { exit !(l > 5.5 && l < 5.6) }' || fail "the first loss is $first, not about ln 260"
awk -v l="$held_out" 'BEGIN { exit !(l > 0 && l <= 2.4) }' || fail "the held-out loss is '$held_out', not at most 2.4"
"$2/impl/tools/gw-checkpoint" verify "$out/$last" || fail "the checkpoint is not what was written"
