#include "parallel/context/attention.h"

#include <algorithm>
#include <vector>

namespace gangway {
namespace {

struct Method {
  const char* name;
  ContextAttentionMaker make;
};

Method method_of(ContextMethod method) {
  switch (method) {
    case ContextMethod::ring: return {"ring", make_ring_attention};
    case ContextMethod::all_gather: return {"all_gather", make_all_gather_attention};
    case ContextMethod::all_to_all: return {"all_to_all", make_all_to_all_attention};
  }
  fail(Code::invalid_argument, "context method ", static_cast<int>(method), " is unknown (0 to 2)");
}

std::vector<NamedModule> cores_of(const ModulePtr& root) {
  std::vector<NamedModule> cores = named_modules(root);
  std::erase_if(cores,
                [](const NamedModule& m) { return dynamic_cast<AttentionCore*>(m.module.get()) == nullptr; });
  return cores;
}

}  // namespace

const char* name(ContextMethod method) noexcept {
  const auto number = static_cast<int>(method);
  return number < 0 || number > 2 ? "unknown" : method_of(method).name;
}

Specs ContextAttention::check_forward(Context& ctx, std::span<const Spec> inputs) {
  Specs out = AttentionCore::check_forward(ctx, inputs);
  const int64_t tokens = inputs[0].shape[1];
  if (tokens % 2 != 0)
    fail(Code::invalid_argument, kind(), " ", full_name(), ": each of ", ranks(), " ranks has ", tokens,
         " tokens of a sequence, wanted an even number: the whole sequence is cut in ", 2 * ranks(),
         " equal chunks");
  check_heads(inputs[0].shape[2], inputs[1].shape[2]);
  return out;
}

WorkPtr ContextAttention::start(Context& ctx, std::span<const Collective> records) const {
  return gang_->run(Channel::cp, records, &ctx.stream);
}

void ContextAttention::order(Context& ctx, const WorkPtr& work) const {
  work->order(ctx.stream);
  work->order_input(ctx.stream);
}

void ContextAttention::order(Context& ctx, const WorkPtr& work, Frame& frame) const {
  if (!ctx.defer_weight) frame.run_weight_gradients(ctx);
  order(ctx, work);
}

namespace {
// Without tokens nothing is masked, but the operation would refuse ranges of another shape.
template <typename Args>
Args without_ranges(Args args) {
  args.first_key = args.end_key = {};
  return args;
}
}  // namespace

void ContextAttention::attend(Context& ctx, const AttentionArgs& args) {
  // With a cache every rank reads all tokens.
  if (ranks() == 1 || ctx.cache != nullptr) return AttentionCore::attend(ctx, args);
  if (args.q.count() == 0) return AttentionCore::attend(ctx, without_ranges(args));
  StackScope scope(ctx.temporaries);
  attend_across(ctx, args);
}

void ContextAttention::attend_backward(Context& ctx, const AttentionBackwardArgs& args, Frame& frame) {
  if (ranks() == 1) return AttentionCore::attend_backward(ctx, args, frame);
  if (args.q.count() == 0) return AttentionCore::attend_backward(ctx, without_ranges(args), frame);
  StackScope scope(ctx.temporaries);
  attend_across_backward(ctx, args, frame);
}

std::shared_ptr<ContextAttention> make_context_attention(ContextMethod method,
                                                         const AttentionCoreOptions& options, GangPtr gang) {
  return method_of(method).make(options, std::move(gang));
}

namespace {

// Returns one replacement for each core, in the order of cores_of.
std::vector<std::shared_ptr<ContextAttention>> context_cores(const ModulePtr& root, const GangPtr& gang,
                                                             ContextMethod method, int tp) {
  if (root == nullptr || gang == nullptr)
    fail(Code::invalid_argument, "apply_context: the ", root == nullptr ? "module" : "gang", " is null");
  const std::vector<NamedModule> cores = cores_of(root);
  if (cores.empty()) fail(Code::invalid_argument, "apply_context: ", root->kind(), " holds no attention");
  std::vector<std::shared_ptr<ContextAttention>> made;
  for (const NamedModule& core : cores) {
    const auto& dense = dynamic_cast<const AttentionCore&>(*core.module);
    if (core.parent == nullptr)
      fail(Code::invalid_argument,
           "apply_context: the root is an attention core itself; give the module around it");
    if (dynamic_cast<const ContextAttention*>(&dense) != nullptr)
      fail(Code::invalid_state, "apply_context: ", core.path, " is spread over ranks already");
    made.push_back(make_context_attention(method, dense.options(), gang));
    for (size_t i = 0; i < dense.parameters().size(); ++i)
      made.back()->set_parameter(i, dense.parameters()[i]);
    made.back()->set_full_name(dense.full_name());
    made.back()->check_heads(dense.options().heads / tp, dense.options().kv_heads / tp);
  }
  return made;
}

}  // namespace

void check_context(const ModulePtr& root, const GangPtr& gang, ContextMethod method, int tp) {
  context_cores(root, gang, method, tp);
}

void apply_context(const ModulePtr& root, const GangPtr& gang, ContextMethod method, int tp) {
  const auto made = context_cores(root, gang, method, tp);
  if (gang->size() == 1) return;
  const std::vector<NamedModule> cores = cores_of(root);
  for (size_t i = 0; i < cores.size(); ++i) cores[i].parent->set_child(cores[i].index, made[i]);
}

bool is_context_parallel(const ModulePtr& root, int ranks) {
  const std::vector<NamedModule> cores = cores_of(root);
  return !cores.empty() && std::all_of(cores.begin(), cores.end(), [&](const NamedModule& core) {
    const auto* spread = dynamic_cast<const ContextAttention*>(core.module.get());
    return spread != nullptr && spread->ranks() == ranks;
  });
}

}  // namespace gangway
