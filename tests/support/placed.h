// Where a test finds files of the sources and of the build. A program has no folder of this machine in its
// bytes, so that it is the same program in every clone, and tests/passes.py knows what it opens: it looks for
// these names.
#pragma once

#include <string>

namespace gangway {

// `text` with the folders in place of "@source@" and "@build@". A plain pointer keeps the literal in one piece.
std::string placed(const char* text);

}  // namespace gangway
