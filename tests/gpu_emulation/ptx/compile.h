// From the text of a function to a Program.
//
// Thread rule: pure function.
#pragma once

#include "gpu_emulation/ptx/program.h"
#include "gpu_emulation/ptx/source.h"

namespace gpu_emulation::ptx {

// Throws std::runtime_error with the file and the line for an instruction that is not understood. Functions
// that the kernel calls are put in its place.
Program compile(const Source& source, const std::string& name);
// Runs a thread of the grid from the first instruction to its end.
void execute(State& state);

}  // namespace gpu_emulation::ptx
