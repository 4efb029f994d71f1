// The gangs that a thread works with at present: a stack per thread, and one default per device and thread.
// Nothing below capi and mesh reads it. Everything here is local. Thread
// rule: any thread, each with its own stack and defaults.
#pragma once

#include <string>

#include "mesh/gangs.h"

namespace gangway {

void push_current_gangs(GangsPtr gangs);  // INVALID_ARGUMENT: null
// INVALID_STATE: the stack is empty, or its top is another one.
void pop_current_gangs(const Gangs* gangs);

// The top of this thread's stack, or null.
GangsPtr maybe_current_gangs();
// The top of this thread's stack, else the device's default: what set_default_gangs() gave, or fake gangs of
// one made at the first call.
GangsPtr current_gangs(const std::string& device);
void set_default_gangs(const std::string& device, GangsPtr gangs);  // null: back to the fake ones

}  // namespace gangway
