# The packages of `cpack -G DEB`: the library in a package that is named after its SONAME, libgangway-dev
# (headers, archive, pkg-config and CMake files), gangway-tools (gangrun and the gw- tools), and one for
# each kind of loadable module. Configure with -DCMAKE_INSTALL_PREFIX=/usr to get Debian's library folder.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "Gangway")
set(CPACK_PACKAGE_CONTACT "Gangway maintainers <maintainers@gangway.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "sharded training for any language")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime development tools)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(about "Gangs of ranks and their collectives, fully sharded modules,
optimizers and model files behind a plain C ABI.")

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libgangway${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_PROVIDES "libgangway (= ${PROJECT_VERSION}-1)")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
# These scripts do not exist. They are named so that cpack does not write its own, which would call ldconfig:
# the trigger does that.
set(no_scripts ${CMAKE_CURRENT_LIST_DIR}/none/postinst ${CMAKE_CURRENT_LIST_DIR}/none/postrm)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/triggers ${no_scripts})
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "sharded training for any language: the library\n${about}")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libgangway-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME} (= ${PROJECT_VERSION}-1)")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libdnnl-dev, libssl-dev, libxxhash-dev")  # for the archive
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "sharded training for any language: headers and archive\n${about}")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME gangway-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
# gw-train uses the shared library of this build.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/capi)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME} (= ${PROJECT_VERSION}-1)")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "sharded training for any language: launcher and facts\n${about}")

# A module belongs to one build of the library, so its package depends on exactly this version. cuBLAS comes
# from NVIDIA's archive or a toolkit.
if(TARGET gangway_cuda)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
  set(CPACK_DEBIAN_CUDA_PACKAGE_NAME libgangway-cuda)
  set(CPACK_DEBIAN_CUDA_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS
    "${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME} (= ${PROJECT_VERSION}-1), libc6, libstdc++6, libgcc-s1")
  set(CPACK_DEBIAN_CUDA_PACKAGE_CONTROL_EXTRA ${no_scripts})
  set(CPACK_COMPONENT_CUDA_DESCRIPTION "sharded training for any language: module for NVIDIA GPUs\n${about}")
endif()

# One package has the modules for each MPI that was found here, of which a machine needs one only: so it
# depends on none, and a module without its MPI is not loaded.
if(TARGET gangway_openmpi OR TARGET gangway_mpich)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_NAME libgangway-mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS
    "${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME} (= ${PROJECT_VERSION}-1), libc6, libstdc++6, libgcc-s1")
  set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS "openmpi-bin | mpich")
  set(CPACK_DEBIAN_MPI_PACKAGE_CONTROL_EXTRA ${no_scripts})
  set(CPACK_COMPONENT_MPI_DESCRIPTION "sharded training for any language: modules for MPI\n${about}")
endif()
if(TARGET gangway_fabric)
  list(APPEND CPACK_COMPONENTS_ALL fabric)
  set(CPACK_DEBIAN_FABRIC_PACKAGE_NAME libgangway-fabric)
  set(CPACK_DEBIAN_FABRIC_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_FABRIC_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_FABRIC_PACKAGE_DEPENDS "${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME} (= ${PROJECT_VERSION}-1)")
  set(CPACK_DEBIAN_FABRIC_PACKAGE_CONTROL_EXTRA ${no_scripts})
  set(CPACK_COMPONENT_FABRIC_DESCRIPTION "sharded training for any language: module for libfabric\n${about}")
endif()

set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian_files.cmake)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
include(CPack)
