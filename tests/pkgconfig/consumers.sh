# Sourced: strangers that build against an installed gangway. consumers WORK PREFIX LIBDIR: by pkg-config, shared and
# static; by find_package, both; by dlopen and the function table alone. Each is built anew and run. What lacks is a failure,
# or with GANGWAY_ALLOW_MISSING=1 left out; the test ends by `whole` then, with 77.

# What the library is called, from the one number.
soname=${soname:-$(python3 "$source/capi/version.py" soname)} release=${release:-$(python3 "$source/capi/version.py" release)}

lacking=''
lacks() { # WHAT
  echo "$1: what needs it is left out"
  lacking=1
  [ "${GANGWAY_ALLOW_MISSING:-0}" = 1 ]
}
whole() { # TEXT: the last line of a test
  echo "$1"
  [ -z "$lacking" ] || exit 77
}

write_consumers() { # WORK
  cat >"$1/user.c" <<'C'
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
  cat >"$1/open.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gangway/gangway.h>
#include <string.h>
int main(int argc, char **argv) {
  void *library = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return 1;
  const gw_api *(*get_api)(int32_t);
  void *symbol = dlsym(library, "gw_get_api");
  memcpy(&get_api, &symbol, sizeof get_api);
  const gw_api *api = get_api(0);
  gw_gang *gang = NULL;
  double sum = 0;
  if (api == NULL || api->struct_size != sizeof *api || get_api(99) != NULL) return 2;
  if (api->gang_create(NULL, &gang) != GW_OK || api->gang_all_sum(gang, 3, &sum) != GW_OK || sum != 3) return 3;
  api->gang_release(gang);
  return dlclose(library);
}
C
  mkdir -p "$1/package"
  cp "$1/user.c" "$1/package/"
  cat >"$1/package/CMakeLists.txt" <<C
cmake_minimum_required(VERSION 3.18)
project(user C)
find_package(gangway ${release%.*} REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE gangway::gangway)
if(TARGET gangway::static)
  add_executable(user_static user.c)
  target_link_libraries(user_static PRIVATE gangway::static)
endif()
C
}

needs() { readelf -d "$1" | grep NEEDED; }

by_pkg_config() { # WORK PREFIX LIBDIR
  local flags
  flags=$(PKG_CONFIG_PATH=$2/$3/pkgconfig pkg-config --cflags --libs gangway)
  case $flags in *"$2"*) ;; *) echo "pkg-config says $flags, not of $2"; return 1 ;; esac
  # shellcheck disable=SC2086
  $cc -std=c11 -Wall -Werror -o "$1/user" "$1/user.c" $flags
  needs "$1/user" | grep -qF "[$soname]" || { echo "a shared consumer does not need $soname"; return 1; }
  LD_LIBRARY_PATH=$2/$3 "$1/user"
  [ -e "$2/$3/libgangway.a" ] || { lacks "no libgangway.a in this build (GANGWAY_STATIC)"; return; }
  flags=$(PKG_CONFIG_PATH=$2/$3/pkgconfig pkg-config --cflags --libs gangway-static)
  # shellcheck disable=SC2086
  $cc -std=c11 -Wall -Werror -o "$1/user_static" "$1/user.c" $flags
  if needs "$1/user_static" | grep gangway; then echo "a static consumer needs a library of gangway"; return 1; fi
  "$1/user_static"
}

by_find_package() { # WORK PREFIX LIBDIR
  rm -rf "$1/package/build"
  { cmake -S "$1/package" -B "$1/package/build" -DCMAKE_PREFIX_PATH="$2" && cmake --build "$1/package/build"; } \
    >"$1/log" 2>&1 || { cat "$1/log"; return 1; }
  "$1/package/build/user"
  [ ! -e "$2/$3/libgangway.a" ] || "$1/package/build/user_static"
}

by_dlopen() { # WORK PREFIX LIBDIR
  $cc -std=c11 -Wall -Werror -I"$2/include" -o "$1/open" "$1/open.c" -ldl
  "$1/open" "$2/$3/$soname"
}

consumers() { # WORK PREFIX LIBDIR
  cc=${CC:-cc}
  write_consumers "$1"
  by_pkg_config "$@"
  by_find_package "$@"
  by_dlopen "$@"
  # It needs neither CUDA nor MPI, and nothing is missing.
  if ldd "$2/$3/$soname" | grep -Ei 'not found|cuda|nccl|libmpi'; then return 1; fi
}
