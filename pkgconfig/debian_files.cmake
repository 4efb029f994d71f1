# cpack runs this file before it closes a package. It adds what Debian requires of a package and a plain
# installation does not have: a copyright file and a changelog, compressed man pages, and an archive without
# debug information.
cmake_policy(VERSION 3.25)
set(packages_runtime ${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME})
set(packages_development libgangway-dev)
set(packages_tools gangway-tools)
set(packages_cuda libgangway-cuda)
set(packages_mpi libgangway-mpi)
set(packages_fabric libgangway-fabric)
set(copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: gangway

Files: *
Copyright: 2026 The Gangway authors
License: Apache-2.0
 On Debian systems the text of this license is in
 /usr/share/common-licenses/Apache-2.0.
")
foreach(component runtime development tools cuda mpi fabric)
  set(root "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}")
  if(NOT IS_DIRECTORY "${root}/usr")
    continue()
  endif()
  set(package ${packages_${component}})
  set(folder "${root}/usr/share/doc/${package}")
  file(MAKE_DIRECTORY "${folder}")
  file(WRITE "${folder}/copyright" "${copyright}")
  file(WRITE "${folder}/changelog.Debian" "gangway (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Release ${CPACK_PACKAGE_VERSION}.

 -- ${CPACK_PACKAGE_CONTACT}  Thu, 01 Jan 2026 00:00:00 +0000
")
  file(GLOB_RECURSE pages "${root}/usr/share/man/*.[13]")
  foreach(file "${folder}/changelog.Debian" ${pages})
    execute_process(COMMAND gzip -9nf "${file}" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  file(GLOB_RECURSE archives "${root}/usr/lib/*.a")
  foreach(file ${archives})
    execute_process(COMMAND strip --strip-debug --enable-deterministic-archives "${file}" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endforeach()
