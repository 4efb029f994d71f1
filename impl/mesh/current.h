// The gangs that a thread works with at present: each thread has a stack, and one default for each device.
// Only capi and mesh read it. Everything here is local.
//
// Thread rule: any thread, each with its own stack and defaults.
#pragma once

#include <string>

#include "mesh/gangs.h"

namespace gangway {

void push_current_gangs(GangsPtr gangs);  // INVALID_ARGUMENT: `gangs` is null
// INVALID_STATE: the stack is empty, or its top is not `gangs`.
void pop_current_gangs(const Gangs* gangs);

// Returns the top of this thread's stack, or null.
GangsPtr maybe_current_gangs();
// Returns the top of this thread's stack. If the stack is empty, returns the device's default: what
// set_default_gangs() gave, or fake gangs of one rank, which the first call makes.
GangsPtr current_gangs(const std::string& device);
// Sets the device's default. Null means fake gangs again.
void set_default_gangs(const std::string& device, GangsPtr gangs);

}  // namespace gangway
