// Tables of the cosines and sines of the rotary angles. The host computes them in f64 on first use; all
// blocks of a model share them. The scalings are those of Hugging Face's rope_type.
//
// Thread rule: that of the model.
#pragma once

#include "nn/documents.h"
#include "nn/layers.h"

namespace gangway {

// Returns how many elements of a head turn: 0, or an even number.
int64_t rotary_width(const RopeOptions& options, int64_t head_dim);
// Returns the radians per position of each pair i < R / 2, R = rotary_width: theta^(-2 i / R), scaled.
// `long_sequence`: which factors longrope takes.
std::vector<double> rope_frequencies(const RopeOptions& options, int64_t head_dim,
                                     bool long_sequence = false);
// Returns the factor of cosines and sines.
double rope_attention_factor(const RopeOptions& options);
// Adds all options. Ranks compare them.
void add_options(const RopeOptions& options, CallSignature& signature);

// The length up to which a document takes longrope's short factors.
ShortLength short_length(const RopeOptions& options);

class RopeTable {
 public:
  // INVALID_ARGUMENT: theta is not above 0, the turning part of head_dim is odd, factor is below 1, or a
  // scaling cannot work with its options.
  RopeTable(const RopeOptions& options, int64_t head_dim);

  struct Pair {
    Tensor cos, sin;  // [at least `positions` rows, R / 2]; f64 if compute is f64, else f32
  };
  // Returns the tables on the context's device; makes them if the last ones are too short, or differ in dtype
  // or device. `positions`: every position is below it. Long documents have rows of their own
  // (short_length), so that they may lie beside short ones.
  Pair get(Context& ctx, DType compute, int64_t positions);
  // The positions of the context's rows in these tables.
  Positions positions(Context& ctx, int64_t tokens) const {
    return positions_of(ctx, tokens, alone_, short_length(options_));
  }
  bool turns() const { return rotary_width(options_, head_dim_) != 0; }
  const RopeOptions& options() const { return options_; }
  // The last tables, and positions for a context without documents; absent before the first get().
  Values made() const;

 private:
  RopeOptions options_;
  int64_t head_dim_;
  Pair table_;
  const Documents alone_;  // for a context without documents
};

}  // namespace gangway
