// Dropout by counter: the random bits follow from a key and from each number's place in the global batch,
// which is its row, its token in the whole sequence and its column. Every mesh, every number of microbatches
// and a recomputation therefore drop the same numbers.
//
// Thread rule: that of a module.
#pragma once

#include "nn/module.h"

namespace gangway {

// The part of a value [batch, sequence, width] that this rank of tensor parallelism has, of equal parts.
struct ValuePart {
  enum class Along : uint8_t { none, sequence, width } along = Along::none;  // none: it has the whole
  int rank = 0, ranks = 1;
};

// Writes x to y, with each number zero with the probability, and else divided by 1 - probability; y may be x.
// All dims of x but the last (but those after the second one, if there are four or more) count rows and
// tokens: each of the context's rows has equally many tokens. Ranks of context parallelism have their tokens
// of the sequence (Context::documents).
void drop(Context& ctx, uint64_t key, double probability, const ValuePart& part, const Tensor& x,
          const Tensor& y);

class Dropout final : public Module {
 public:
  Dropout(double probability, bool owns_input);

  // For a module whose values are parts. Call it between forwards only.
  void set_part(const ValuePart& part) { part_ = part; }
  const ValuePart& part() const { return part_; }

  const char* kind() const override { return "Dropout"; }
  void add_options(CallSignature& signature) const override { signature.add("probability", probability_); }
  std::optional<DataFlow> data_flow() const override {
    return DataFlow{.steps = {}, .output = {DataFlow::kInput}, .counts_places = probability_ != 0};
  }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  // Nothing is saved: the bits follow from the context.
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;

 private:
  void check(const Spec& x) const;

  const double probability_;
  const bool owns_input_;  // forward may write over x
  ValuePart part_;
};

}  // namespace gangway
