// Operations that tell the software GPU what their kernels have to do, from the shapes of the call, before each call: the
// log then has flops and bytes of every kernel. Bytes are the least possible: every operand once.
//
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include <memory>

#include "ops/ops.h"

namespace gangway::timeline {

std::unique_ptr<Ops> make_costed_ops(std::unique_ptr<Ops> inner);

}  // namespace gangway::timeline
