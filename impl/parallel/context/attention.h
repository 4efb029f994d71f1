// Attention whose queries, keys and values are split along the sequence over the ranks of a gang: what stands in place of
// nn's AttentionCore. Each method is one class in one file (ring.cpp, all_gather.cpp, all_to_all.cpp) that says how
// queries meet the keys of other ranks. All split the sequence by balance.h, so they may be exchanged for each other and
// give the same numbers up to rounding.
//
// Saved activations are this rank's own pieces. What was received in forward is received again in backward.
//
// Thread rule: that of a module; forward and backward are collective over the gang, on its channel `cp`.
#pragma once

#include <memory>
#include <span>

#include "gang/gang.h"
#include "nn/attention_core.h"
#include "parallel/context/balance.h"
#include "parallel/options.h"

namespace gangway {

const char* name(ContextMethod method) noexcept;

// Positions of this rank's tokens on the device, made at first use and shared by the layers of a model.
class LocalPositions {
 public:
  LocalPositions(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  Tensor get(Context& ctx, int64_t tokens);
  const Tensor& made() const { return rows_; }  // absent before the first get

 private:
  const int rank_, ranks_;
  Tensor rows_;
};

class ContextAttention : public AttentionCore {
 public:
  ContextAttention(const AttentionCoreOptions& options, GangPtr gang,
                   std::shared_ptr<LocalPositions> positions)
      : AttentionCore(options), gang_(std::move(gang)), positions_(std::move(positions)) {}

  int ranks() const { return gang_->size(); }
  // INVALID_ARGUMENT: the method cannot divide so many heads.
  virtual void check_heads(int64_t /*heads*/, int64_t /*kv_heads*/) const {}

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Positions positions(Context& ctx, int64_t tokens) override;
  Values tables() const override { return {positions_->made()}; }

 protected:
  // Over two ranks or more, with at least one token; otherwise as attend and attend_backward of AttentionCore.
  virtual void attend_across(Context& ctx, const AttentionArgs& args) = 0;
  virtual void attend_across_backward(Context& ctx, const AttentionBackwardArgs& args, Frame& frame) = 0;

  int rank() const { return gang_->rank(); }
  // One launch. `in` and `out` are contiguous and stay until order() has been called.
  WorkPtr start(Context& ctx, std::span<const Collective> records) const;
  // Later work on the context's stream comes after it.
  void order(Context& ctx, const WorkPtr& work) const;
  // The same, with weight tasks of `frame` run meanwhile.
  void order(Context& ctx, const WorkPtr& work, Frame& frame) const;

 private:
  void attend(Context& ctx, const AttentionArgs& args) final;
  void attend_backward(Context& ctx, const AttentionBackwardArgs& args, Frame& frame) final;

  const GangPtr gang_;
  const std::shared_ptr<LocalPositions> positions_;
};

std::shared_ptr<ContextAttention> make_context_attention(ContextMethod method,
                                                         const AttentionCoreOptions& options, GangPtr gang,
                                                         std::shared_ptr<LocalPositions> positions);

// One for each method, in its own file.
using ContextAttentionMaker = std::shared_ptr<ContextAttention> (*)(
    const AttentionCoreOptions& options, GangPtr gang, std::shared_ptr<LocalPositions> positions);
std::shared_ptr<ContextAttention> make_ring_attention(const AttentionCoreOptions& options, GangPtr gang,
                                                      std::shared_ptr<LocalPositions> positions);
std::shared_ptr<ContextAttention> make_all_gather_attention(const AttentionCoreOptions& options, GangPtr gang,
                                                            std::shared_ptr<LocalPositions> positions);
std::shared_ptr<ContextAttention> make_all_to_all_attention(const AttentionCoreOptions& options, GangPtr gang,
                                                            std::shared_ptr<LocalPositions> positions);

// Puts a method in place of every attention core below `root`. Local, but all ranks of the gang do the same. `tp`: the
// tensor parallel degree that divides the heads as well. A gang of one rank changes nothing. Refuses before anything
// changes. INVALID_ARGUMENT: no attention below root, heads that the method cannot divide. INVALID_STATE: it is applied
// already.
void apply_context(const ModulePtr& root, const GangPtr& gang, ContextMethod method, int tp = 1);
// What apply_context refuses; nothing changes.
void check_context(const ModulePtr& root, const GangPtr& gang, ContextMethod method, int tp = 1);
// Whether there is attention below `root` and every core is spread over so many ranks.
bool is_context_parallel(const ModulePtr& root, int ranks);

}  // namespace gangway
