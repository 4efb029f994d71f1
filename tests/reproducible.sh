#!/usr/bin/env bash
# Two builds of the last commit, in folders of other names and at other times, give the same files, byte for byte.
#   usage: tests/reproducible.sh
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
files=(capi/libgangway.so.* capi/libgangway.a impl/tools/gangrun impl/tools/gw-info)
for name in one another/place; do
  mkdir -p "$work/$name"
  git -C "$top" archive HEAD | tar -x -C "$work/$name"
  { cmake -S "$work/$name" -B "$work/$name/build" -G Ninja -DGANGWAY_CCACHE= && ninja -C "$work/$name/build"; } \
    >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
done
cd "$work/one/build"
for file in ${files[*]}; do
  cmp "$file" "$work/another/place/build/$file" || bad=1
done
[ -z "${bad:-}" ] && echo "the same: $(echo ${files[*]})"
