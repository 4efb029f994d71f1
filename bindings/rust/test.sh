#!/usr/bin/env bash
# Runs every check of the Rust binding against a built library, without a network.
#   usage: bindings/rust/test.sh BUILD_DIR        BUILD_DIR has capi/libgangway.so and impl/tools/gangrun
# CARGO names another cargo, BINDGEN another bindgen.
# GANGWAY_TEST_DEVICE=cuda: models, groups, pipelines, partitions, closures and drops on the software GPU instead.
# GANGWAY_TEST_ALL=1: also the builds of their own, which take most of the time: bindings that bindgen makes while building,
# the commands of README.md, the library opened at run time, docs.rs, the installed library, and the features
# half and ndarray with those crates in GANGWAY_CRATES (default: /usr/share/cargo/registry, where Debian's
# librust-*-dev packages put them).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?usage: test.sh BUILD_DIR}" && pwd) || exit 2
cargo=${CARGO:-cargo} bindgen=${BINDGEN:-bindgen}
export GANGWAY_LIB_DIR=$build/capi GANGRUN=$build/impl/tools/gangrun CARGO_TARGET_DIR=$build/rust
export LD_LIBRARY_PATH=$build/capi${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} RUST_BACKTRACE=0 CARGO_NET_OFFLINE=true
# Facts for a debugger and for the next compilation take half of rustc's time. tests/bindings/mixed and examples have the same
# settings: they use what is built here.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
for file in "$GANGWAY_LIB_DIR/libgangway.so" "$GANGRUN"; do
  [ -e "$file" ] || { echo "$file is not there: build gangway and gangrun first" >&2; exit 2; }
done
command -v "$cargo" >/dev/null || { echo "there is no $cargo (Debian: apt-get install cargo)" >&2; exit 2; }
cd "$here" || exit 2
mkdir -p "$build/rust"

passed=0 failed=0 skipped=0 log=$build/rust/test.log
skip() { skipped=$((skipped + 1)); echo "skipped: $1 ($2)"; }

# check NAME COMMAND...: one test.
check() {
  local name=$1; shift
  if "$@" >"$log" 2>&1; then passed=$((passed + 1)); echo "passed: $name"; else
    failed=$((failed + 1)); echo "FAILED: $name"; tail -n 60 "$log"; fi
}

# suite NAME COMMAND...: cargo's own counts; a command that fails without a failed test counts as one.
suite() {
  local name=$1 p f s; shift
  "$@" >"$log" 2>&1
  local status=$?
  read -r p f s < <(sed -nE \
    's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored;.* ([0-9]+) filtered out.*/\1 \2 \3 \4/p' "$log" |
    awk '{p += $1; f += $2; s += $3 + $4} END {print p + 0, f + 0, s + 0}')
  [ $status -eq 0 ] || [ "$f" -gt 0 ] || f=1
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  echo "$name: $p passed, $f failed, $s skipped"
  [ "$f" -eq 0 ] || grep -vE '^test .* ok$|^ +(Compiling|Finished|Running)' "$log" | tail -n 80
}

# Functions that the library's table has and the bindings lack, or the other way round.
same_functions() {
  diff <(sort "$here/../../capi/exports.txt") \
    <(grep -o 'pub fn gw_[a-z0-9_]*' gangway-sys/src/functions.rs | sed 's/pub fn //' | sort)
}

# bindgen takes the comments of the headers. base.h says what a function without one does, by its name.
documented_functions() {
  local bare
  bare=$(awk '/#\[doc/ {doc = 1} /pub fn gw_/ {match($0, /gw_[a-z0-9_]+/); if (!doc) print substr($0, RSTART, RLENGTH); doc = 0}' \
    gangway-sys/src/functions.rs | grep -vE '_(init|retain|release|async)$')
  [ -z "$bare" ] || { echo "without the header's comment: $bare"; return 1; }
}

# What a package for crates.io would hold: sources, page and licence, and nothing of the tests.
packaged_files() {
  local crate files wanted
  for crate in gangway gangway-sys; do
    files=$("$cargo" package --list --allow-dirty -p $crate) || return 1
    for wanted in Cargo.toml LICENSE README.md src/lib.rs; do
      grep -qx "$wanted" <<<"$files" || { echo "$crate lacks $wanted"; return 1; }
    done
    ! grep -vE '^(\.cargo_vcs_info\.json|Cargo\.(toml(\.orig)?|lock)|LICENSE|README\.md|build\.rs|generate\.sh|(src|examples)/.*\.rs)$' \
      <<<"$files" || { echo "$crate has files that do not belong in it"; return 1; }
  done
}

# What a test needs of the host's memory. It is left out, and counted as skipped; a name that no test has is a failure.
on_gpus() {
  local name reason program=(--test models --test adapters --test groups --test pipeline --test partition --test custom --test lifetimes)
  local without=() folder=$build/tests/gpu_emulation
  while IFS='|' read -r name reason; do
    without+=(--skip "$name")
    echo "skipped: $name ($reason)"
    [ "$(grep -c "^fn $name()" gangway/tests/*.rs | awk -F: '{n += $2} END {print n}')" = 1 ] ||
      { echo "there is no test $name" >&2; return 1; }
  done <<'END'
full_values_are_there_while_unsharded|it unshards into slices
memory_for_full_values_that_does_not_fit_is_refused_by_name|it unshards into slices
an_export_outlives_group_and_model|only a CPU's DLPack tensors come back
an_own_update_sees_the_sum_of_all_gradients|its update is computed in Rust
an_update_ends_after_an_error_and_after_a_panic|its update is computed in Rust
a_closure_runs_its_child|its closures compute in Rust
a_nan_as_loss_is_skipped_and_said_though_all_gradients_are_numbers|its closures compute in Rust
a_panic_comes_back_as_its_text_and_peers_are_told|its closures compute in Rust
closures_and_states_are_dropped_once|its closures compute in Rust
closures_train_like_a_layer|its closures compute in Rust
drops_on_other_threads_disturb_no_collective_and_come_once|its collectives are of vectors
END
  # Tests beside each other would share GPUs, and their communicators start in any order there.
  GANGWAY_MODULES=$folder LD_LIBRARY_PATH=$folder:$LD_LIBRARY_PATH suite "on software GPUs" \
    "$cargo" test --no-fail-fast -p gangway "${program[@]}" -- --test-threads=1 "${without[@]}"
}

if [ -n "${GANGWAY_TEST_DEVICE:-}" ]; then
  on_gpus || failed=$((failed + 1))
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
fi
check "bindings name every exported function" same_functions
check "bindings have the headers' comments" documented_functions
check "packages hold sources, page and licence" packaged_files
if [ "$("$bindgen" --version 2>/dev/null)" = "bindgen 0.60.1" ] && command -v rustfmt >/dev/null; then
  check "bindings are up to date" env BINDGEN="$bindgen" gangway-sys/generate.sh --check
else
  skip "bindings are up to date" "needs bindgen 0.60.1 and rustfmt"
fi
all=${GANGWAY_TEST_ALL:-}
if [ -z "$all" ]; then
  echo "left to GANGWAY_TEST_ALL=1: bindings made while building, README.md's commands, the library opened at run time, docs.rs, pkg-config, features,"
  echo "  examples over 1 and 2 ranks, which tests/bindings/examples/test.sh compares, 10,080 rounds of what leaves nothing, clippy on bindgen's tests"
elif command -v "$bindgen" >/dev/null; then
  check "bindings are made while building" "$cargo" build -q --features gangway/bindgen -p gangway
else
  skip "bindings are made while building" "there is no $bindgen"
fi
# What README.md says to type, in a copy: it builds next to the sources.
as_in_readme() {
  local root=$build/rust/readme
  rm -rf "$root" && mkdir -p "$root/bindings" && cp -R "$here" "$root/bindings/rust" && rm -rf "$root/bindings/rust/target"
  ln -s "$build" "$root/build"
  sed -n '/^```sh$/,/^```$/{/^```/!p}' README.md >"$root/commands"
  (cd "$root" && env -u GANGWAY_LIB_DIR -u LD_LIBRARY_PATH -u CARGO_TARGET_DIR bash -e commands)
}

[ -z "$all" ] || check "the commands of README.md run" as_in_readme
check "examples build" "$cargo" build -q --examples
suite "linked" "$cargo" test --no-fail-fast --workspace --lib --tests
# With this variable the compile_fail tests must fail by the error that they name, not by any.
suite "documentation" env RUSTC_BOOTSTRAP=1 "$cargo" test --no-fail-fast --workspace --doc
dlopen=(env -u GANGWAY_LIB_DIR CARGO_TARGET_DIR="$build/rust-dlopen" "$cargo")
if [ -n "$all" ]; then
  check "examples build (dlopen)" "${dlopen[@]}" build -q -p gangway --features dlopen --examples
  suite "opened at run time" "${dlopen[@]}" test --no-fail-fast -p gangway --features dlopen --lib --tests
fi
# As docs.rs does: without any library, pkg-config file or header.
as_docs_rs() {
  local root=$build/rust/docs_rs
  rm -rf "$root" && mkdir -p "$root" && cp -R Cargo.toml Cargo.lock stand_ins gangway gangway-sys "$root"
  (cd "$root" && env -u GANGWAY_LIB_DIR -u LD_LIBRARY_PATH PKG_CONFIG=false DOCS_RS=1 CARGO_TARGET_DIR="$root/target" \
    "$cargo" doc -q --no-deps --workspace) && [ -e "$root/target/doc/gangway/struct.Gang.html" ]
}
[ -z "$all" ] || check "documentation is made as docs.rs does" as_docs_rs
check "documentation has no warnings" env RUSTDOCFLAGS="-D warnings" "$cargo" doc -q --no-deps --workspace
if "$cargo" clippy --version >/dev/null 2>&1; then
  # Debian 12's also finds clones redundant that a test is about; later ones left that lint out. gangway-sys is read as what
  # gangway needs: its tests are bindgen's, 13,000 lines.
  of=(-p gangway)
  [ -z "$all" ] || of=(--workspace)
  check "clippy has no warnings" "$cargo" clippy -q "${of[@]}" --all-targets -- -D warnings -A clippy::redundant_clone
  [ -z "$all" ] || check "clippy has no warnings (dlopen)" "${dlopen[@]}" clippy -q --workspace --all-targets \
    --features gangway/dlopen -- -D warnings -A clippy::redundant_clone
else
  skip "clippy has no warnings" "there is no cargo clippy"
fi
# As installed: gangway.pc finds everything from its own place.
as_installed() {
  local prefix=$build/rust/prefix libdir
  libdir=$prefix/$(sed -n 's/^libdir=${prefix}.//p' "$build/pkgconfig/gangway.pc")
  rm -rf "$prefix" && mkdir -p "$libdir/pkgconfig" &&
    cp -P "$GANGWAY_LIB_DIR"/libgangway.so* "$libdir" && cp "$build/pkgconfig/gangway.pc" "$libdir/pkgconfig" &&
    cp -R "$here/../../capi/include" "$prefix" &&
    env -u GANGWAY_LIB_DIR -u LD_LIBRARY_PATH PKG_CONFIG_PATH="$libdir/pkgconfig" \
      CARGO_TARGET_DIR="$build/rust-installed" "$cargo" build -q -p gangway --example all_reduce
}
# In a copy without the stand-ins, with the real crates from a folder. Only the features whose crate is there.
with_crates() (
  crates=$1 root=$build/rust/crates; shift
  rm -rf "$root" && mkdir -p "$root/.cargo" && cp -R Cargo.toml gangway gangway-sys "$root" && cd "$root" || exit 1
  sed -i '/^# Cargo asks/,$d' Cargo.toml
  for crate in half ndarray; do
    case " $* " in *" $crate "*) ;; *) sed -i "/^$crate = /d; /^features = /d" gangway/Cargo.toml ;; esac
  done
  printf '[source.crates-io]\nreplace-with = "folder"\n[source.folder]\ndirectory = "%s"\n' "$crates" >.cargo/config.toml
  CARGO_TARGET_DIR=$root/target "$cargo" test -p gangway --features "$*" --lib --test features
)
if [ -n "$all" ]; then
  crates=${GANGWAY_CRATES:-/usr/share/cargo/registry} features=()
  for crate in half ndarray; do
    if compgen -G "$crates/$crate-[0-9]*" >/dev/null; then features+=("$crate"); else skip "feature $crate" "no $crates/$crate-*"; fi
  done
  [ ${#features[@]} -eq 0 ] || suite "features ${features[*]}" with_crates "$crates" "${features[@]}"
fi
if [ -z "$all" ]; then
  :
elif command -v pkg-config >/dev/null; then
  check "pkg-config finds the library" as_installed
else
  skip "pkg-config finds the library" "there is no pkg-config"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
