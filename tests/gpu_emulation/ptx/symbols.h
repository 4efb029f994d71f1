// The names of functions by their addresses, also of those that a library keeps to itself.
//
// Thread rule: any thread.
#pragma once

#include <string>

namespace gpu_emulation::ptx {

// Returns the mangled name of the function that begins at an address of a loaded file, or an empty string.
std::string name_of(const void* function);

// Takes out of a mangled name what differs between compilers: how they call an unnamed namespace.
std::string common_name(std::string name);

}  // namespace gpu_emulation::ptx
