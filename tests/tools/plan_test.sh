#!/usr/bin/env bash
# gw-plan from outside. usage: plan_test.sh GW_PLAN
set -uo pipefail
plan=$1
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
bad=0
wrong() { echo "$*"; bad=1; }

# Prints what the papers say, and what it draws and writes is whole.
"$plan" schedule --name zbv --ranks 4 --microbatches 8 --svg "$work/z.svg" --csv "$work/z.csv" --fsdp 3 >"$work/out" ||
  wrong "zbv fails"
grep -q 'makespan 25.5, without bubble 24' "$work/out" || wrong "zbv: $(head -n 1 "$work/out")"
python3 -c 'import sys, xml.dom.minidom as m; d = m.parse(sys.argv[1]); assert len(d.getElementsByTagName("g")) == 192' \
  "$work/z.svg" || wrong "the picture has not one bar for each of 192 computations"
[ "$(wc -l <"$work/z.csv")" -eq 4 ] || wrong "the CSV file has not 4 rows"
# A file that was written is read again and is the same schedule.
"$plan" schedule --file "$work/z.csv" | grep -q 'makespan 25.5' || wrong "the CSV file is another schedule"

# A refusal is one line, and names what is wrong.
refuses() { # STATUS WORDS ARGUMENTS...
  local status=$1 words=$2; shift 2
  local out; out=$("$plan" "$@" 2>&1 >/dev/null); local got=$?
  [ $got -eq "$status" ] || wrong "$*: status $got, not $status"
  case $out in *"$words"*) ;; *) wrong "$*: \"$out\" does not say \"$words\"" ;; esac
}
refuses 1 'known are gpipe' schedule --name nothing
refuses 1 'at least 1' schedule --ranks 0
refuses 1 'cannot read' schedule --file "$work/none.csv"
refuses 1 'cannot write' schedule --svg "$work/none/x.svg"
sed 's/0W1,//' "$work/z.csv" >"$work/short.csv"
refuses 1 'comes after 7 of 8 weight halves' schedule --file "$work/short.csv"
refuses 2 '' schedule --name gpipe --file "$work/z.csv"
refuses 2 ''
exit $bad
