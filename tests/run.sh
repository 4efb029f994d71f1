#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test.
#   usage: bash tests/run.sh [--help] [--no-install] [--build-dir DIR] [-L LABEL] [--changed] [--sanitize address|thread]
# Without --sanitize, it runs the whole suite, then the bindings' own (-L bindings: these alone). With it, it
# makes a build of its own with clang; "address" checks for undefined behaviour, too.
# --changed builds what changed and runs only the tests that the change can reach: those that are newer than
# their last pass in this build folder (tests/reached.py).
# GANGWAY_TEST_ALL=1 also runs what repeats a fact on another device or in another way (tests/repeats.cmake
# lists it), and builds the benchmarks.
# GANGWAY_TEST_JOBS is how many programs run at a time. Most wait more than they compute, so it is twice the
# cores.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/examples/packages.sh"
. "$top/examples/script.sh"

install=1 build='' label='' sanitize='' changed=0
while [ $# -gt 0 ]; do
  case $1 in --build-dir|-L|--sanitize) need_value "$@" ;; esac
  case $1 in
    -h|--help) print_help "$0"; exit ;;
    --no-install) install=0; shift ;;
    --build-dir) build=$2; shift 2 ;;
    -L) label=$2; shift 2 ;;
    --changed) changed=1; shift ;;
    --sanitize) sanitize=$2; shift 2 ;;
    *) echo "unknown option $1 (--help lists all)" >&2; exit 2 ;;
  esac
done
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

# build_and_test NAME DIR CTEST-ARGUMENTS -- CMAKE-ARGUMENTS: adds its counts to passed, failed, skipped.
# Want of memory is a status here, so the sanitizer must hand it on as the system would.
export ASAN_OPTIONS=${ASAN_OPTIONS:-allocator_may_return_null=1} TSAN_OPTIONS=${TSAN_OPTIONS:-allocator_may_return_null=1}
passed=0 failed=0 skipped=0
build_and_test() {
  local name=$1 dir=$2; shift 2
  local select=()
  while [ "$1" != -- ]; do select+=("$1"); shift; done
  shift
  local started=$SECONDS
  echo "== $name: building into $dir"
  mkdir -p "$dir"
  local target=all
  if [ "$name" = thread ]; then target=tsan_${GANGWAY_TEST_ALL:+all_}tests; elif [ "$label" = fuzz ]; then target=fuzz_tests; fi
  if ! { cmake -S "$top" -B "$dir" -G Ninja -DGANGWAY_TESTS=ON -DGANGWAY_WERROR=ON "$@" >"$dir/build.log" 2>&1 &&
    with_progress "$dir/build.log" ninja -C "$dir" "$target"; }; then
    grep -E 'error|FAILED|Error' "$dir/build.log" | head -n 40
    tail -n 20 "$dir/build.log"
    echo "== $name: the build failed"
    failed=$((failed + 1))
    return
  fi
  echo "== $name: testing (built in $((SECONDS - started)) s)"
  # oneDNN is not instrumented and its caches look like races, so threads are checked with our own products.
  if [ "$name" = thread ]; then export GANGWAY_CPU_ISA=portable; else unset GANGWAY_CPU_ISA; fi
  rm -rf "$dir/results"; mkdir -p "$dir/results"
  if [ $changed -eq 1 ]; then
    python3 "$top/tests/reached.py" "$dir" >"$dir/reached" || { failed=$((failed + 1)); return; }
    [ -s "$dir/reached" ] || { echo "== $name: the change reaches no test"; return; }
    select+=(-R "^($(paste -sd '|' "$dir/reached" | sed 's/\./\\./g'))\$")
  fi
  GTEST_OUTPUT="xml:$dir/results/" ctest --test-dir "$dir" --output-on-failure \
    -j"${GANGWAY_TEST_JOBS:-$((2 * $(nproc)))}" "${select[@]}" || true
  python3 "$top/tests/reached.py" "$dir" --passed
  python3 "$top/tests/slowest.py" "$dir"
  # GoogleTest's files count single tests; other programs count as one each.
  local counts
  counts=$(python3 "$top/tests/count_results.py" "$dir") || { echo "== $name: no results"; failed=$((failed + 1)); return; }
  read -r p f s <<<"$counts"
  echo "== $name: $p passed, $f failed, $s skipped, $((SECONDS - started)) s"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# binding_is_reached NAME BUILD: whether the library or a file that the binding's tests read is newer than
# their last pass.
binding_is_reached() {
  local last=$2/passed/binding.$1 sources=("$top/tests/bindings" "$top/tests/data" "$top/examples" "$top/capi/include")
  case $1 in mixed|examples) sources+=("$top/bindings") ;; *) sources+=("$top/bindings/$1") ;; esac
  [ ! -e "$last" ] || [ -n "$(find -L "$2/capi/libgangway.so" "$2/impl/tools/gangrun" "${sources[@]}" -newer "$last" -type f -print -quit)" ]
}

# test_binding NAME BUILD COMMAND...: a binding's own script; its last line says "N passed, N failed, N
# skipped".
test_binding() {
  local name=$1 log=$2/$1.log last=$2/passed/binding.$1 started=$SECONDS p f s
  if [ $changed -eq 1 ] && ! binding_is_reached "$1" "$2"; then echo "== $name: the change does not reach it"; return; fi
  shift 2
  echo "== $name: testing"
  "$@" >"$log" 2>&1
  local status=$?
  read -r p f s < <(sed -n 's/.*\b\([0-9]\+\) passed, \([0-9]\+\) failed, \([0-9]\+\) skipped.*/\1 \2 \3/p' "$log" | tail -n 1)
  if [ -z "${s:-}" ]; then p=0 f=1 s=0; fi
  [ $status -eq 0 ] || [ "$f" -gt 0 ] || f=1
  [ "$f" -gt 0 ] || { mkdir -p "$(dirname "$last")" && touch "$last"; }
  if [ "$f" -gt 0 ]; then
    tail -n 80 "$log"
    # As pytest, cargo, Julia's Test and the scripts name what failed.
    grep -E '^(FAILED|ERROR)[: ]|^test .* FAILED$|: (Test Failed|Error During Test) at |^not ok' "$log" | sed "s/^/failed: $name: /"
  else
    grep -i '^skip' "$log"
  fi
  echo "== $name: $p passed, $f failed, $s skipped, $((SECONDS - started)) s"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

test_bindings() {
  # Everything was installed: a missing language is a failure.
  if [ $install -eq 1 ]; then export GANGWAY_ALL_LANGUAGES=1; else export GANGWAY_NO_INSTALL=1; fi
  local dir=$1 julia beside p f s
  # Debian 12 has no Julia of its own.
  julia=$(command -v julia || echo "$dir/julia/bin/julia")
  [ -x "$julia" ] || [ $install -eq 0 ] || bash "$top/bindings/julia/install-julia.sh" "$dir/julia" >"$dir/julia_install.log" 2>&1
  # Julia's run beside the others: they compile on one core for most of their time. A process group of its
  # own, which an interrupt ends.
  rm -f "$dir/julia.counts"
  set -m
  (
    passed=0 failed=0 skipped=0
    test_binding julia "$dir" env JULIA="$julia" bash "$top/bindings/julia/test.sh" "$dir"
    echo "$passed $failed $skipped" >"$dir/julia.counts"
  ) >"$dir/julia.out" 2>&1 &
  beside=$!
  set +m
  trap 'kill -- -"$beside" 2>/dev/null; exit 130' INT TERM
  test_binding python "$dir" bash "$top/bindings/python/test.sh" "$dir"
  test_binding rust "$dir" bash "$top/bindings/rust/test.sh" "$dir"
  wait "$beside"
  trap - INT TERM
  cat "$dir/julia.out"
  read -r p f s <"$dir/julia.counts" || p=0 f=1 s=0
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  test_binding mixed "$dir" env JULIA="$julia" bash "$top/tests/bindings/mixed/test.sh" "$dir"
  test_binding examples "$dir" env JULIA="$julia" bash "$top/tests/bindings/examples/test.sh" "$dir"
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
  case $label in ''|bindings) test_bindings "${build:-$top/build-test}" ;; esac
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
