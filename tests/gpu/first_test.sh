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
bash "$here/first.sh" --dry "$work/first.tar.gz" "$work/report"
status=$? # 75: a busy machine left items out
[ $status -eq 0 ] || [ $status -eq 75 ] || wrong "first.sh over the software GPU"
[ -s "$work/report/logs-1-2-3-4.tar.gz" ] || wrong "no logs came back"
rows=$(grep -c '| \(passed\|absent\) |' "$work/report/report.md")
[ "$rows" -ge 28 ] || wrong "only $rows items passed or were absent"

# A program that fails in one item and hangs in the next: the others of the stage run.
mkdir "$work/broken"
tar -C "$work/broken" -xzf "$work/first.tar.gz"
printf '#!/bin/sh\ncase $* in *--only*) sleep 100 ;; *) exit 3 ;; esac\n' >"$work/broken/gpu-first/bin/gpu_kernels"
ITEM_SECONDS=5 bash "$here/first.sh" --dry "$work/broken/gpu-first" "$work/second" 3 >/dev/null
[ $? -eq 1 ] || wrong "a failed item is not told by the status"
grep -q 'kernels beside their ceilings | FAILED (exit 3)' "$work/second/report.md" || wrong "the failed item is not in the report"
grep -q 'attention with cuDNN | FAILED (over 5 s)' "$work/second/report.md" || wrong "the item that hangs is not in the report"
grep -q "PyTorch's attention" "$work/second/report.md" || wrong "the items after it did not run"
# A stage that has less time than its items may take: they are left out by name, and none is begun and cut.
STAGE_SECONDS=2 ITEM_SECONDS=3 bash "$here/first.sh" --dry "$work/broken/gpu-first" "$work/short" 3 >/dev/null
[ $? -eq 75 ] || wrong "items that are left out are not told by the status"
# Of a failed item and items that are left out, the status tells the failure.
STAGE_SECONDS=3 ITEM_SECONDS=3 bash "$here/first.sh" --dry "$work/broken/gpu-first" "$work/both" 3 >/dev/null
status=$?
[ $status -eq 1 ] && grep -q '^left out for want of time: ' "$work/both/report.md" || wrong "a failure beside items that are left out gives $status"
[ "$(grep -c '| left out | 0 | it may take 3 s, and' "$work/short/report.md")" -eq 4 ] || wrong "not every item without time is left out"
grep -q '^left out for want of time: kernels beside their ceilings; .*; counters of the eight longest$' "$work/short/report.md" ||
  wrong "the items that are left out are not named"
# A library that a program needs and this machine does not have. CUDA's own are the other machine's.
mkdir "$work/ldd"
printf '#!/bin/sh\n/usr/bin/ldd "$@"\necho "libgone.so.1 => not found"\necho "libcuda.so.1 => not found"\n' >"$work/ldd/ldd"
chmod +x "$work/ldd/ldd"
PATH=$work/ldd:$PATH bash "$here/pack.sh" --emulated "$build" "$work/lacks.tar.gz" 2>"$work/said" && wrong "an archive that lacks a library is made"
grep -q 'would lack it: libgone.so.1$' "$work/said" || wrong "the library that is not found is not named: $(cat "$work/said")"
# Programs that end well and have done nothing, and tools that saw nothing: no item passes that judges their
# words.
hollow=$work/broken/gpu-first/bin
mkdir "$work/tools"
for name in "$hollow"/*; do [ -d "$name" ] || printf '#!/bin/sh\necho "[  PASSED  ] 0 tests."\n' >"$name"; done
printf '#!/bin/sh\necho "1 nan nan"\n' >"$hollow/gpu_steps"
printf '#!/bin/sh\necho "toy gangway was lost: its process ended"\n' >"$hollow/train"
printf '#!/bin/sh\nshift 6\nexec "$@"\n' >"$work/tools/compute-sanitizer"
printf '#!/bin/sh\necho "==ERROR== ERR_NVGPUCTRPERM"\n' >"$work/tools/ncu"
chmod +x "$hollow"/* "$work"/tools/*
PATH=$work/tools:$PATH bash "$here/first.sh" --dry "$work/broken/gpu-first" "$work/third" >/dev/null && wrong "programs that do nothing are not told"
for name in facts "norm on the GPU" "products in FP8 on the GPU" "f64 like the CPU" "memcheck of norm" "racecheck of attention" \
  "counters of the eight longest" toy; do
  grep -q "| $name | FAILED" "$work/third/report.md" || wrong "\"$name\" passes with programs that do nothing"
done
# The kernels that Nsight Compute names with their namespaces.
printf '#!/bin/sh\ncase "$*" in *--csv*) printf "\\"ID\\",\\"Kernel Name\\",\\"Metric Value\\"\\n\\"0\\",\\"void a::<unnamed>::norm_kernel<int>(a::(anonymous namespace)::P)\\",\\"1,200\\"\\n" ;; *) echo "Duration 7: $*" ;; esac\n' >"$work/tools/ncu"
PATH=$work/tools:$PATH bash "$here/first.sh" --dry "$work/broken/gpu-first" "$work/fourth" 3 >/dev/null
grep -q 'counters of the eight longest | passed .*regex:norm_kernel ' "$work/fourth/report.md" || wrong "the longest kernels are not found by their names"
[ $bad -eq 0 ] && echo "the first hour works over the software GPU"
exit $bad
