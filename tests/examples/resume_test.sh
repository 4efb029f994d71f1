#!/usr/bin/env bash
# The example of a run that continues: with a killed rank, and after a death of all ranks, the losses have the
# bits of a run without a death.
#   usage: resume_test.sh GANGRUN 09_RESUME
set -euo pipefail
gangrun=$1 resume=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; cat "$work/out" "$work/log" >&2; exit 1; }
start() { "$gangrun" -n 2 --no-prefix --timeout 120 "${@:2}" -- "$resume" "$work/text" "$work/$1" "${die[@]}" >"$work/out" 2>"$work/log"; }
# Every loss of the run is one of the undisturbed run's, to the last digit, and the last losses are equal.
same_losses() {
  tail -n 1 "$work/want" | grep -qxF "$(tail -n 1 "$work/out")" || fail "$1: the last loss is another"
  if grep '^step ' "$work/out" | grep -vxF -f "$work/want"; then fail "$1: a loss is none of the undisturbed run"; fi
}

for i in $(seq 1 500); do echo "Sentence $i says that $((i * 7)) is seven times $i."; done >"$work/text"
die=()
start whole || fail "a run without a death"
cp "$work/out" "$work/want"
[ "$(grep -cE '^step [0-9]+  loss [0-9]\.[0-9]{17}$' "$work/want")" -eq 20 ] || fail "not 20 losses with all digits"
[ ! -e "$work/whole/step-00000005" ] || fail "step 5 is kept beside the three newest"
for step in 10 15 20; do [ -s "$work/whole/step-000000$step/state.json" ] || fail "no checkpoint of step $step"; done

die=(13)
start killed --max-restarts 2 || fail "a run whose rank 1 dies"
grep -q '^gangrun: restart 1 of 2$' "$work/log" || fail "there was no restart"
grep -qE '^goes on after step (5|10)$' "$work/out" || fail "it does not go on from a checkpoint"
same_losses "a killed rank"

# Before the first checkpoint the run begins anew; without restarts the next start goes on.
die=(3)
start early --max-restarts 1 || fail "a death before the first checkpoint"
if grep -q '^goes on' "$work/out"; then fail "there was no checkpoint to go on from"; fi
same_losses "a death before the first checkpoint"
die=(17)
if start again; then fail "a killed rank without restarts ended well"; fi
die=()
start again || fail "the second start"
grep -qE '^goes on after step 1[05]$' "$work/out" || fail "the second start does not go on"
same_losses "a second start"

if "$resume" "$work/text" 2>"$work/log"; then fail "a missing folder was accepted"; fi
grep -q '^usage: ' "$work/log" || fail "a missing folder is not told how it is used"
