#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test.
#   usage: bash tests/run.sh [--help] [--no-install] [--build-dir DIR] [-L LABEL] [--changed] [--sanitize address|thread]
#     [--step build|tests|python|rust|julia|mixed|examples]
# Without --sanitize, it runs the whole suite, then the bindings' own (-L bindings: these alone). With it, it
# makes a build of its own with clang; "address" checks for undefined behaviour, too.
# --changed builds what changed and runs only the tests that have not passed with the same bytes, here or in
# another clone (tests/passes.py). GANGWAY_USE_PASSES=1 is the same.
# --step does one part of that, as .ci/run does, where the parts that it needs have been done.
# GANGWAY_TEST_ALL=1 also runs what repeats a fact on another device or in another way (tests/repeats.cmake
# lists it), and builds the benchmarks.
# GANGWAY_TEST_JOBS is how many programs run at a time. Most wait more than they compute, so it is twice the
# cores.
# Whatever failed is in failed.tsv of the build folder, with the command that runs it again (tests/failed.py), and
# is added to the file that GANGWAY_FAILED_LIST names.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/examples/packages.sh"
. "$top/examples/script.sh"

install=1 build='' label='' sanitize='' changed=0 step=''
while [ $# -gt 0 ]; do
  case $1 in --build-dir|-L|--sanitize|--step) need_value "$@" ;; esac
  case $1 in
    -h|--help) print_help "$0"; exit ;;
    --no-install) install=0; shift ;;
    --build-dir) build=$2; shift 2 ;;
    -L) label=$2; shift 2 ;;
    --changed) changed=1; shift ;;
    --sanitize) sanitize=$2; shift 2 ;;
    --step) step=$2; shift 2 ;;
    *) echo "unknown option $1 (--help lists all)" >&2; exit 2 ;;
  esac
done
case $step in ''|build|tests|python|rust|julia|mixed|examples) ;; *) echo "--step takes build, tests or a binding's, not $step" >&2; exit 2 ;; esac
# does STEP: whether this run is to do it.
does() { [ -z "$step" ] || [ "$step" = "$1" ]; }
case $sanitize in ''|address|thread) ;; *) echo "--sanitize takes address or thread" >&2; exit 2 ;; esac

# The variables of a launcher around this would make every test a rank of its gang.
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" "${!TORCHELASTIC_@}"

binding_packages=(git curl swig python3-venv python3-dev cargo rustc rustfmt rust-clippy bindgen ruby)
[ -z "${GANGWAY_TEST_ALL:-}" ] || binding_packages+=(librust-half-dev)
if [ $install -eq 1 ]; then
  install_packages "${build_packages[@]}" libgtest-dev libgmock-dev libcmocka-dev python3 clang libclang-rt-dev \
    castxml clang-format file jargon-text valgrind abigail-tools doxygen man-db mandoc \
    libopenmpi-dev openmpi-bin libmpich-dev mpich libfabric-dev iproute2 libboost-context-dev lld mold || exit 1
  if [ -z "$sanitize" ] && { [ -z "$label" ] || [ "$label" = bindings ] || [ "$label" = abi ]; }; then
    install_packages "${binding_packages[@]}" || exit 1
  fi
fi

# Want of memory is a status here, so the sanitizer must hand it on as the system would.
export ASAN_OPTIONS=${ASAN_OPTIONS:-allocator_may_return_null=1} TSAN_OPTIONS=${TSAN_OPTIONS:-allocator_may_return_null=1}
passed=0 failed=0 skipped=0 before=0
[ $changed -eq 0 ] || GANGWAY_USE_PASSES=1
every=(--all)
[ -z "${GANGWAY_USE_PASSES:-}" ] || every=()

# count NAME SECONDS PASSED FAILED SKIPPED BEFORE: says and adds counts; the last is how many had passed before.
count() {
  local known=''
  [ "$6" -eq 0 ] || known=", of them $6 before"
  echo "== $1: $3 passed$known, $4 failed, $5 skipped, $2 s"
  passed=$((passed + $3)) failed=$((failed + $4)) skipped=$((skipped + $5)) before=$((before + $6))
}

# build NAME DIR CMAKE-ARGUMENTS
build() {
  local name=$1 dir=$2 started=$SECONDS target=all
  shift 2
  echo "== $name: building into $dir"
  mkdir -p "$dir"
  if [ "$name" = thread ]; then target=tsan_${GANGWAY_TEST_ALL:+all_}tests; elif [ "$label" = fuzz ]; then target=fuzz_tests; fi
  if ! { cmake -S "$top" -B "$dir" -G Ninja -DGANGWAY_TESTS=ON -DGANGWAY_WERROR=ON "$@" >"$dir/build.log" 2>&1 &&
    with_progress "$dir/build.log" ninja -C "$dir" "$target"; }; then
    grep -E 'error|FAILED|Error' "$dir/build.log" | head -n 40
    tail -n 20 "$dir/build.log"
    echo "== $name: the build failed"
    return 1
  fi
  echo "== $name: built in $((SECONDS - started)) s"
}

# test_library NAME DIR CTEST-ARGUMENTS: adds its counts to passed, failed, skipped.
test_library() {
  local name=$1 dir=$2 select=("${@:3}") started=$SECONDS counts p f s b
  rm -f "$dir/failed.tsv"
  # oneDNN is not instrumented and its caches look like races, so threads are checked with our own products.
  if [ "$name" = thread ]; then export GANGWAY_CPU_ISA=portable; else unset GANGWAY_CPU_ISA; fi
  # The log of an earlier run would answer for what this one does not reach.
  rm -rf "$dir/results" "$dir"/Testing/Temporary/LastTest.log*; mkdir -p "$dir/results"
  python3 "$top/tests/passes.py" select "$dir" "${every[@]}" "${select[@]}" >"$dir/selected" || { failed=$((failed + 1)); return; }
  if grep -q . "$dir/selected"; then
    [ ${#every[@]} -gt 0 ] || select+=(-R "^($(paste -sd '|' "$dir/selected" | sed 's/[.+]/\\&/g'))\$")
    GTEST_OUTPUT="xml:$dir/results/" python3 "$top/tests/program_times.py" "$dir/program_times.tsv" \
      ctest --test-dir "$dir" --output-on-failure -j"${GANGWAY_TEST_JOBS:-$((2 * $(nproc)))}" "${select[@]}" || true
    python3 "$top/tests/passes.py" store "$dir"
    GANGWAY_FAILED_LIST=$dir/failed.tsv python3 "$top/tests/failed.py" ctest "$dir"
    python3 "$top/tests/slowest.py" "$dir"
  fi
  # GoogleTest's files count single tests; other programs count as one each.
  counts=$(python3 "$top/tests/count_results.py" "$dir") || { echo "== $name: no results"; failed=$((failed + 1)); return; }
  read -r p f s b <<<"$counts"
  count "$name" $((SECONDS - started)) "$p" "$f" "$s" "$b"
}

# build_and_test NAME DIR CTEST-ARGUMENTS -- CMAKE-ARGUMENTS
build_and_test() {
  local name=$1 dir=$2 select=()
  shift 2
  while [ "$1" != -- ]; do select+=("$1"); shift; done
  shift
  if does build && ! build "$name" "$dir" "$@"; then failed=$((failed + 1)); return; fi
  if does tests; then test_library "$name" "$dir" "${select[@]}"; fi
}

# test_binding NAME BUILD COMMAND...: a binding's own script; its last line says "N passed, N failed, N
# skipped".
test_binding() {
  local name=$1 dir=$2 log=$2/$1.log rows=$2/$1.failed.tsv started=$SECONDS key='' p='' f='' s=''
  rm -f "$rows"
  if ! JULIA=$julia python3 "$top/tests/passes.py" binding "$dir" "$name" >"$dir/$name.pass"; then
    failed=$((failed + 1)); echo "failed: $1: what it reads cannot be hashed"
    return
  fi
  read -r key p f s <"$dir/$name.pass"
  if [ -n "${GANGWAY_USE_PASSES:-}" ] && [ -n "$s" ]; then
    sed 1d "$dir/$name.pass"
    count "$name" $((SECONDS - started)) "$p" "$f" "$s" "$p"
    return
  fi
  shift 2
  echo "== $name: testing"
  GANGWAY_FAILED_LIST=$rows "$@" >"$log" 2>&1
  local status=$?
  read -r p f s < <(sed -n 's/.*\b\([0-9]\+\) passed, \([0-9]\+\) failed, \([0-9]\+\) skipped.*/\1 \2 \3/p' "$log" | tail -n 1)
  if [ -z "${s:-}" ]; then p=0 f=1 s=0; fi
  [ $status -eq 0 ] || [ "$f" -gt 0 ] || f=1
  if [ "$f" -gt 0 ]; then
    [ -s "$rows" ] || GANGWAY_FAILED_LIST=$rows python3 "$top/tests/failed.py" command "$name" "$f" "$@"
    tail -n 80 "$log"
    # As pytest, cargo, Julia's Test and the scripts name what failed.
    grep -E '^(FAILED|ERROR)[: ]|^test .* FAILED$|: (Test Failed|Error During Test) at |^not ok' "$log" | sed "s/^/failed: $name: /"
  else
    grep -i '^skip' "$log"
    grep -i '^skip' "$log" | JULIA=$julia python3 "$top/tests/passes.py" put "$dir" "$name" "$key" "$p" "$f" "$s"
  fi
  count "$name" $((SECONDS - started)) "$p" "$f" "$s" 0
}

test_bindings() {
  # Everything was installed: a missing language is a failure.
  if [ $install -eq 1 ]; then export GANGWAY_ALL_LANGUAGES=1; else export GANGWAY_NO_INSTALL=1; fi
  local dir=$1 julia beside p f s b
  # Debian 12 has no Julia of its own.
  julia=$(command -v julia || echo "$dir/julia/bin/julia")
  # Behind a lock, since steps may run beside each other.
  [ -x "$julia" ] || [ $install -eq 0 ] || flock "$dir/julia.lock" bash -c \
    '[ -x "$2/bin/julia" ] || bash "$1" "$2"' - "$top/bindings/julia/install-julia.sh" "$dir/julia" >"$dir/julia_install.log" 2>&1
  local of_julia=(test_binding julia "$dir" env JULIA="$julia" bash "$top/bindings/julia/test.sh" "$dir")
  if [ -z "$step" ]; then
    # Julia's run beside the others: they compile on one core for most of their time. A process group of its
    # own, which an interrupt ends.
    rm -f "$dir/julia.counts"
    set -m
    (
      passed=0 failed=0 skipped=0 before=0
      "${of_julia[@]}"
      echo "$passed $failed $skipped $before" >"$dir/julia.counts"
    ) >"$dir/julia.out" 2>&1 &
    beside=$!
    set +m
    trap 'kill -- -"$beside" 2>/dev/null; exit 130' INT TERM
  elif does julia; then
    "${of_julia[@]}"
  fi
  if does python; then test_binding python "$dir" bash "$top/bindings/python/test.sh" "$dir"; fi
  if does rust; then test_binding rust "$dir" bash "$top/bindings/rust/test.sh" "$dir"; fi
  if [ -z "$step" ]; then
    wait "$beside"
    trap - INT TERM
    cat "$dir/julia.out"
    read -r p f s b <"$dir/julia.counts" || p=0 f=1 s=0 b=0
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s)) before=$((before + b))
  fi
  if does mixed; then test_binding mixed "$dir" env JULIA="$julia" bash "$top/tests/bindings/mixed/test.sh" "$dir"; fi
  if does examples; then test_binding examples "$dir" env JULIA="$julia" bash "$top/tests/bindings/examples/test.sh" "$dir"; fi
}

select=() without=() all=OFF
[ -z "${GANGWAY_TEST_ALL:-}" ] || all=ON
[ -z "$label" ] || select+=(-L "$label")
[ -n "${GANGWAY_TEST_ALL:-}" ] || without+=('^repeat$')
clang=(-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DGANGWAY_CUDA=OFF)
if [ -n "$sanitize" ]; then
  # The thread sanitizer runs where ranks are threads: processes share nothing that it could see.
  if [ "$sanitize" = thread ] && [ -z "$label" ]; then
    if [ -n "${GANGWAY_TEST_ALL:-}" ]; then select+=(-L tsan); else select+=(-L '^tsan$'); fi
  fi
  [ "$sanitize" != address ] || without+=(noasan)
  [ ${#without[@]} -eq 0 ] || select+=(-LE "$(IFS='|'; echo "${without[*]}")")
  build_and_test "$sanitize" "${build:-$top/build-$sanitize}" "${select[@]}" -- "${clang[@]}" \
    -DGANGWAY_SANITIZE="$sanitize" -DGANGWAY_TEST_ALL=$all
else
  [ ${#without[@]} -eq 0 ] || select+=(-LE "$(IFS='|'; echo "${without[*]}")")
  # nvcc takes minutes for a module that only a GPU can run; tests/cuda_build.sh adds it to this build.
  cuda=OFF
  [ ! -e /dev/nvidiactl ] || cuda=AUTO
  build_and_test plain "${build:-$top/build-test}" "${select[@]}" -- -DGANGWAY_TEST_ALL=$all -DGANGWAY_BENCH=$all -DGANGWAY_CUDA=$cuda -DGANGWAY_CUDA_ARCHITECTURES=90a
  case $label,$step in ,build|,tests) ;; ,*|bindings,*) test_bindings "${build:-$top/build-test}" ;; esac
fi
case $step in
  build) [ "$failed" -eq 0 ]; exit ;;
  tests) rows=(failed.tsv) ;;
  '') rows=(failed.tsv {python,rust,julia,mixed,examples}.failed.tsv) ;;
  *) rows=("$step.failed.tsv") ;;
esac
used=${build:-$top/build-${sanitize:-test}}
[ -z "${GANGWAY_FAILED_LIST:-}" ] || cat "${rows[@]/#/$used/}" 2>/dev/null >>"$GANGWAY_FAILED_LIST"
[ $before -eq 0 ] || echo "$passed passed, of them $before before"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
