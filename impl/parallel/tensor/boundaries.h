// Wrappers that redistribute the inputs and outputs of a module between layouts. The wrapped module computes
// with the parts that the layouts of its parameters leave on this rank, and knows nothing of other ranks.
//
// Backward first redistributes the gradient of the output, then runs the input half of the module's backward,
// then redistributes the gradient of the input. Deferred weight gradients run while either redistribution is
// on its way. Forward has no such work, so it can send a sequence in chunks (chunks.h) instead: the product
// next to the redistribution computes with the chunks that have arrived.
//
// Thread rule: that of a module; collective over the gang of the redistributions.
#pragma once

#include <memory>

#include "nn/embedding.h"
#include "nn/linear.h"
#include "parallel/tensor/chunks.h"
#include "parallel/tensor/coded_gather.h"

namespace gangway {

using RedistributePtr = std::shared_ptr<Redistribute>;

// `before` redistributes the first input, further[i] the input i + 1, and `after` the first output; each may
// be null. `chunks` redistributes one chunk as `before` does the whole input; it is used if the first module
// that reads the input is a Linear. `codes` gathers the input in place of `before`, in chunks or whole, if
// only layers in FP8 read it.
class Boundaries : public Module {
 public:
  Boundaries(ModulePtr inner, RedistributePtr before, RedistributePtr after, ChunkedMove chunks = {},
             std::vector<RedistributePtr> further = {}, std::shared_ptr<CodedGather> codes = nullptr);

  const char* kind() const override { return "Boundaries"; }
  bool is_wrapper() const override { return true; }
  void add_options(CallSignature& signature) const override;
  size_t output_count(size_t inputs) const override { return child(0).output_count(inputs); }
  size_t gradient_count() const override { return child(0).gradient_count(); }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) final;
  void add_backward(Context& ctx, const Tensor& dy, Frame& frame, const Tensor& dx) final;
  Tensor recompute(Context& ctx, Frame& frame, int index) final;

 protected:
  Redistribute& after() const { return *after_; }
  Values prepared(Context& ctx, std::span<const Tensor> inputs, Frame* frame) const;

 private:
  Values forward_inner(Context& ctx, std::span<const Tensor> inputs, Frame* frame);
  Values forward_as_it_arrives(Context& ctx, std::span<const Tensor> inputs, Frame* frame) const;
  Values forward_codes(Context& ctx, std::span<const Tensor> inputs, Frame* frame,
                       const std::vector<Linear*>& layers);
  // INVALID_ARGUMENT: there are fewer inputs than the plan prepares.
  void check_count(size_t inputs) const;
  // Replaces the inputs after the first.
  void move_further(Context& ctx, Values& x, Frame* frame) const;

  const RedistributePtr before_, after_;
  const ChunkedMove chunks_;
  const std::vector<RedistributePtr> further_;
  const std::shared_ptr<CodedGather> codes_;
};

// Wraps a layer whose result on each rank is one addend of a sum: a Linear that is split on dim 1, or an
// Embedding that is split on dim 0. The addend is a temporary and only the sum is kept. A bias is added once,
// to the sum, unless the layer hands it out.
class PartialSum final : public Boundaries {
 public:
  PartialSum(std::shared_ptr<Linear> linear, RedistributePtr before, RedistributePtr sum, ChunkedMove chunks);
  PartialSum(std::shared_ptr<Embedding> embedding, RedistributePtr before, RedistributePtr sum);

  const char* kind() const override { return "PartialSum"; }
  void add_options(CallSignature& signature) const override;
  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;

 private:
  void compute_part(Context& ctx, const Tensor& x, const Tensor& part, Frame* frame) const;
  void add_bias(Context& ctx, const Tensor& y) const;

  Linear* linear_ = nullptr;  // exactly one of these two is set
  Embedding* embedding_ = nullptr;
  const ChunkedMove sum_chunks_;
};

}  // namespace gangway
