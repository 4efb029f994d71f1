# Writes OUT: a header with one string, the build id. It is a hash of what a loadable module shares with the
# core: the headers in HEADERS, and the COMPILER. An OUT that has the same id already is not written again.
set(all "${COMPILER}")
foreach(header IN LISTS HEADERS)
  file(SHA256 ${header} hash)
  string(APPEND all "${hash}")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 16 id)
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT
  "// Generated.\n#pragma once\n\nnamespace gangway {\ninline constexpr char kBuildId[] = \"@id@\";\n}  // namespace gangway\n")
