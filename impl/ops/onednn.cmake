# Finds oneDNN by its header and library and makes the target DNNL::dnnl. Debian's own CMake package of oneDNN also asks
# for OpenCL's development files, which nothing here uses and libdnnl-dev does not bring.
find_path(GANGWAY_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
find_library(GANGWAY_DNNL_LIBRARY dnnl)
mark_as_advanced(GANGWAY_DNNL_INCLUDE GANGWAY_DNNL_LIBRARY)
if(NOT GANGWAY_DNNL_INCLUDE OR NOT GANGWAY_DNNL_LIBRARY)
  message(FATAL_ERROR "oneDNN was not found; install it (Debian: apt-get install libdnnl-dev), or set CMAKE_PREFIX_PATH")
endif()
add_library(DNNL::dnnl UNKNOWN IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION "${GANGWAY_DNNL_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${GANGWAY_DNNL_INCLUDE}")
