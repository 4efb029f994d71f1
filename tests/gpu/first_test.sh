#!/usr/bin/env bash
# The first hour on a GPU, over the software GPU: every item runs or says what is absent, and one that fails or hangs stops
# none of the others.
#   usage: first_test.sh BUILD_DIR
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
wrong() { echo "FAILED: $*"; bad=1; }

bash "$here/pack.sh" --emulated "$build" "$work/first.tar.gz" || exit 1
bash "$here/first.sh" --dry "$work/first.tar.gz" "$work/report" || wrong "first.sh over the software GPU"
[ -s "$work/report/logs-1-2-3-4.tar.gz" ] || wrong "no logs came back"
rows=$(grep -c '| \(passed\|absent\) |' "$work/report/report.md")
[ "$rows" -ge 28 ] || wrong "only $rows items passed or were absent"

# A program that fails in one item and hangs in the next: the others of the stage run.
mkdir "$work/broken"
tar -C "$work/broken" -xzf "$work/first.tar.gz"
printf '#!/bin/sh\ncase $* in *--only*) sleep 100 ;; *) exit 3 ;; esac\n' >"$work/broken/gpu-first/bin/gpu_kernels"
ITEM_SECONDS=5 bash "$here/first.sh" --dry "$work/broken/gpu-first" "$work/second" 3 >/dev/null && wrong "a failed item is not told by the status"
grep -q 'kernels beside their ceilings | FAILED (exit 3)' "$work/second/report.md" || wrong "the failed item is not in the report"
grep -q 'attention with cuDNN | FAILED (over 5 s)' "$work/second/report.md" || wrong "the item that hangs is not in the report"
grep -q "PyTorch's attention" "$work/second/report.md" || wrong "the items after it did not run"
[ $bad -eq 0 ] && echo "the first hour works over the software GPU"
exit $bad
