// Ops of the CPU: checks, then one free function of ops/cpu/<family>.h for each operation.
// Thread rule: that of Ops.
#pragma once

#include <memory>
#include <string>

#include "ops/cpu/context.h"

namespace gangway::cpu {

// The instruction set is the processor's best, but not above `cap`.
std::unique_ptr<Ops> make_cpu_ops(const std::shared_ptr<Device>& device, Isa cap = configured_isa());

// One line per operation with its path; `ops` was made by make_cpu_ops, else an empty string.
std::string describe_cpu_paths(Ops& ops);

}  // namespace gangway::cpu
