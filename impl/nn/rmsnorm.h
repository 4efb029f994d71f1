// The RMS norm. Tensor parallelism needs the class, not only make_rmsnorm: where each rank has a part of
// every row, the sums over a row are sums over the ranks' parts.
//
// Thread rule: that of a module.
#pragma once

#include <memory>

#include "nn/layers.h"

namespace gangway {

// Adds up what the ranks have summed over their parts of the rows. Parallelism implements it.
class RowSums {
 public:
  virtual ~RowSums() = default;
  virtual const char* name() const = 0;
  // Replaces the sums [T], one for each row, by those of all parts.
  virtual void sum(Context& ctx, const Tensor& sums) = 0;
};

class RmsNorm final : public Module {
 public:
  RmsNorm(int64_t dim, double eps, bool owns_gradient, double offset);

  // For a norm whose weight is split: x and y are this rank's part of the rows. There must be no residual
  // then. Call it between forwards only; null: the rows are whole.
  void set_row_sums(std::shared_ptr<RowSums> sums) { row_sums_ = std::move(sums); }
  const std::shared_ptr<RowSums>& row_sums() const { return row_sums_; }

  const char* kind() const override { return "RMSNorm"; }
  void add_options(CallSignature& signature) const override;
  size_t output_count(size_t) const override { return 2; }
  size_t gradient_count() const override { return 2; }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  // Takes {dy, dsum} and returns the gradient of the sum twice: it is the gradient of x and of the residual.
  // It is not written over dsum, because pending weight tasks may read dsum. The same pass adds the weight's
  // gradient.
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;
  // Running the norm on the saved sum without a residual gives the same bits, because forward takes its
  // statistics from the sum as it was stored.
  Tensor recompute(Context& ctx, Frame& frame, int index) override;

 private:
  int64_t width() const { return parameters()[0]->shape[0]; }  // of a whole row
  int64_t local_width() const;                                 // of this rank's part of it
  void normalize(Context& ctx, RmsNormArgs args) const;
  Tensor sums_of_rows(Context& ctx, RowDotArgs args) const;
  void check(const Spec& x, const Spec& residual) const;

  const double eps_, offset_;
  const bool owns_gradient_;  // backward may write over the gradient of y
  std::shared_ptr<RowSums> row_sums_;
};

}  // namespace gangway
