#!/usr/bin/env bash
# The quickstart's program refuses what it does not know, with what it does; degrees that the library does not have yet are
# refused by the library, on every rank.
#   usage: trainer_refusals_test.sh GANGRUN LLAMA_TRAINER
set -euo pipefail
gangrun=$1 train=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
seq 1 2000 >"$work/text"

refused() { # TEXT OPTIONS...
  local text=$1 code=0
  shift
  "$train" --text "$work/text" --out "$work/out" "$@" >"$work/log" 2>&1 || code=$?
  [ $code -eq 2 ] || { cat "$work/log" >&2; fail "$* ended with code $code, not 2"; }
  grep -qxF -- "$text" "$work/log" || { cat "$work/log" >&2; fail "$* is not told \"$text\""; }
}
refused '--strategy takes full or grad or none, not "fast"' --strategy fast
refused '--precision takes f32 or bf16, not "fp8"' --precision fp8
refused '--recompute takes none or selective or full, not "some"' --recompute some
refused '--recompute takes none or selective or full, not ""' --recompute ''
for option in steps batch sequence microbatches sample dim layers heads kv-heads ffn seed dp-replicate dp-shard tp cp pp; do
  for wrong in 12x x 1.5 ''; do
    refused "--$option takes a whole number, not \"$wrong\"" --$option "$wrong"
  done
  "$train" --text "$work/text" --$option -2 >"$work/log" 2>&1 && fail "--$option -2 was accepted"
  grep -q "^--$option takes a number from .*, not -2\$" "$work/log" || fail "--$option -2: $(cat "$work/log")"
done
refused '--seed takes a number from 0 to 9223372036854775807, not 9223372036854775808' --seed 9223372036854775808
refused '--tp takes a number from -1 to 2147483647, not 4294967298' --tp 4294967298
refused '--steps takes a number from 1 to 2147483647, not 0' --steps 0
refused '--lr takes a finite number, not "fast"' --lr fast
refused '--lr takes a finite number, not "1e-3x"' --lr 1e-3x
refused '--lr takes a finite number, not "nan"' --lr nan
refused '--lr takes a finite number, not "inf"' --lr inf
refused 'unknown option --speed' --speed 3
refused '--steps has no value' --steps
[ ! -e "$work/out" ] || fail "a refused run left $(ls "$work/out")"

# No rank ends before all have been told: gangrun would end the others.
cat >"$work/rank.sh" <<'SH'
folder=$1 code=0
shift
"$@" >"$folder/log$RANK" 2>&1 || code=$?
echo $code >"$folder/code$RANK"
while [ ! -s "$folder/code0" ] || [ ! -s "$folder/code1" ]; do sleep 0.02; done
exit $code
SH
for degree in tp cp pp; do
  rm -f "$work"/code*
  if "$gangrun" -n 2 bash "$work/rank.sh" "$work" "$train" --text "$work/text" --out "$work/out" --$degree 2 \
    >"$work/log" 2>&1; then fail "--$degree 2 was accepted"; fi
  for rank in 0 1; do
    [ "$(cat "$work/code$rank")" = 1 ] || fail "rank $rank with --$degree 2 ended with code $(cat "$work/code$rank")"
    grep -q "NOT_SUPPORTED: .*$degree is 2; a model can be parallel over dp_replicate and dp_shard only" \
      "$work/log$rank" || { cat "$work/log$rank" >&2; fail "rank $rank is not told that --$degree 2 is not there"; }
  done
done
echo "what is wrong is refused"
