// The second executor of kernels: the PTX that nvcc made of them, in place of their source. It judges what the
// compiler did: alignment, shared memory, barriers, the layout of parameters, and races (races.h).
//
// GPU_EMULATION_PTX names a folder of .ptx files, one for each file of kernels. Every kernel must be among
// them, by its mangled name. GPU_EMULATION_PTX_USED names a file to which each kernel's name is added when it
// is first launched.
//
// Thread rule: any thread.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "gpu_emulation/kernel.h"

namespace gpu_emulation::ptx {

// Returns whether kernels run from PTX.
bool chosen();
// Reads the PTX from this folder from now on; none if it is empty.
void choose(const std::string& folder);

// Returns what one thread of the kernel runs, for launch(). Otherwise returns an empty function, and says why
// in `why`. `kernel` is the address of the function of the same name in a loaded file.
std::function<void()> body_of(const void* kernel, const LaunchShape& shape,
                              std::span<const Argument> arguments, std::string& why);
// The same by the name that is in the PTX.
std::function<void()> body_of(const std::string& name, const LaunchShape& shape,
                              std::span<const Argument> arguments, std::string& why);

}  // namespace gpu_emulation::ptx
