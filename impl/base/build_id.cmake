# Writes OUT: a header with one string that names everything a loadable module shares with the core, by a hash of the
# headers in HEADERS and of the COMPILER. Left alone when it says the same already.
set(all "${COMPILER}")
foreach(header IN LISTS HEADERS)
  file(SHA256 ${header} hash)
  string(APPEND all "${hash}")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 16 id)
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT
  "// Generated.\n#pragma once\n\nnamespace gangway {\ninline constexpr char kBuildId[] = \"@id@\";\n}  // namespace gangway\n")
