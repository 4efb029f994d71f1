// The data layer holds token files, their rows, the order in which a training reads them, and the thread that
// reads ahead. Tensors, gangs and anything that computes do not belong here: a caller says which rows of a
// batch it wants.
//
// This header declares a permutation that needs no list: each image is computed on its own, so that the rows
// of 10^12 tokens are shuffled without a start-up time.
//
// Thread rule: values; const functions from any thread.
#pragma once

#include <cstdint>

namespace gangway::data {

// A permutation of 0 .. count - 1. It is a balanced Feistel network of eight rounds on 2k bits, where 4^k is
// the smallest power of four that holds `count` (k is at least 3); round r maps (left, right) to (right, left
// XOR F), where F is the low k bits of word 0 of philox(key, r * 2^32 + right). A number that leaves the
// range is mapped again until it is inside (cycle walking), which takes less than four maps on average if
// count is over 16.
class Permutation {
 public:
  Permutation(uint64_t count, uint64_t key);
  uint64_t operator()(uint64_t i) const;  // i is below count

 private:
  uint64_t count_, key_;
  int half_bits_ = 3;
};

// Derives the key of a part from the key of the whole: words 0 and 1 of philox(key, part).
uint64_t derived_key(uint64_t key, uint64_t part);

}  // namespace gangway::data
