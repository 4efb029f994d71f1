// How values go through the children of a module, as data beside its forward. Code that must know a module's
// wiring without running it (the check of a tensor parallel plan) reads this declaration and asks no module
// for its kind.
//
// Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gangway {

struct DataFlow {
  // A value is named by the index of the child whose first output it is; kInput is the module's own first
  // input.
  static constexpr size_t kInput = SIZE_MAX;

  // The last dim of a value consists of `count` equal pieces, and a piece must stay whole on one rank.
  struct Pieces {
    int64_t count = 0;  // 0: the dim may be cut anywhere
    const char* name = "";
  };
  // One child reads these values. Where they are several it computes with them together, so they must lie
  // alike.
  struct Step {
    size_t child;
    std::vector<size_t> reads;
    Pieces pieces = {};  // of the child's output
  };
  std::vector<Step> steps;  // in the order in which they run
  // The module's output: one value, or the sum of several, which must lie alike.
  std::vector<size_t> output;
  // Each token's output depends on other tokens of its sequence, so the module needs whole sequences.
  bool mixes_tokens = false;
};

}  // namespace gangway
