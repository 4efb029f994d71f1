// What this machine is and can do by itself: processor, instruction sets, one core's matrix product and copy
// rates, how long a flag takes from core to core.
//
// Thread rule: one thread; flag_latency() and copy rates over all cores start threads of their own.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace gangway::bench {

struct Machine {
  std::string processor;         // as the kernel names it
  std::string instruction_sets;  // of those that matter here
  int cores = 0;                 // that this process may use
  double memory_bytes = 0;
  double gemm_f32 = 0, gemm_bf16 = 0;  // FLOP/s of one core, oneDNN, best of several sizes; 0: none
  double copy_one = 0, copy_all = 0;   // bytes/s beyond the caches, one core and all together
  std::string copy_method;             // of copy_one
  double flag_latency = 0;             // seconds, one way, first core to second
};

Machine probe_machine();
void print(const Machine& machine);
nlohmann::json json_of(const Machine& machine);

// Best of `repeats` bursts of a ping-pong between two threads on the first two cores, one way; NaN with one
// core.
double flag_latency(int repeats = 3);

}  // namespace gangway::bench
