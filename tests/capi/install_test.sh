#!/bin/sh
# install_test.sh BUILD-FOLDER SOURCE-FOLDER LIBDIR: installs into a temporary prefix and uses it like a stranger: by
# pkg-config, also after the prefix was moved; by find_package; by dlopen and the function table alone.
set -eu
build=$1 source=$2 libdir=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc=${CC:-cc}
first=$work/first
cmake --install "$build" --prefix "$first" >"$work/install.log" 2>&1 || { cat "$work/install.log"; exit 1; }

cat >"$work/user.c" <<'C'
#include <gangway/gangway.h>
int main(void) {
  gw_gang *gang = NULL;
  float x = 2, y = 0;
  if (gw_gang_create(NULL, &gang) != GW_OK) return 1;
  if (gw_gang_all_reduce(gang, &x, &y, 1, GW_F32, GW_SUM, NULL) != GW_OK || y != 2) return 2;
  gw_gang_release(gang);
  return 0;
}
C
use_pkg_config() { # PREFIX
  flags=$(PKG_CONFIG_PATH=$1/$libdir/pkgconfig pkg-config --cflags --libs gangway)
  case $flags in *"$1"*) ;; *) echo "pkg-config says $flags, not of $1"; exit 1 ;; esac
  # shellcheck disable=SC2086
  $cc -std=c11 -Wall -Werror -o "$work/user" "$work/user.c" $flags
  LD_LIBRARY_PATH=$1/$libdir "$work/user"
}
use_pkg_config "$first"
mv "$first" "$work/moved"
use_pkg_config "$work/moved"
prefix=$work/moved

# What is installed: no private headers, the library under its SONAME, a development link.
[ -e "$prefix/$libdir/libgangway.so.1" ] && [ -L "$prefix/$libdir/libgangway.so" ] || { echo "no libgangway.so.1"; exit 1; }
[ "$(ls "$prefix/include")" = gangway ] || { echo "more than gangway/ in include/"; exit 1; }
for header in "$source"/capi/include/gangway/*.h; do
  cmp -s "$header" "$prefix/include/gangway/$(basename "$header")" || { echo "$header is not installed as it is"; exit 1; }
done

mkdir "$work/package"
cp "$work/user.c" "$work/package/"
cat >"$work/package/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.18)
project(user C)
find_package(gangway 0.1 REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE gangway::gangway)
C
cmake -S "$work/package" -B "$work/package/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
  cmake --build "$work/package/build" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/package/build/user"

# By dlopen: the table alone, 100 times; the library stays loaded.
cat >"$work/open.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gangway/gangway.h>
#include <string.h>
int main(int argc, char **argv) {
  const gw_api *first = NULL;
  for (int i = 0; i < 100; ++i) {
    void *library = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return 1;
    const gw_api *(*get_api)(int32_t);
    void *symbol = dlsym(library, "gw_get_api");
    memcpy(&get_api, &symbol, sizeof get_api);
    const gw_api *api = get_api(0);
    if (api == NULL || api->struct_size != sizeof *api || (first != NULL && api != first)) return 2;
    first = api;
    gw_gang *gang = NULL;
    double sum = 0;
    if (api->gang_create(NULL, &gang) != GW_OK || api->gang_all_sum(gang, 3, &sum) != GW_OK || sum != 3) return 3;
    if (api->gang_barrier(NULL, NULL) != GW_E_INVALID_ARGUMENT) return 4;
    api->gang_release(gang);
    if (get_api(99) != NULL) return 5;
    dlclose(library);
    if (dlopen(argv[argc - 1], RTLD_NOW | RTLD_NOLOAD) == NULL) return 6;
    dlclose(library);
  }
  return 0;
}
C
$cc -std=c11 -Wall -Werror -I"$prefix/include" -o "$work/open" "$work/open.c" -ldl
"$work/open" "$prefix/$libdir/libgangway.so.1"
# It needs neither CUDA nor MPI, and nothing is missing.
if ldd "$prefix/$libdir/libgangway.so.1" | grep -Ei 'not found|cuda|nccl|libmpi'; then exit 1; fi
echo "installed, moved, linked, opened"
