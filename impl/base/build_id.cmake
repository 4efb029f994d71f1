# Writes OUT: a header with one string, the build id. It is a hash of what a loadable module shares with the
# core: the headers in HEADERS, and the COMPILER. With LIBRARY it is the source of library_build() instead,
# over the files that the file SOURCES lists. An
# OUT that has the same id already is not written again.
cmake_policy(SET CMP0053 NEW)  # @id@ is left to file(CONFIGURE)
if(SOURCES)
  file(READ ${SOURCES} HEADERS)
endif()
set(all "${COMPILER}")
foreach(header IN LISTS HEADERS)
  file(SHA256 ${header} hash)
  string(APPEND all "${hash}")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 16 id)
if(LIBRARY)
  file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT
    "// Generated.\n#include \"base/library_build.h\"\n\nnamespace gangway {\nconst char* library_build() { return \"@id@\"; }\n}  // namespace gangway\n")
else()
  file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT
    "// Generated.\n#pragma once\n\nnamespace gangway {\ninline constexpr char kBuildId[] = \"@id@\";\n}  // namespace gangway\n")
endif()
