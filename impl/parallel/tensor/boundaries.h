// Wrappers that move what comes into a module and what goes out of it between layouts. What they wrap is split by its
// parameters' layouts alone and knows nothing of other ranks.
//
// In backward the gradient of the output moves first, then the module's input half runs, then the gradient of the input
// moves; pending weight tasks run while either travels. In forward there is nothing to run, so a sequence may travel in
// chunks (chunks.h), while the product next to it runs on those that are at hand.
//
// Thread rule: that of a module; collective over the gang of the redistributions.
#pragma once

#include <memory>

#include "nn/embedding.h"
#include "nn/linear.h"
#include "parallel/tensor/chunks.h"

namespace gangway {

using RedistributePtr = std::shared_ptr<Redistribute>;

// `before`: of the first input, `after`: of the first output; either may be null. `chunks`: the move of `before`, in which
// it goes if the first that reads the input is a Linear.
class Boundaries : public Module {
 public:
  Boundaries(ModulePtr inner, RedistributePtr before, RedistributePtr after, ChunkedMove chunks = {});

  const char* kind() const override { return "Boundaries"; }
  bool is_wrapper() const override { return true; }
  void add_options(Facts& facts) const override;
  size_t output_count(size_t inputs) const override { return child(0).output_count(inputs); }
  size_t gradient_count() const override { return child(0).gradient_count(); }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) final;

 protected:
  Redistribute& after() const { return *after_; }
  Values prepared(Context& ctx, std::span<const Tensor> inputs, Frame* frame) const;

 private:
  Values forward_as_it_arrives(Context& ctx, std::span<const Tensor> inputs, Frame* frame) const;

  const RedistributePtr before_, after_;
  const ChunkedMove chunks_;
};

// Around a layer whose result on each rank is a part of a sum: a Linear that is split on dim 1, an Embedding that is split
// on dim 0. The part is a temporary, only the sum is kept; a bias is added to the sum, once.
class PartialSum final : public Boundaries {
 public:
  PartialSum(std::shared_ptr<Linear> linear, RedistributePtr before, RedistributePtr sum, ChunkedMove chunks);
  PartialSum(std::shared_ptr<Embedding> embedding, RedistributePtr before, RedistributePtr sum);

  const char* kind() const override { return "PartialSum"; }
  void add_options(Facts& facts) const override;
  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;

 private:
  void compute_part(Context& ctx, const Tensor& x, const Tensor& part, Frame* frame) const;
  void add_bias(Context& ctx, const Tensor& y) const;

  Linear* linear_ = nullptr;  // one of the two
  Embedding* embedding_ = nullptr;
  const ChunkedMove sum_chunks_;
};

}  // namespace gangway
