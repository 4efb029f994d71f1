#!/usr/bin/env bash
# The quickstart's program refuses what it does not know, with what it does; it trains over each axis of the mesh, and says
# that text is not generated over cp and pp.
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
refused '--precision takes f32 or bf16 or f16, not "fp8"' --precision fp8
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
refused '--sequence-parallel takes off or on, not "1"' --sequence-parallel 1
refused '--context takes ring or all-gather or all-to-all, not "all"' --context all
refused '--lr takes a finite number, not "fast"' --lr fast
refused '--lr takes a finite number, not "1e-3x"' --lr 1e-3x
refused '--lr takes a finite number, not "nan"' --lr nan
refused '--lr takes a finite number, not "inf"' --lr inf
refused 'unknown option --speed' --speed 3
refused '--steps has no value' --steps
[ ! -e "$work/out" ] || fail "a refused run left $(ls "$work/out")"

# Every axis of the mesh trains.
for degree in tp cp pp; do
  "$gangrun" -n 2 "$train" --text "$work/text" --out "$work/out" --steps 1 --batch 4 --sequence 64 --dim 64 --layers 2 \
    --heads 2 --sample 1 --$degree 2 --sequence-parallel on --loss-parallel off --context all-gather --schedule gpipe \
    >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "--$degree 2 does not train"; }
  [ $degree = tp ] || grep -q "no sample: .*generate.*$degree is 2" "$work/log" ||
    { cat "$work/log" >&2; fail "--$degree 2: it is not said why there is no sample"; }
done
echo "what is wrong is refused"
