// Ops of the CPU. Each operation checks its arguments and calls a free function (ops/cpu/operations.h,
// elementwise.h, head_loss.h).
//
// Thread rule: that of Ops.
#pragma once

#include <memory>
#include <string>

#include "ops/cpu/context.h"

namespace gangway::cpu {

// Uses the processor's best instruction set, but none above `cap`.
std::unique_ptr<Ops> make_cpu_ops(const std::shared_ptr<Device>& device, Isa cap = configured_isa());

// Returns one line for each operation with its implementation, or an empty string if make_cpu_ops did not
// make `ops`.
std::string describe_cpu_paths(Ops& ops);

}  // namespace gangway::cpu
