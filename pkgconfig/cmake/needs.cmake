# The packages that the library needs. The build names all missing ones at once, with the command that
# installs them.
find_package(Threads REQUIRED)

# oneDNN is found by its header and library, because Debian's CMake package of oneDNN also requires OpenCL's
# development files, which nothing here uses and libdnnl-dev does not install.
find_path(GANGWAY_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
find_library(GANGWAY_DNNL_LIBRARY dnnl)
mark_as_advanced(GANGWAY_DNNL_INCLUDE GANGWAY_DNNL_LIBRARY)
if(GANGWAY_DNNL_INCLUDE AND GANGWAY_DNNL_LIBRARY)
  set(oneDNN_FOUND TRUE)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION "${GANGWAY_DNNL_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${GANGWAY_DNNL_INCLUDE}")
endif()
find_package(OpenSSL QUIET COMPONENTS Crypto)
find_package(nlohmann_json QUIET)
find_package(CLI11 QUIET)
find_package(tomlplusplus QUIET)
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(xxhash QUIET IMPORTED_TARGET libxxhash)
endif()

# gangway_needs(NAME PACKAGE ...) refuses to configure if some NAME_FOUND is false. PACKAGE is the name of
# Debian's package.
function(gangway_needs)
  set(missing "")
  set(packages "")
  while(ARGV)
    list(POP_FRONT ARGV name package)
    if(NOT ${name}_FOUND)
      list(APPEND missing ${name})
      list(APPEND packages ${package})
    endif()
  endwhile()
  if(missing)
    list(JOIN missing ", " missing)
    list(JOIN packages " " packages)
    message(FATAL_ERROR
      "missing: ${missing}; install them (Debian: apt-get install ${packages}), or set CMAKE_PREFIX_PATH to where they are")
  endif()
endfunction()

gangway_needs(oneDNN libdnnl-dev OpenSSL libssl-dev nlohmann_json nlohmann-json3-dev CLI11 libcli11-dev tomlplusplus libtomlplusplus-dev
  PKG_CONFIG pkg-config xxhash libxxhash-dev)
