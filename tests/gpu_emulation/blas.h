// What cuBLASLt answers on the software GPU, for tests of code that chooses among its algorithms.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace gpu_emulation {

// One algorithm.
struct Answer {
  double milliseconds = 0;  // that a product takes, by the clock of events (queue.h)
  uint32_t splits = 1;      // parts of each sum
  bool backwards = false;   // adds up each sum from its end, which gives other bits
  bool refused = false;     // the product refuses it
  bool invalid = false;     // its state is not success
};
// Lets cuBLASLt answer with these, of which each has its index as Entry::answer of the log. None: with one
// that takes no time, as at first.
void plant_answers(std::vector<Answer> answers);

}  // namespace gpu_emulation
