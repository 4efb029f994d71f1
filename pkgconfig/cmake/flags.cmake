# How every file is compiled and linked: warnings, hardening, sanitizers, precompiled headers, and a compiler
# cache.
option(GANGWAY_WERROR "treat warnings as errors" OFF)
option(GANGWAY_HARDENING "stack protector, checked libc calls, read-only relocations, immediate binding" ON)
set(GANGWAY_SANITIZE "" CACHE STRING "address (with undefined) or thread; empty for none")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
add_compile_options(-Wall -Wextra -ffp-contract=off)
if(GANGWAY_WERROR)
  add_compile_options(-Werror)
endif()
# Paths are mapped so that the same sources give the same files in any folder. A debugger needs the real
# paths.
add_compile_options($<$<NOT:$<CONFIG:Debug>>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.>)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)  # likewise

if(GANGWAY_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)  # C programs that use the library need the C++ part of the runtime
    add_link_options($<$<LINK_LANGUAGE:C>:-fsanitize-link-c++-runtime>)
    link_libraries($<$<LINK_LANGUAGE:C>:stdc++>)
  endif()
elseif(GANGWAY_SANITIZE STREQUAL "thread")
  # -O1 compiles faster, and the checks decide how fast the program runs.
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer $<$<CONFIG:RelWithDebInfo>:-O1>)
  add_link_options(-fsanitize=thread)
elseif(NOT GANGWAY_SANITIZE STREQUAL "")
  message(FATAL_ERROR "GANGWAY_SANITIZE is \"${GANGWAY_SANITIZE}\", not address or thread")
elseif(GANGWAY_HARDENING)  # not with sanitizers: they check more, and cannot follow checked libc calls
  include(CheckCXXCompilerFlag)
  include(CheckPIESupported)
  check_pie_supported()
  add_compile_options(-fstack-protector-strong -Wformat -Wformat-security)
  set(CMAKE_REQUIRED_FLAGS -Werror)  # clang 14 only warns about the flag of another processor
  foreach(flag fstack-clash-protection fcf-protection mbranch-protection=standard)  # each exists on some processors only
    string(MAKE_C_IDENTIFIER "GANGWAY_HAS_${flag}" found)
    check_cxx_compiler_flag(-${flag} ${found})
    if(${found})
      add_compile_options(-${flag})
    endif()
  endforeach()
  unset(CMAKE_REQUIRED_FLAGS)
  add_compile_options(-U_FORTIFY_SOURCE $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>)  # it needs optimisation
  add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()

# A clean build compiles the sources of a layer ten at a time: what they include is parsed once, which takes
# less than half of the time. Helpers in anonymous namespaces therefore have names of their own within a layer; the
# sources in which they cannot are named with gangway_alone. OFF compiles each source by itself: for work on
# one file, and to see that each includes what it uses.
option(GANGWAY_UNITY "compile the sources of a layer ten at a time" ON)
function(gangway_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${GANGWAY_UNITY} UNITY_BUILD_BATCH_SIZE 10)
endfunction()
# gangway_alone(TARGET SOURCE...): compiles each of these by itself. So are those that loadable modules link, which
# take whole objects out of the archives and must not get a second copy of the library with them.
function(gangway_alone target)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Precompiled headers halve the time of a first build, and the cache does a repeated one; ccache.sh makes them
# work together.
find_program(GANGWAY_CCACHE ccache)
set(GANGWAY_STD_HEADERS <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <functional> <map> <memory> <mutex>
    <optional> <span> <string> <string_view> <thread> <utility> <vector>)
if(GANGWAY_CCACHE)
  set(launcher ${CMAKE_CURRENT_LIST_DIR}/ccache.sh ${PROJECT_SOURCE_DIR} ${GANGWAY_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)  # ccache wants to see which header is used
  else()
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endif()
