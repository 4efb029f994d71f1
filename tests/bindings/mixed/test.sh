#!/usr/bin/env bash
# A gang whose four ranks are a C, a Python, a Rust and a Julia process has the results of four C ranks, bit for bit: every
# collective in both its forms, three steps of a fully sharded Llama, three of a shard group around own compute.
#   usage: tests/bindings/mixed/test.sh BUILD_DIR
# BUILD_DIR has capi/libgangway.so and impl/tools/gangrun, and python/venv by bindings/python/test.sh (else PYTHON names an
# interpreter that has gangway). CC, CARGO and JULIA name the other languages' programs. The rank of a language that is not
# there is C's, and counts as skipped; with GANGWAY_ALL_LANGUAGES=1 it counts as failed, as one does that is there and does
# not build.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
build=$(cd "${1:?usage: test.sh BUILD_DIR}" && pwd) || exit 2
work=$build/mixed gangrun=$build/impl/tools/gangrun
cargo=${CARGO:-cargo} julia=${JULIA:-julia} python=${PYTHON:-$build/python/venv/bin/python}
for file in "$build/capi/libgangway.so" "$gangrun"; do
  [ -e "$file" ] || { echo "$file is not there: build gangway and gangrun first" >&2; exit 2; }
done
export LD_LIBRARY_PATH=$build/capi${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 # as bindings/rust/test.sh, whose crates are used again

run_c() { exec "$work/rank_c" "$1"; }
run_python() { exec "$python" -P "$here/rank.py" "$1"; }
run_rust() { exec "$build/rust/debug/mixed_rank" "$1"; }
run_julia() {
  export JULIA_DEPOT_PATH=$work/depot JULIA_LOAD_PATH=$top/bindings/julia:@stdlib GANGWAY_LIBRARY=$build/capi/libgangway.so
  # Compiled: it computes numbers one by one, which takes the interpreter minutes.
  exec "$julia" --startup-file=no -O1 "$here/rank.jl" "$1"
}

# One rank of a gang: the language at this rank's place in MIXED_RANKS.
if [ "${2:-}" = --rank ]; then
  read -ra languages <<<"$MIXED_RANKS"
  "run_${languages[$RANK]}" "$3"
fi

passed=0 failed=0 skipped=0
rm -rf "$work" && mkdir -p "$work"

# Each makes the command of its language's rank, or tells on its output why not: 77 where the language is not there.
make_c() {
  "${CC:-cc}" -std=c11 -Wall -Wextra -Werror -O1 -ffp-contract=off "$here/rank.c" -o "$work/rank_c" -I "$top/capi/include" \
    -L "$build/capi" -lgangway
}
make_python() {
  [ -x "$python" ] || { echo "there is no $python: bindings/python/test.sh makes it"; return 77; }
  "$python" -P -c 'import gangway' 2>&1 | tail -n 1
  [ "${PIPESTATUS[0]}" -eq 0 ]
}
make_rust() {
  command -v "$cargo" >/dev/null || { echo "there is no $cargo"; return 77; }
  (cd "$here" && GANGWAY_LIB_DIR=$build/capi CARGO_TARGET_DIR=$build/rust CARGO_NET_OFFLINE=true "$cargo" build -q 2>&1)
}
make_julia() {
  command -v "$julia" >/dev/null || { echo "there is no $julia: bindings/julia/install-julia.sh brings one"; return 77; }
  mkdir -p "$work/depot"
}

# gang FOLDER LANGUAGE*4: their results are FOLDER/0 ... FOLDER/3.
gang() {
  local folder=$work/$1; shift
  mkdir -p "$folder"
  MIXED_RANKS="$*" "$gangrun" -n 4 --timeout 600 -- bash "$here/test.sh" "$build" --rank "$folder"
}

# Fails where the rank's file is not that of the C gang; tells the first result that differs.
same_as_c() {
  cmp -s "$work/c/$2" "$work/$1/$2" && return
  diff <(cut -c1-100 "$work/c/$2") <(cut -c1-100 "$work/$1/$2" 2>&1) | head -n 4
  return 1
}

make_c || { echo "FAILED: the C rank does not build"; exit 1; }
there=(c)
for language in python rust julia; do
  reason=$("make_$language"); made=$?
  if [ $made -eq 0 ]; then there+=("$language"); continue; fi
  there+=(c)
  if [ $made -eq 77 ] && [ "${GANGWAY_ALL_LANGUAGES:-0}" != 1 ]; then
    skipped=$((skipped + 1)); echo "skipped: a $language rank ($reason)"; else
    failed=$((failed + 1)); echo "FAILED: a $language rank ($reason)"; fi
done
gang c c c c c || { echo "FAILED: the gang of C ranks"; echo "0 passed, $((failed + 1)) failed, $skipped skipped"; exit 1; }
# Every language is rank 0 or the last once: those roles differ in the library. Ranks of C alone would show nothing.
[ "${there[*]}" != "c c c c" ] || { echo "0 passed, $failed failed, $skipped skipped"; exit $((failed > 0)); }
for order in "0 1 2 3" "3 2 1 0"; do
  read -r a b c d <<<"$order"
  languages=("${there[a]}" "${there[b]}" "${there[c]}" "${there[d]}") name=${order// /}
  if ! gang "$name" "${languages[@]}"; then
    failed=$((failed + 1)); echo "FAILED: a gang of ${languages[*]}"; continue; fi
  for rank in 0 1 2 3; do
    if same_as_c "$name" "$rank"; then
      passed=$((passed + 1)); echo "passed: rank $rank of ${languages[*]}, $(wc -l <"$work/$name/$rank") results"; else
      failed=$((failed + 1)); echo "FAILED: rank $rank of ${languages[*]} has other results than in C"; fi
  done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
