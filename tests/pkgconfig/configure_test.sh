#!/usr/bin/env bash
# configure_test.sh SOURCE-FOLDER: what a configuration makes by itself, as a part of another project, and without what it
# needs. Nothing but one C file is compiled.
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
configure() { cmake -S "$1" -B "$2" -G Ninja "${@:3}" >"$work/log" 2>&1; }
must() { configure "$@" || { cat "$work/log"; fail "cmake $*"; }; }
commands() { ninja -C "$1" -t commands "$2"; }

# By itself: the library and its tools, optimised; tests and examples on demand; no -Werror.
must "$source" "$work/alone"
commands "$work/alone" all >"$work/all"
for made in libgangway.so libgangway.a gangrun gw-info gw-train; do
  grep -qE "(-o|qc) [^ ]*/$made" "$work/all" || fail "a plain build has no $made"
done
if grep -E '_test|train_llama|gtest' "$work/all"; then fail "a plain build has tests or examples"; fi
commands "$work/alone" 02_train_llama >"$work/trainer"
grep -q -e "-o [^ ]*02_train_llama" "$work/trainer" || fail "no example by name"
grep -q '^CMAKE_BUILD_TYPE:STRING=RelWithDebInfo$' "$work/alone/CMakeCache.txt" || fail "a plain build is not optimised"
if grep -q -e -Werror "$work/alone/build.ninja"; then fail "a plain build has -Werror"; fi
for flag in -fstack-protector-strong -D_FORTIFY_SOURCE=2; do
  grep -e ' -c .*/impl/base/error\.cpp' "$work/all" | grep -e " $flag" >/dev/null || fail "a plain build compiles without $flag"
done
for flag in relro now noexecstack; do
  grep -e '-o [^ ]*libgangway\.so' "$work/all" | grep -e "-z,$flag" >/dev/null || fail "a plain build links without -z $flag"
done

# As a part: targets under its name space, and none that the project around it has, too; its flags are its own.
mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(around LANGUAGES C CXX)
foreach(name uninstall manual tests examples)
  add_custom_target(\${name})
endforeach()
add_subdirectory($source gangway)
add_executable(user user.c)
target_link_libraries(user PRIVATE gangway::gangway)
add_executable(user_static user.c)
target_link_libraries(user_static PRIVATE gangway::static)
install(TARGETS user)
CMAKE
printf '#include <gangway/gangway.h>\nint main(void) { return gw_get_api == 0; }\n' >"$work/project/user.c"
must "$work/project" "$work/part"
ninja -C "$work/part" CMakeFiles/user.dir/user.c.o CMakeFiles/user_static.dir/user.c.o >"$work/log" 2>&1 ||
  { cat "$work/log"; fail "a user does not find the headers"; }
commands "$work/part" user >"$work/user"
grep -q -e '-o user .*libgangway\.so' "$work/user" || fail "gangway::gangway brings no library"
if grep -e '-c .*user\.c' "$work/user" | grep -e -fvisibility -e -Wall; then fail "gangway's flags meet the user's sources"; fi
if grep -e -Werror "$work/user"; then fail "gangway has -Werror in another project"; fi
commands "$work/part" all >"$work/all"
if grep -E '_test|train_llama|gtest' "$work/all"; then fail "tests or examples are built in another project"; fi
grep -q '^CMAKE_BUILD_TYPE:STRING=$' "$work/part/CMakeCache.txt" || fail "the other project's build type was changed"
if grep -rE 'gangrun|libgangway|include/gangway' --include=cmake_install.cmake "$work/part"; then
  fail "gangway installs itself with another project"
fi

# What is missing is said at once, with the way to it.
if configure "$source" "$work/needs" -DGANGWAY_DNNL_LIBRARY=OFF -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON; then
  fail "configured without oneDNN"
fi
tr -s ' \n' ' ' <"$work/log" >"$work/said"
grep -q 'missing: oneDNN, nlohmann_json; install them (Debian: apt-get install libdnnl-dev nlohmann-json3-dev)' "$work/said" ||
  { cat "$work/log"; fail "it is not said what is missing"; }
echo "configured alone, as a part, and refused without what it needs"
