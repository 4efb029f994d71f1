#!/usr/bin/env bash
# install_test.sh BUILD-FOLDER SOURCE-FOLDER LIBDIR: installs into a temporary prefix, uses it like a stranger there and
# after it was moved; then installs again and uninstalls.
set -euo pipefail
build=$1 source=$2 libdir=$3
. "$source/tests/pkgconfig/consumers.sh"
work=$(mktemp -d)
# The list of what was installed belongs to the build folder's owner.
manifest=$build/install_manifest.txt
[ ! -e "$manifest" ] || cp "$manifest" "$work/manifest"
put_back() {
  if [ -e "$work/manifest" ]; then cp "$work/manifest" "$manifest"; else rm -f "$manifest"; fi
  rm -rf "$work"
}
trap put_back EXIT
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; return 1; }; }

quietly cmake --install "$build" --prefix "$work/first"
consumers "$work" "$work/first" "$libdir"
mv "$work/first" "$work/moved"
consumers "$work" "$work/moved" "$libdir"
prefix=$work/moved

# What is installed: no private headers, the library under its SONAME, a development link, tools and their pages.
[ -e "$prefix/$libdir/$soname" ] && [ -L "$prefix/$libdir/libgangway.so" ] || { echo "no $soname"; exit 1; }
[ "$(ls "$prefix/include")" = gangway ] || { echo "more than gangway/ in include/"; exit 1; }
[ "$(cd "$prefix/bin" && echo *)" = "gangrun gw-checkpoint gw-compare gw-info gw-plan gw-tokens gw-trace gw-train" ] || { echo "other tools than gangrun gw-checkpoint gw-compare gw-info gw-plan gw-tokens gw-trace gw-train"; exit 1; }
for header in "$source"/capi/include/gangway/*.h; do
  cmp -s "$header" "$prefix/include/gangway/$(basename "$header")" || { echo "$header is not installed as it is"; exit 1; }
done
cmp -s "$source/capi/abi.json" "$prefix/share/gangway/abi.json" || { echo "abi.json is not installed as it is"; exit 1; }
if grep -rIl -e "$build" -e "$source" "$prefix"; then echo "these files name the build's folders"; exit 1; fi

# A module that was not built is left out, which a line says.
script=$build/impl/gang/mpi/cmake_install.cmake
if grep -q libgangway_openmpi.so "$script" 2>/dev/null; then
  sed 's/libgangway_openmpi\.so/libgangway_unbuilt.so/g' "$script" >"$work/unbuilt.cmake"
  cmake -DCMAKE_INSTALL_PREFIX="$work/unbuilt" -P "$work/unbuilt.cmake" >"$work/log" 2>&1 ||
    { cat "$work/log"; echo "a module that is not built makes the installation fail"; exit 1; }
  tr '\n' ' ' <"$work/log" | grep -q 'libgangway_unbuilt.so is not built, *so it is not *installed' ||
    { cat "$work/log"; echo "a module that is not built is left out in silence"; exit 1; }
fi

# Uninstalled: nothing of it is left, what is not its own stays.
quietly cmake --install "$build" --prefix "$work/again"
mkdir -p "$work/again/include/other"
touch "$work/again/include/other/mine.h"
quietly cmake -DMANIFEST="$manifest" -P "$source/pkgconfig/uninstall.cmake"
left=$(cd "$work/again" && find . -type f -o -type l)
[ "$left" = ./include/other/mine.h ] || { echo "left after uninstall: $left"; exit 1; }
[ ! -e "$work/again/include/gangway" ] && [ ! -e "$work/again/$libdir/cmake/gangway" ] || { echo "empty folders are left"; exit 1; }
whole "installed, used, moved, used, uninstalled"
