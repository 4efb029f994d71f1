#!/usr/bin/env bash
# A run that the environment tells to trace, and gw-trace on what it wrote. usage: trace_test.sh GANGRUN PIPELINE GW_TRACE
set -uo pipefail
gangrun=$1 pipeline=$2 trace=$3
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
bad=0
wrong() { echo "$*"; bad=1; }

GANGWAY_TRACE=$work/t "$gangrun" -n 2 -- "$pipeline" >"$work/out" 2>&1 || wrong "the run fails: $(cat "$work/out")"
"$trace" "$work/t" --pass 1 >"$work/out" || wrong "gw-trace fails"
grep -q 'events of 2 ranks' "$work/out" && grep -q 'pass 1 of the pipeline' "$work/out" || wrong "it says $(cat "$work/out")"
python3 - "$work/t" <<'PY' || wrong "the files are not as they should be"
import json, pathlib, sys, xml.dom.minidom
folder = pathlib.Path(sys.argv[1])
events = json.loads((folder / "trace.json").read_text())["traceEvents"]
parts = [json.loads((folder / f"rank-{r}.json").read_text()) for r in range(2)]
assert len(events) == sum(map(len, parts)) and {e["pid"] for e in events} == {0, 1}
spans = [e for e in events if e["ph"] == "X"]
assert spans and all(e["dur"] >= 0 for e in spans)
# The same clock: what one rank receives was sent before.
def of(pid, name):
    return [e for e in spans if e["pid"] == pid and e["name"] == name]
sent, used = of(0, "0SEND_F0"), of(1, "1F0")
assert len(sent) == len(used) > 1 and all(s["ts"] < u["ts"] for s, u in zip(sent, used))
begun = [e["id"] for e in events if e["ph"] == "b"]
assert len(set(begun)) == len(begun) and sorted(begun) == sorted(e["id"] for e in events if e["ph"] == "e")
# One bar for each computation of a pass on the two ranks.
passes = len(of(0, "end of the pass"))
computed = [e for e in spans if e["cat"] == "compute" and e["tid"] == 1]
bars = xml.dom.minidom.parse(str(folder / "pipeline.svg")).getElementsByTagName("g")
assert passes > 1 and len(bars) == len(computed) / passes, (passes, len(bars), len(computed))
PY

# A rank that was killed: its last line is cut, and what it wrote before is there. A rank that is missing is named.
sed -i '$d' "$work/t/rank-1.json"
truncate -s -30 "$work/t/rank-1.json"
"$trace" "$work/t" --json "$work/cut.json" --svg "$work/cut.svg" >/dev/null || wrong "a cut file is refused"
python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["traceEvents"]' "$work/cut.json" || wrong "cut.json is no JSON"
: >"$work/t/rank-1.json"
"$trace" "$work/t" >"$work/out"
grep -q 'left out: rank-1.json is empty' "$work/out" && grep -q 'rank 1 of 2 has no file here' "$work/out" ||
  wrong "an empty file is not left out: $(cat "$work/out")"
rm "$work/t/rank-1.json"
# A file that another run has left.
sed '2s/"run": /"run": 1/; 2s/"rank 0"/"rank 3"/; 2s/"pid": 0/"pid": 3/' "$work/t/rank-0.json" >"$work/t/rank-3.json"
touch -d '1 hour ago' "$work/t/rank-3.json"
"$trace" "$work/t" | grep 'left out: rank-3.json is of another run' >/dev/null || wrong "another run's file is not left out"
"$trace" "$work/t" | grep 'rank 1 of 2 has no file here' >/dev/null || wrong "a missing rank is not named"

refuses() { # STATUS WORDS ARGUMENTS...
  local status=$1 words=$2; shift 2
  local out; out=$("$trace" "$@" 2>&1 >/dev/null); local got=$?
  [ $got -eq "$status" ] || wrong "$*: status $got, not $status"
  case $out in *"$words"*) ;; *) wrong "$*: \"$out\" does not say \"$words\"" ;; esac
}
mkdir "$work/empty"
refuses 1 'no trace of a rank' "$work/empty"
refuses 1 'cannot read the folder' "$work/none"
refuses 1 'have not all ended a pass 99999' "$work/t" --pass 99999
echo '[{"name": "other"}]' >"$work/empty/rank-0.json"
refuses 1 'is no trace of a rank' "$work/empty"
refuses 2 ''

# Numbers that the tool loops over, allocates by or converts: none beyond its bounds, whatever a file says.
hostile() { # WORDS NAME PID ARGS [EVENT]
  printf '[\n{"name": "process_name", "ph": "M", "pid": %s, "args": %s}%s\n]\n' "$3" "$4" "${5:+,$'\n'$5}" >"$work/empty/rank-0.json"
  local out status
  out=$(timeout -s KILL 20 "$trace" "$work/empty" 2>&1); status=$?
  [ $status -le 1 ] || wrong "$2: status $status"
  case $out in *"$1"*) ;; *) wrong "$2: \"${out:0:300}\" does not say \"$1\"" ;; esac
}
for ranks in 9223372036854775807 18446744073709551615 -1 0 1048577 1.5 '"2"' null '[]'; do
  hostile 'is no trace of a rank: "ranks" is' "ranks $ranks" 0 "{\"name\": \"rank 0\", \"ranks\": $ranks, \"run\": 1}"
done
hostile '1048559 more ranks have no file here' "many ranks" 0 '{"ranks": 1048576, "run": 1}'
for pid in -1 1048576 9223372036854775807 1e300; do
  hostile 'is no trace of a rank: "pid" is' "pid $pid" "$pid" '{"ranks": 2, "run": 1}'
done
event() { # STAGE MICROBATCH TS DUR
  printf '{"name": "0F0", "cat": "compute", "ph": "X", "pid": 0, "tid": 1, "ts": %s, "dur": %s, "args": {"kind": "F", "stage": %s, "microbatch": %s}}' "$3" "$4" "$1" "$2"
}
for stage in -2 2147483648 9223372036854775807 0.5; do
  hostile '"stage" is' "stage $stage" 0 '{"ranks": 1, "run": 1}' "$(event "$stage" 0 1 1)"
done
hostile '"microbatch" is' "microbatch" 0 '{"ranks": 1, "run": 1}' "$(event 0 9223372036854775807 1 1)"
for time in 1e300 -1e300 1e16; do
  hostile 'microseconds' "ts $time" 0 '{"ranks": 1, "run": 1}' "$(event 0 0 "$time" 1)"
  hostile 'microseconds' "dur $time" 0 '{"ranks": 1, "run": 1}' "$(event 0 0 1 "$time")"
done

# A name that the tool chose itself may be a link which somebody else put there.
echo whole >"$work/target"
ln -sf "$work/target" "$work/t/trace.json"
refuses 1 'a symbolic link is not followed' "$work/t"
[ "$(cat "$work/target")" = whole ] || wrong "it writes through a link"
exit $bad
