# Installs a loadable module, which the library does without. `cmake --install` builds nothing, and the
# targets that were built may not include the module: it is then left out, and a line says so.
function(gangway_install_module target component)
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} OPTIONAL)
  install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
    message(WARNING \"$<TARGET_FILE_NAME:${target}> is not built, so it is not installed; `cmake --build ${PROJECT_BINARY_DIR} --target ${target}` builds it\")
  endif()" COMPONENT ${component})
endfunction()
