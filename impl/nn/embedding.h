// The embedding layer. Tensor parallelism needs the class, not only make_embedding: it computes with the rows
// and columns of the table that this device has. An id whose row another device has gives zeros.
//
// Thread rule: that of a module.
#pragma once

#include "nn/layers.h"

namespace gangway {

class Embedding final : public Module {
 public:
  Embedding(int64_t rows, int64_t dim, double deviation, double scale);

  const char* kind() const override { return "Embedding"; }
  void add_options(CallSignature& signature) const override { signature.add("scale", scale_); }
  bool is_linear() const override { return true; }
  bool backward_reads_values() const override { return false; }
  std::vector<IdRule> id_rules() const override;

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;
  void backward_weight(Context& ctx, Frame& frame, int index, const Tensor& dy) override;

  // Writes the output of forward into `y`.
  void look_up(Context& ctx, const Tensor& ids, const Tensor& y, Frame* frame);

  Parameter& weight() const;

 private:
  Shape rows_of(const Shape& ids) const;  // shape of the output: one row of the table for each id
  void check(const Spec& ids) const;

  const double scale_;
};

}  // namespace gangway
