// Tables of the cosines and sines of the rotary angles. The host computes them in f64 on first use; all
// blocks of a model share them. Llama-3 scaling is that of Hugging Face's `rope_type: llama3`.
//
// Thread rule: that of the model.
#pragma once

#include "nn/layers.h"

namespace gangway {

// Returns the radians per position of each pair i < K / 2: theta^(-2 i / K), with Llama-3 scaling if
// options.factor > 1.
std::vector<double> rope_frequencies(const RopeOptions& options, int64_t head_dim);

class RopeTable {
 public:
  // INVALID_ARGUMENT: head_dim is odd or below 2, theta is not above 0, factor is below 1, or another scaling
  // factor is out of range.
  RopeTable(const RopeOptions& options, int64_t head_dim);

  struct Pair {
    Tensor cos, sin;  // [at least `positions` rows, K / 2]; f64 if compute is f64, else f32
  };
  // Returns the tables on the context's device; makes them if the last ones are too short or differ in dtype
  // or device.
  Pair get(Context& ctx, DType compute, int64_t positions);
  const RopeOptions& options() const { return options_; }
  const Pair& made() const { return tables_; }  // the last tables; absent before the first get()

 private:
  RopeOptions options_;
  int64_t head_dim_;
  std::vector<double> frequencies_;  // empty before the first get(), so that building a model takes no memory
  Pair tables_;
};

}  // namespace gangway
