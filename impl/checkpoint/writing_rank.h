// Which of the ranks that hold equal rows of a tensor writes them to a file.
//
// Thread rule: pure functions.
#pragma once

#include "mesh/gangs.h"
#include "tensor/layout.h"

namespace gangway {

// Returns whether this rank writes its rows of a tensor of this layout: of the ranks that have the same rows
// the first one does, the one with coordinate 0 on every axis that does not split the tensor.
bool writes_rows(const Layout& layout, const Gangs& gangs);

}  // namespace gangway
