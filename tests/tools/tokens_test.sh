#!/usr/bin/env bash
# gw-tokens from outside. usage: tokens_test.sh GW_TOKENS
set -uo pipefail
tokens=$1
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
bad=0
wrong() { echo "$*"; bad=1; }

# Files, their indexes, and what is said of them.
printf 'one<end>two<end>three' >"$work/text"
"$tokens" --separator '<end>' --validation 0.3 --sequence 4 "$work/text" "$work/x.u16" >"$work/out" 2>"$work/err" ||
  wrong "it fails: $(cat "$work/err")"
[ ! -s "$work/err" ] || wrong "without a terminal it writes $(cat "$work/err")"
grep -q "x.u16: .* tokens of 2 documents" "$work/out" && grep -q "x.validation.u16: .* tokens of 1 documents" "$work/out" ||
  wrong "it says $(cat "$work/out")"
for name in x.u16 x.u16.documents x.u16.rows4 x.validation.u16 x.validation.u16.documents x.validation.u16.rows4; do
  [ -s "$work/$name" ] || wrong "$name is missing"
done
"$tokens" --separator '\n' "$work/text" "$work/y.u8" >/dev/null || wrong "an escape fails"
cmp -s "$work/text" "$work/y.u8" || wrong "y.u8 has other bytes than the text"
"$tokens" --index --sequence 16 "$work/x.u16" >"$work/out" || wrong "--index fails"
grep -q 'x.u16: 1 rows of 16 tokens' "$work/out" || wrong "--index says $(cat "$work/out")"

# A refusal is one line, and names what is wrong.
refuses() { # STATUS WORDS ARGUMENTS...
  local status=$1 words=$2; shift 2
  local out; out=$("$tokens" "$@" 2>&1 >/dev/null); local got=$?
  [ $got -eq "$status" ] || wrong "$*: status $got, not $status"
  case $out in *"$words"*) ;; *) wrong "$*: \"$out\" does not say \"$words\"" ;; esac
}
refuses 1 'give at least one text and the output' "$work/text"
refuses 1 'give either --lines or --separator' --lines --separator x "$work/text" "$work/z.u8"
refuses 1 '--index needs --sequence' --index "$work/x.u16"
refuses 1 'No such file' "$work/none" "$work/z.u8"
refuses 1 'nothing tells where the documents' --index --sequence 4 --format u8 "$work/text"
refuses 2 '' --sequence 0 "$work/text" "$work/z.u8"
refuses 2 ''
exit $bad
