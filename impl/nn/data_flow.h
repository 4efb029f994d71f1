// Declares, as data, how values flow through the children of a module. Code that must know this without
// running the module (the check of a tensor parallel plan) reads the declaration and never asks a module for
// its kind.
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
  // One child and the values that it reads. If there are several, it computes with them together, so they
  // must have the same layout over ranks.
  struct Step {
    size_t child;
    std::vector<size_t> reads;
    Pieces pieces = {};  // of the child's output
    // Whether the module passes what the child reads through a function that is not linear, so that a sum of
    // the ranks' tensors must be made before.
    bool through_nonlinear = false;
  };
  std::vector<Step> steps;  // in the order in which they run
  // The module's output: one value, or the sum of several, which must have the same layout over ranks.
  std::vector<size_t> output;
  // Whether the output for a token depends on other tokens of its sequence, so that the module needs whole
  // sequences.
  bool mixes_tokens = false;
  // Whether the module itself, not one of its children, makes its output from its input by a function that is
  // not linear.
  bool is_nonlinear = false;
  // Whether the output depends on the place of each number in the whole value, as a dropout's bits do, so
  // that the module must know which part of the value it gets.
  bool counts_places = false;
};

}  // namespace gangway
