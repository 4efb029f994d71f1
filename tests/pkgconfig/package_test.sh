#!/usr/bin/env bash
# package_test.sh BUILD-FOLDER SOURCE-FOLDER LIBDIR: makes the Debian packages, holds their contents and dependencies
# against what is wanted, installs them by dpkg into a root of its own, uses them there, and removes them.
set -euo pipefail
build=$1 source=$2 libdir=$3
. "$source/tests/pkgconfig/consumers.sh"
for tool in cpack dpkg-deb dpkg-shlibdeps; do
  command -v $tool >/dev/null || { lacks "no $tool (Debian: cmake, dpkg-dev)" || exit 1; exit 77; }
done
library=$(python3 "$source/capi/version.py" package) major=${soname##*.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
wrong() { echo "$*"; bad=1; }

cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work" -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip >"$work/log" 2>&1 ||
  { cat "$work/log"; exit 1; }
package() { echo "$work/$1"_*.deb; }
# Packages of the modules that are built.
modules=()
[ ! -e "$build/capi/libgangway_cuda.so" ] || modules+=(cuda)
[ ! -e "$build/capi/libgangway_fabric.so" ] || modules+=(fabric)
mpi=$(cd "$build/capi" && ls libgangway_openmpi.so libgangway_mpich.so 2>/dev/null || true)
[ -z "$mpi" ] || modules+=(mpi)
[ "$(cd "$work" && ls ./*.deb | sed 's/_.*//' | sort | tr '\n' ' ')" = "$(printf '%s\n' ./gangway-tools ./libgangway-dev "${modules[@]/#/./libgangway-}" "./$library" | sort | tr '\n' ' ')" ] ||
  wrong "packages: $(ls "$work")"

files() { dpkg-deb -c "$(package "$1")" | awk '$1 !~ /^d/ {print substr($6, 2)}' | sort; }
doc() { printf '/usr/share/doc/%s/%s\n' "$1" changelog.Debian.gz "$1" copyright; }
holds() { # PACKAGE: its list is standard input
  local difference
  difference=$(diff <(cat - <(doc "$1") | sort) <(files "$1")) || { echo "$1 (< wanted, > there):"; echo "$difference"; return 1; }
}
lib=/usr/$libdir
printf '%s\n' $lib/$soname $lib/libgangway.so.$release | holds "$library" || bad=1
printf '%s\n' /usr/bin/{gangrun,gw-checkpoint,gw-compare,gw-info,gw-plan,gw-tokens,gw-trace,gw-train} /usr/share/man/man1/{gangrun,gw-checkpoint,gw-compare,gw-info,gw-plan,gw-tokens,gw-trace,gw-train}.1.gz |
  holds gangway-tools || bad=1
for module in "${modules[@]}"; do
  if [ $module = mpi ]; then printf "$lib/%s\n" $mpi; else echo $lib/libgangway_$module.so; fi | holds libgangway-$module || bad=1
done
{
  for header in "$source"/capi/include/gangway/*.h; do echo "/usr/include/gangway/$(basename "$header")"; done
  printf '%s\n' $lib/libgangway.so $lib/pkgconfig/gangway.pc /usr/share/gangway/abi.json
  [ ! -e "$build/capi/libgangway.a" ] || printf '%s\n' $lib/libgangway.a $lib/pkgconfig/gangway-static.pc
  # A man page for each function, where the manual was made.
  [ ! -d "$build/manual/man3" ] || ls "$build/manual/man3" | sed 's|.*|/usr/share/man/man3/&.gz|'
  # One file of targets for each build type, named after it.
  files libgangway-dev | grep "^$lib/cmake/gangway/gangway-" || true
} | holds libgangway-dev || bad=1
# Not grep -q before the end of a pipe: who writes would end by SIGPIPE, which pipefail takes for a failure.
files libgangway-dev | grep "^$lib/cmake/gangway/gangway-config.cmake$" >/dev/null || wrong "no CMake package"

field() { dpkg-deb -f "$(package "$1")" "$2"; }
for need in libc6 libstdc++6 libdnnl2 libxxhash0; do
  case ", $(field "$library" Depends)" in *", $need "*) ;; *) wrong "$library does not depend on $need" ;; esac
done
version=$(field "$library" Version)
[ "$(field libgangway-dev Depends)" = "$library (= $version)" ] || wrong "libgangway-dev depends on another $library"
for name in "$library" libgangway-dev gangway-tools; do
  dpkg-deb -c "$(package $name)" | awk '$2 != "root/root" {exit 1}' || wrong "$name: files of another owner than root"
done
dpkg-deb -e "$(package "$library")" "$work/control"
grep -q "^libgangway $major $library (>= " "$work/control/shlibs" || wrong "$library has no shlibs"
grep -q "activate-noawait ldconfig" "$work/control/triggers" || wrong "$library does not activate ldconfig"
dpkg-deb -x "$(package "$library")" "$work/library"
readelf -S "$work/library$lib/$soname" | grep '\.debug_info' >/dev/null && wrong "$library is not stripped"
[ $bad -eq 0 ] || exit 1

# An installation of its own: a database that has nothing but what the packages depend on, in this machine's versions.
database=$work/root/var/lib/dpkg
mkdir -p "$database/info" "$database/updates"
needs=$(for name in "$library" gangway-tools "${modules[@]/#/libgangway-}"; do field $name Depends; done | tr ',|' '\n\n' | awk '{print $1}' | sort -u)
for name in ${needs/$library/}; do
  dpkg-query -W -f='Package: ${Package}\nStatus: ${Status}\nVersion: ${Version}\nArchitecture: ${Architecture}
Multi-Arch: ${Multi-Arch}\nMaintainer: none\nDescription: of this machine\n\n' "$name" | sed '/^Multi-Arch: $/d'
  touch "$database/info/$(dpkg-query -W -f='${binary:Package}' "$name")".{list,md5sums}
done >"$database/status"
as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v fakeroot >/dev/null || { echo "neither root nor fakeroot: dpkg cannot install"; exit 1; }
  as_root=(fakeroot)
fi
debian() {
  PATH=$PATH:/usr/sbin:/sbin "${as_root[@]}" dpkg --root="$work/root" --force-not-root --log="$work/dpkg.log" "$@" \
    >"$work/log" 2>&1
}
must() { debian "$@" || { echo "dpkg $*:"; cat "$work/log"; exit 1; }; }
must --install "$work"/*.deb
must --verify
[ ! -s "$work/log" ] || wrong "installed files are not those of the packages: $(cat "$work/log")"
must --audit
[ ! -s "$work/log" ] || wrong "dpkg --audit: $(cat "$work/log")"
debian --remove "$library" && wrong "$library can be removed from under libgangway-dev"
[ $bad -eq 0 ] || exit 1

consumers "$work" "$work/root/usr" "$libdir"
"$work/root/usr/bin/gw-info" --version >/dev/null
"$work/root/usr/bin/gw-plan" --version >/dev/null
"$work/root/usr/bin/gangrun" -n 2 true
others=(gangway-tools libgangway-dev "${modules[@]/#/libgangway-}")
must --remove "${others[@]}"
must --purge "${others[@]}" "$library"
left=$(cd "$work/root" && find . -path ./var/lib/dpkg -prune -o \( -type f -o -type l \) -print)
[ -z "$left" ] || { echo "left after purge: $left"; exit 1; }
! grep -q '^Package: .*gangway' "$database/status" || { echo "dpkg still knows of gangway after purge"; exit 1; }

# Opinions of Debian's own checker, where it is installed. Left out: what concerns Debian's archive alone.
if command -v lintian >/dev/null; then
  lintian --fail-on error,warning --allow-root \
    --suppress-tags initial-upload-closes-no-bugs,pkg-config-unavailable-for-cross-compilation "$work"/*.deb
fi
whole "packaged, installed, used, removed"
