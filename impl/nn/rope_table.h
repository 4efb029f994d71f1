// cos and sin of the rotary angles, made in f64 on the host on first use and shared by all blocks of a model.
// Llama-3 scaling as Hugging Face's `rope_type: llama3`.
// Thread rule: that of the model.
#pragma once

#include "nn/layers.h"

namespace gangway {

// Radians per position of pair i < K / 2: theta^(-2 i / K), scaled.
std::vector<double> rope_frequencies(const RopeOptions& options, int64_t head_dim);

class RopeTable {
 public:
  // INVALID_ARGUMENT: an odd head_dim, a theta or factors that make no sense.
  RopeTable(const RopeOptions& options, int64_t head_dim);

  struct Pair {
    Tensor cos, sin;  // [at least positions, K / 2]; f32, f64 for f64
  };
  Pair get(Context& ctx, DType compute, int64_t positions);
  const RopeOptions& options() const { return options_; }
  const Pair& made() const { return tables_; }  // absent before the first get

 private:
  RopeOptions options_;
  int64_t head_dim_;
  std::vector<double> frequencies_;  // empty before the first get: a description takes no memory
  Pair tables_;
};

}  // namespace gangway
