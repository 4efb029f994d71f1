#!/usr/bin/env bash
# The first hour on a GPU: is what was built without one right, and how fast is it? Needs no network.
#   usage: tests/gpu/first.sh [--dry] ARCHIVE REPORT_DIR [STAGE]...
# ARCHIVE is pack.sh's, or the folder that it has. Stages: 1 facts and tests, 2 sanitizers, 3 kernels, 4 training; all of
# them without one. Each ends within 9 minutes: an item is begun only while the stage has all the time left
# that the item may take, so the last ones of a slow stage are left out, by name, and none is cut by the
# stage's end. An item that fails, hangs or is absent never stops the others. REPORT_DIR gets report.md, which
# grows as the items end, and at the end logs-STAGES.tar.gz, with what each item printed. The status is 1 if an item
# failed, else 75 if one was left out, else 0.
# --dry: the archive has the software GPU, and everything is small.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/programs.sh"
dry=0
if [ "${1:-}" = --dry ]; then dry=1 operation_tests=(activation norm rope swiglu); shift; fi
[ $# -ge 2 ] || { sed -n '2,10p' "$0" >&2; exit 2; }
archive=$(realpath "$1") report_dir=$(realpath -m "$2")
shift 2
stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(1 2 3 4)
stage_seconds=${STAGE_SECONDS:-540} # of each stage

work=$(mktemp -d)
logs=$work/logs
keep_logs() {
  tar -C "$work" -czf "$report_dir/logs-$(IFS=-; echo "${stages[*]}").tar.gz" logs
  rm -rf "$work"
}
trap keep_logs EXIT
trap 'exit 1' TERM INT
mkdir -p "$report_dir" "$logs"
report=$report_dir/report.md
if [ -d "$archive" ]; then ln -s "$archive" "$work/gpu-first"; else "${GANGWAY_BENCH_PYTHON:-python3}" -m tarfile -e "$archive" "$work" || exit 1; fi
bin=$work/gpu-first/bin

# The libraries of CUDA, NCCL and cuDNN: those of the Python that has PyTorch, and the toolkit's.
python=${GANGWAY_BENCH_PYTHON:-python3}
libraries=$work/gpu-first/lib
if [ $dry -eq 0 ]; then
  for folder in $("$python" -c 'import glob, site
for s in site.getsitepackages():
    print(*glob.glob(s + "/nvidia/*/lib"))' 2>/dev/null) /usr/local/cuda/lib64; do
    [ -d "$folder" ] && libraries+=:$folder
  done
fi
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} GANGWAY_MODULES=$work/gpu-first/lib
export PATH=$PATH:/usr/local/cuda/bin # compute-sanitizer, ncu
export GANGWAY_TEST_DATA=$here/../data GANGWAY_BENCH_PYTHON=$python

# line TEXT...: into the report and onto the terminal.
line() { printf '%s\n' "$@" | tee -a "$report"; }

passed=0 failed=0 absent=0 left_out=()
begin_stage() { # NUMBER TITLE
  line "" "## Stage $1: $2" "" "| item | result | seconds | says |" "|---|---|---|---|"
  stage=$1 stage_end=$((SECONDS + stage_seconds))
}

# item NAME LIMIT COMMAND...: at most LIMIT seconds ($ITEM_SECONDS, if it is set); not at all if the stage has
# less left.
item() {
  local name=$1 limit=$2 log started=$SECONDS status left says result
  shift 2
  log=$logs/$stage-${name//[^A-Za-z0-9_.-]/_}.log
  left=$((stage_end - SECONDS))
  limit=${ITEM_SECONDS:-$limit}
  if [ "$limit" -gt "$left" ]; then
    left_out+=("$name")
    line "| $name | left out | 0 | it may take $limit s, and $((left > 0 ? left : 0)) s are left of the stage's $stage_seconds |"
    return
  fi
  timeout -k 10 "$limit" "$@" >"$log" 2>&1
  status=$?
  says=$(grep -v '^$' "$log" | tail -n 1 | tr '|' '/' | cut -c 1-160)
  case $status in
    0) result=passed passed=$((passed + 1)) ;;
    77) result=absent absent=$((absent + 1)) ;;
    124 | 137) result="FAILED (over $limit s)" failed=$((failed + 1)) ;;
    *) result="FAILED (exit $status)" failed=$((failed + 1)) ;;
  esac
  [ "$(stat -c %s "$log")" -le 262144 ] || { tail -c 262144 "$log" >"$log.end" && mv "$log.end" "$log"; } # 16 MiB come back
  line "| $name | $result | $((SECONDS - started)) | $says |"
}

# The items that are more than a program. A limit needs a program, so they are a script: call FUNCTION...
call=$work/call
cat >"$call" <<END
#!/usr/bin/env bash
set -uo pipefail
bin="$bin" logs="$logs" dry=$dry python="$python" said="$work/said"
END
cat >>"$call" <<'END'
# hear COMMAND...: what it prints goes into $said as well, so that the log has the words of a program that
# hangs, too.
hear() { "$@" 2>&1 | tee "$said"; }
# wrong WORDS...: the last line of an item that fails, which the report shows.
wrong() { echo "$*"; return 1; }
some_tests_ran() { grep -q '\[  PASSED  \] [1-9]' "$said" || wrong "no test ran"; }
# on_gpu PROGRAM...: a test program, with a part of its tests in a dry run. No test at all is a failure.
on_gpu() {
  local shards=()
  [ $dry -eq 0 ] || shards=(GTEST_TOTAL_SHARDS=40 GTEST_SHARD_INDEX=0)
  hear env GANGWAY_TEST_DEVICE=cuda GANGWAY_CUDNN=0 "${shards[@]}" "$bin/$1" "${@:2}" && some_tests_ran
}
# Of a program that takes minutes on the software GPU, nothing in a dry run.
on_real_gpu() {
  [ $dry -eq 0 ] || { echo "it takes minutes on the software GPU"; return 77; }
  on_gpu "$@"
}
# gpu_steps, with a small model in a dry run, because a busy machine takes a minute for two steps of the other
# one.
steps_of() { # DEVICE DTYPE STEPS WORDS...
  local small=()
  [ $dry -eq 0 ] || small=(layers=1 dim=32 heads=2 kv_heads=1 ffn=48 vocab=64 sequence=16 batch=1)
  "$bin/gpu_steps" "$@" "${small[@]}"
}
# Twenty steps with the operations started one by one print what they print as graphs.
graphs_equal() {
  local steps=20
  [ $dry -eq 0 ] || steps=2
  GANGWAY_CUDA_GRAPHS=1 steps_of cuda "$1" $steps 2>&1 >"$logs/graphs-1" | tee "$said" || return 1
  ! grep -q 'run one by one' "$said" || wrong "a capture failed, so that no graph was compared" || return 1
  GANGWAY_CUDA_GRAPHS=0 steps_of cuda "$1" $steps >"$logs/graphs-0" &&
    cmp "$logs/graphs-0" "$logs/graphs-1" && echo "$steps steps in $1: all bits are equal"
}
# Losses and norms beside the CPU's: equal but for RELATIVE.
like_the_cpu() { # DTYPE RELATIVE
  local steps=20
  [ $dry -eq 0 ] || steps=2
  steps_of cuda "$1" $steps >"$logs/cuda-$1" && steps_of cpu "$1" $steps >"$logs/cpu-$1" &&
    paste "$logs/cuda-$1" "$logs/cpu-$1" | awk -v dtype="$1" -v most="$2" '
      function away(a, b) { d = a - b; if (d < 0) d = -d; return d / (b < 0 ? -b : b) }
      /nan|inf/ { print "line " NR " has no number: " $0; infinite = 1 } # comparisons with NaN differ between programs
      { for (i = 2; i < 4; ++i) if (away($i, $(i + 3)) > worst) worst = away($i, $(i + 3)); lines++ }
      END { if (!infinite) printf "%d steps in %s, worst relative difference %.3g, at most %g\n", lines, dtype, worst, most
        exit !(lines > 0 && !infinite && worst <= most) }'
}
# The time of a step, graphs on and off.
graph_times() { # WORDS...
  local steps=50 setting settings=(1 0 1 0)
  [ $dry -eq 0 ] || steps=1 settings=(1 0)
  for setting in "${settings[@]}"; do
    echo "GANGWAY_CUDA_GRAPHS=$setting:"
    GANGWAY_CUDA_GRAPHS=$setting steps_of cuda bf16 $steps "$@" >/dev/null || return 1
  done
}
sanitize() { # TOOL PROGRAM FILTER
  command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not here"; return 77; }
  hear env GANGWAY_TEST_DEVICE=cuda GANGWAY_CUDNN=0 compute-sanitizer --tool "$1" --error-exitcode 9 --launch-timeout 300 "$bin/$2" \
    --gtest_filter="$3" || return 1
  some_tests_ran || return 1
  grep -q 'SUMMARY: 0 \(errors\|hazards\)' "$said" || wrong "the sanitizer does not say that it found nothing"
}
# Kernels by the time that they take, then the counters of the eight longest.
profile() {
  command -v ncu >/dev/null || { echo "ncu is not here"; return 77; }
  local -x GANGWAY_CUDNN=0
  # Without these, times have units of their own, and names have their namespaces and parameters.
  local plain=(--print-units base --print-kernel-base function)
  ncu --clock-control none "${plain[@]}" --metrics gpu__time_duration.sum --csv "$bin/gpu_kernels" --once >"$logs/ncu-times.csv" || return 1
  local longest
  longest=$("$python" - "$logs/ncu-times.csv" <<'PY'
import csv, re, sys
lines = [l for l in open(sys.argv[1]) if l.startswith('"')]
times = {}
for row in csv.DictReader(lines):
    name = re.sub(r"<unnamed>::|\(anonymous namespace\)::", "", row["Kernel Name"])
    name = re.split(r"[<(]", name)[0].split("::")[-1].split()[-1]
    times[name] = max(times.get(name, 0), float(row["Metric Value"].replace(",", "")))
print("|".join(sorted(times, key=times.get)[-8:]))
PY
) || return 1
  [ -n "$longest" ] || wrong "ncu saw no kernel: $(tail -n 1 "$logs/ncu-times.csv")" || return 1
  echo "the longest: $longest"
  hear ncu --clock-control none --set basic --kernel-name "regex:$longest" "$bin/gpu_kernels" --once || return 1
  grep -q 'Duration' "$said" || wrong "ncu counted nothing"
}
facts() {
  nvidia-smi || echo "nvidia-smi is not here"
  nvcc --version 2>/dev/null | tail -n 2
  "$python" -c 'import torch; print("PyTorch", torch.__version__, torch.cuda.is_available() and torch.cuda.get_device_name())' || true
  hear "$bin/gw-info" || return 1
  grep -q '^operations on cuda' "$said" || wrong "gw-info has no device \"cuda\": see its log"
}
kernels() {
  local words=()
  [ $dry -eq 0 ] || words=(--divide 64)
  "$bin/gpu_kernels" "${words[@]}" "$@"
}
torch_kernels() {
  "$python" -c 'import torch' 2>/dev/null || { echo "PyTorch is not here"; return 77; }
  local words=()
  [ $dry -eq 0 ] || words=(64)
  "$python" "$1/torch_kernels.py" "${words[@]}"
}
train() { # PRESET ROUNDS
  [ -x "$bin/train" ] || { echo "the build has no benchmarks"; return 77; }
  hear "$bin/train" --device cuda --preset "$1" --rounds "$2" --steps "${3:-5}" --json "$logs/train-$1.json" || return 1
  ! grep -q '^[^|]*gangway.*\(was lost\|ABSENT\): ' "$said" || wrong "$(grep -m 1 'gangway.*\(was lost\|ABSENT\): ' "$said")"
}
"$@"
END
chmod +x "$call"

run_1() {
  begin_stage 1 "facts and tests"
  item "facts" 60 "$call" facts
  local name
  for name in "${operation_tests[@]}"; do item "$name on the GPU" 120 "$call" on_gpu "${name}_test"; done
  item "products in FP8 on the GPU" 120 "$call" on_gpu fp8_test --gtest_filter='Fp8Codes.*:Fp8Linear.EveryDevice*'
  item "attention by cuDNN beside ours" 120 "$call" on_real_gpu attention_gpu_test
  item "five steps equal the reference" 120 "$call" on_real_gpu train_parity_test --gtest_filter='*OneRank*'
  item "f64 like the CPU" 60 "$call" like_the_cpu f64 1e-10
  item "f32 like the CPU" 60 "$call" like_the_cpu f32 1e-3
  item "bf16 like the CPU" 60 "$call" like_the_cpu bf16 5e-2
  for name in f32 bf16; do item "graphs change no bit, $name" 60 "$call" graphs_equal $name; done
  item "graphs, small Llama" 60 "$call" graph_times
  [ $dry -eq 1 ] || item "graphs, 512 x 8" 60 "$call" graph_times dim=512 layers=8 heads=8 ffn=1408 sequence=512 batch=1
  item "every call of NCCL, by one rank" 90 "$bin/gpu_nccl"
}

run_2() {
  begin_stage 2 "sanitizers"
  local name filter='*Forward*:*BackwardMatches*'
  for name in norm swiglu rope optimizer head_loss attention; do
    item "memcheck of $name" 80 "$call" sanitize memcheck ${name}_test '*'
  done
  for name in norm attention; do
    item "racecheck of $name" 80 "$call" sanitize racecheck ${name}_test "$filter"
    item "synccheck of $name" 60 "$call" sanitize synccheck ${name}_test "$filter"
    item "initcheck of $name" 60 "$call" sanitize initcheck ${name}_test "$filter"
  done
}

run_3() {
  begin_stage 3 "kernels"
  item "kernels beside their ceilings" 180 env GANGWAY_CUDNN=0 "$call" kernels
  item "attention with cuDNN" 60 env GANGWAY_CUDNN=auto "$call" kernels --only attention
  item "PyTorch's attention and products" 120 "$call" torch_kernels "$here"
  item "counters of the eight longest" 200 "$call" profile
}

run_4() {
  begin_stage 4 "training beside PyTorch"
  local gib=0
  gib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | head -n 1 | awk '{print int($1 / 1024)}')
  item "toy" 120 "$call" train toy 1
  [ $dry -eq 1 ] || item "0.5B" 180 "$call" train 0.5B 2
  [ $dry -eq 1 ] || item "1.5B" 200 "$call" train 1.5B 2
  if [ "${gib:-0}" -ge 120 ]; then item "8B" 260 "$call" train 8B 1 3; fi
}

[ -e "$report" ] || line "# The first hour on a GPU" "" "$(date -u +%Y-%m-%d), $(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo 'no clone'), $(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || true)"
for stage in "${stages[@]}"; do
  case $stage in
    1 | 2 | 3 | 4) "run_$stage" ;;
    *) echo "stages are 1, 2, 3 and 4, not $stage" >&2; failed=$((failed + 1)) ;;
  esac
done
for log in kernels_beside_their_ceilings attention_with_cuDNN PyTorch_s_attention_and_products toy 0.5B 1.5B 8B; do
  for file in "$logs"/*-"$log".log; do
    [ ! -e "$file" ] || { line "" "### $(basename "$file" .log)" "" '```'; tee -a "$report" <"$file"; line '```'; }
  done
done
line "" "$passed passed, $failed failed, $absent absent, ${#left_out[@]} left out"
[ ${#left_out[@]} -eq 0 ] || line "" "left out for want of time: $(printf '%s; ' "${left_out[@]}" | sed 's/; $//')"
[ "$failed" -eq 0 ] || exit 1
[ ${#left_out[@]} -eq 0 ] || exit 75
