// Where an instruction is, for reports.
//
// Thread rule: pure function.
#pragma once

#include "gpu_emulation/kernel.h"
#include "gpu_emulation/ptx/program.h"

namespace gpu_emulation::ptx {

inline Site site(const Instruction& i, const State& s, const char* what, bool orders_memory = false,
                 bool whole_warp = false) {
  return {what, s.program->file.c_str(), i.line, orders_memory, whole_warp};
}

}  // namespace gpu_emulation::ptx
