#!/bin/sh
# Writes src/types.rs and src/functions.rs from the public headers and their comments, with the bindgen
# program.
#   usage: generate.sh [--check] [INCLUDE_DIR [OUT_DIR]]
# --check: changes nothing, exits 1 when a committed file is out of date. Versions of bindgen write the same declarations in
# other words, so the committed files are of 0.60.1 (Debian 12's) alone; 77: this is another.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
check=0
if [ "${1:-}" = --check ]; then check=1; shift; fi
include=${1:-$here/../../../capi/include}
out=${2:-$here/src}
[ $check -eq 0 ] || { out=$(mktemp -d); trap 'rm -rf "$out"' EXIT; }
case $out in /*) ;; *) out=$PWD/$out ;; esac
case $include in /*) ;; *) include=$PWD/$include ;; esac
cd "$here" # rustfmt takes its options from here
bindgen=${BINDGEN:-bindgen}
common="--default-enum-style consts --no-prepend-enum-name"
case $("$bindgen" --version) in
  "bindgen 0.60.1") common="$common --size_t-is-usize" ;;
  *) common="$common --rust-target 1.63" # the crates' oldest compiler
     if [ $check -eq 1 ] || [ $# -lt 2 ]; then
       echo "skipped: bindgen is not 0.60.1 but $("$bindgen" --version)"
       exit 77
     fi ;;
esac

# $common is a list of words.
# shellcheck disable=SC2086
"$bindgen" "$include/gangway/gangway.h" $common --allowlist-type 'gw_.*' --allowlist-var 'GW_.*' --ignore-functions \
  --with-derive-default -o "$out/types.rs" -- -I"$include" -fparse-all-comments
# Each function is told with its name in the table of gw_get_api, which a macro cannot make by itself.
# shellcheck disable=SC2086
"$bindgen" "$include/gangway/gangway.h" $common --allowlist-function 'gw_.*' --blocklist-function gw_get_api \
  --blocklist-type '.*' --no-layout-tests -- -I"$include" -fparse-all-comments |
  sed -e 's/extern "C" {/functions! {/' -e 's/pub fn gw_\([a-z0-9_]*\)/\1: pub fn gw_\1/g' >"$out/functions.rs"

[ $check -eq 1 ] || exit 0
for file in types functions; do
  cmp -s "$out/$file.rs" "$here/src/$file.rs" || {
    echo "src/$file.rs is out of date: run $0" >&2
    diff "$here/src/$file.rs" "$out/$file.rs" | head -n 20 >&2
    exit 1
  }
done
