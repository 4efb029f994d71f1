// A step that is computed twice: a processor or a memory that computes wrongly gives other bits the second
// time, while everything in this library repeats bit by bit.
//
// Thread rule: one thread at a time; local.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/model/model.h"

namespace gangway {

// The bits of this rank's gradients, and of its sum of losses, after a backward.
class StepBits {
 public:
  // Waits for the device. Call it after finish_gradients.
  StepBits(Model& model, double loss, Stream& stream);
  // MISMATCH: `again` has other bits; the text names the first parameter whose gradient differs.
  void check(const StepBits& again, int rank) const;

 private:
  struct Gradient {
    std::string name;
    uint64_t hash;
  };
  double loss_;
  std::vector<Gradient> gradients_;
};

}  // namespace gangway
