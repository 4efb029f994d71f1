// Computations that do not belong to this library in place of a block: a custom module, and a shard group
// whose owner computes by itself.
#include <set>

#include "nn/custom.h"
#include "nn/layers.h"
#include "optim/optimizer.h"
#include "parallel/reference_run.h"
#include "parallel/shard_group.h"

namespace gangway::test {
namespace {

constexpr Strategy kStrategies[] = {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard};

// y = s * child(x), where s has one value per feature. The test computes both halves of the backward.
class Scaled final : public CustomBehaviour {
 public:
  std::vector<Spec> shapes(Custom&, Context&, std::span<const Spec> inputs) override { return {inputs[0]}; }
  void forward(Call& call) override {
    const Tensor y = child(call).forward_one(call.ctx, call.inputs[0], call.frame);
    const Vector made = get(y), s = get(call.parameters[0]->value);
    Vector out = made;
    for (size_t i = 0; i < out.size(); ++i) out[i] *= s[i % s.size()];
    put(call.outputs[0], out);
    call.state = new Vector(made);
  }
  void backward_input(Call& call) override {
    const Vector s = get(call.parameters[0]->value), dy = get(call.output_grads[0]);
    const Tensor inner =
        call.frame->allocate_gradient(call.output_grads[0].dtype(), call.output_grads[0].shape());
    Vector scaled = dy;
    for (size_t i = 0; i < dy.size(); ++i) scaled[i] *= s[i % s.size()];
    put(inner, scaled);
    put(call.input_grads[0], get(child(call).backward_one(call.ctx, inner, *call.frame)));
  }
  bool has_backward_weight() const override { return true; }
  void backward_weight(Call& call) override {
    const Vector& made = *static_cast<Vector*>(call.state);
    const Vector dy = get(call.output_grads[0]);
    Vector sum = get(call.parameters[0]->grad->tensor);
    for (size_t i = 0; i < dy.size(); ++i) sum[i % sum.size()] += dy[i] * made[i];
    put(call.parameters[0]->grad->tensor, sum);
  }
  void free_state(void* state) noexcept override { delete static_cast<Vector*>(state); }
  bool accepts(DType compute) const override { return compute != DType::bf16; }

 private:
  static Module& child(Call& call) { return call.module.child(0); }
};

AttentionOptions small_attention() {
  return {.dim = 6, .heads = 3, .kv_heads = 1, .head_dim = 2, .rope = {}, .deviation = 0.3};
}
ModulePtr small_block() { return make_block({small_attention(), 5}); }

ModulePtr with_custom() {
  CustomOptions options;
  options.name = "Scaled";
  options.parameters = {{"scale", Shape{6}, Init::normal(1)}};
  options.children = {{"block", small_block()}};
  return make_sequential({small_block(), make_custom(options, std::make_shared<Scaled>()), small_block()});
}
const ReferenceRun kCustom{with_custom, Shape{2, 5, 6}};

// The caller chooses the name of a custom module, so the name must not tell what the module is.
TEST(Parallelize, ACustomModuleMayHaveTheNameOfALayer) {
  run_ranks(2, [](Gang& root) {
    CustomOptions linear;
    linear.name = "Linear";
    linear.parameters = {{"scale", Shape{6}, Init::ones()}, {"bias", Shape{6}, Init::ones()}};
    linear.children = {{"inner", make_linear(6, 6, false)}};
    CustomOptions block = linear;
    block.name = "Block";
    block.children = {{"inner", small_block()}};
    const auto behaviour = std::make_shared<Scaled>();
    Model model(make_sequential({make_custom(linear, behaviour), make_custom(block, behaviour)}),
                mesh_of(root));
    ParallelOptions options;
    options.recompute.kind = RecomputeKind::full;
    options.master_dtype = DType::f64;
    options.shard.dtype_rules = {{"0.scale", DType::f32}};  // a Linear would refuse it beside a bias in f64
    model.build().parallelize(options);
    std::vector<std::string> recomputed;
    for (const NamedModule& named : named_modules(model.root().shared_from_this()))
      if (std::string_view(named.module->kind()) == "Recompute") recomputed.push_back(named.path);
    EXPECT_EQ(recomputed, std::vector<std::string>{"1.inner"});
  });
}

ModulePtr with_named_groups(const std::string& pattern) {
  CustomOptions options;
  options.name = "Scaled";
  options.parameters = {{"scale", Shape{6}, Init::normal(1)}};
  options.children = {{"layers", make_sequential({small_block(), small_block()})}};
  options.parameter_groups = {pattern};
  return make_sequential({small_block(), make_custom(options, std::make_shared<Scaled>())});
}

TEST(Parallelize, AModuleNamesItsParameterGroupsAndItsOwnHasTheRest) {
  const ReferenceRun reference{[] { return with_named_groups("layers.*"); }, Shape{2, 5, 6}};
  const auto want = reference.on_one_device(2);
  for (const Strategy strategy : kStrategies)
    run_ranks(2, [&](Gang& root) {
      Model model(reference.make(), mesh_of(root));
      ParallelOptions options;
      options.shard.strategy = strategy;
      options.master_dtype = DType::f64;
      options.seed = reference.seed;
      model.build().parallelize(options);
      std::set<std::string> groups;
      for (const auto& group : model.fsdp().groups()) groups.insert(group->name());
      EXPECT_EQ(groups.size(), 5u) << "with the root's";
      for (const char* name : {"0", "1", "1.layers.0", "1.layers.1"})
        EXPECT_TRUE(groups.contains(name)) << name;
      reference.run(model);
      expect_near(reference.gradients(model), want, 1e-12);
    });
}

TEST(Parallelize, AParameterGroupThatAModuleNamesMustBeThere) {
  run_ranks(2, [](Gang& root) {
    Model model(with_named_groups("layer.*"), mesh_of(root));
    expect_refusal(Code::not_found, [&] { model.build().parallelize(ParallelOptions()); },
                   {"Scaled 1: no module with parameters matches \"layer.*\" of its parameter_groups"});
  });
}

// A mesh and the dtype of the masters.
struct Case {
  int ranks;
  Strategy strategy;
  RecomputeKind recompute = RecomputeKind::none;
  DType dtype = DType::f64;
  double gradients() const { return dtype == DType::f64 ? 1e-12 : 1e-5; }
  double values() const { return dtype == DType::f64 ? 1e-10 : 2e-4; }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const Strategy strategy : kStrategies)
      for (const RecomputeKind recompute : {RecomputeKind::none, RecomputeKind::full})
        all.push_back({ranks, strategy, recompute});
  for (const int ranks : {1, 2, 3, 4})
    all.push_back({ranks, Strategy::full_shard, RecomputeKind::selective, DType::f32});
  return all;
}

ParallelOptions options_of(const Case& c, const ReferenceRun& reference) {
  ParallelOptions options;
  options.shard.strategy = c.strategy;
  options.recompute.kind = c.recompute;
  options.master_dtype = c.dtype;
  options.seed = reference.seed;
  return options;
}

// The number of AdamW steps, and of microbatches in a step.
constexpr int kSteps = 5, kMicrobatches = 2;

// The results of nn alone on one device. They are computed once, before the ranks run, for all cases that
// share them: a rank that computed them itself would keep its peers waiting in a collective.
struct OneDevice {
  std::map<std::string, Vector> gradients;  // of the first step
  std::map<std::string, Vector> values;     // after the last step
};
class References {
 public:
  const OneDevice& of(const ReferenceRun& reference, const Case& c) {
    OneDevice& made = made_[{c.ranks, c.dtype}];
    if (made.values.empty())
      made = {reference.on_one_device(c.ranks, kMicrobatches),
              reference.trained_on_one_device(c.ranks, kMicrobatches, kSteps)};
    return made;
  }

 private:
  std::map<std::pair<int, DType>, OneDevice> made_;
};

// Expects the gradients of the first step and the final values to equal those of one device. `reduce` runs
// after the microbatches of a step. `parts` are all models; the first one is trained.
template <typename Reduce>
void expect_training(const OneDevice& want, const ReferenceRun& reference, const Case& c,
                     const std::vector<Model*>& parts, const Reduce& reduce) {
  Stream& stream = parts[0]->device().stream();
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  for (Model* m : parts)
    optimizers.push_back(make_optimizer("adamw", m->inspect().parameters(), reference.adamw(), m->ops()));
  std::map<std::string, Vector> values;
  for (int step = 0; step < kSteps; ++step) {
    for (int m = 0; m < kMicrobatches; ++m) {
      parts[0]->run().set_is_last_backward(m + 1 == kMicrobatches);
      reference.run(*parts[0], kMicrobatches * step + m);
    }
    reduce();
    if (step == 0) {
      std::map<std::string, Vector> gradients;
      for (Model* m : parts) gradients.merge(reference.gradients(*m));
      EXPECT_EQ(gradients.size(), want.gradients.size());
      expect_near(gradients, want.gradients, c.gradients());
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i]->run().begin_update(stream);
      optimizers[i]->step(1, 1, stream);
      parts[i]->run().end_update(stream);
    }
  }
  for (Model* m : parts)
    for (const NamedParameter& p : m->inspect().parameters())
      values[p.name] = get(m->inspect().gather(*p.parameter, stream));
  EXPECT_EQ(values.size(), want.values.size());
  expect_near(values, want.values, c.values());
}

TEST(Parallelize, CustomModuleInPlaceOfABlockTrainsAsOnOneDevice) {
  References references;
  for (const Case& c : cases()) {
    ReferenceRun reference = kCustom;
    reference.dtype = c.dtype;
    const OneDevice& want = references.of(reference, c);
    run_ranks(c.ranks, [&](Gang& root) {
      Model model(with_custom(), mesh_of(root));
      model.build().parallelize(options_of(c, reference));
      expect_training(want, reference, c, {&model}, [] {});
    });
  }
}

TEST(Parallelize, DtypeThatACustomModuleRefusesIsRefusedBeforehandByItsPath) {
  run_ranks(2, [](Gang& root) {
    Model model(with_custom(), mesh_of(root));
    ParallelOptions options;
    options.shard.param_dtype = DType::bf16;
    expect_refusal(Code::not_supported, [&] { model.build().parallelize(options); }, {"module 1", "bf16"});
    options.shard.param_dtype = DType{};
    model.build().parallelize(options);  // the refused call has changed nothing
  });
}

// Computes with a block that uses the values and gradients of a shard group.
class Foreign final : public Module {
 public:
  explicit Foreign(std::shared_ptr<ShardGroup> group) : group_(std::move(group)), block_(small_block()) {}
  const char* kind() const override { return "Foreign"; }
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    bind(ctx, false);
    Values out = block_->forward(ctx, inputs, frame);
    group_->reshard(ctx.stream);
    return out;
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    bind(ctx, true);
    Values dx = block_->backward(ctx, dy, frame);
    frame.run_weight_gradients(ctx);
    group_->reshard(ctx.stream);
    return dx;
  }

 private:
  void bind(Context& ctx, bool gradients) {
    group_->unshard({}, ctx.stream);
    const std::vector<NamedParameter> own = named_parameters(*block_);
    for (size_t i = 0; i < own.size(); ++i) {
      own[i].parameter->value = group_->view(i, Part::full_value);
      if (!gradients) continue;
      own[i].parameter->grad =
          std::make_shared<Accumulator>(Accumulator{group_->view(i, Part::full_gradient), true});
    }
  }
  std::shared_ptr<ShardGroup> group_;
  ModulePtr block_;
};

std::vector<GroupParameter> block_parameters(DType dtype) {
  std::vector<GroupParameter> out;
  for (const NamedParameter& p : named_parameters(*small_block()))
    out.push_back({.name = p.name, .shape = p.parameter->shape, .dtype = dtype, .init = p.parameter->init});
  return out;
}

TEST(ShardGroup, InPlaceOfABlockTrainsAsOnOneDevice) {
  References references;
  for (const Case& c : cases()) {
    const ReferenceRun reference{[] {
                                   return make_sequential({small_block(), small_block(), small_block()});
                                 },
                                 Shape{2, 5, 6}, c.dtype};
    const OneDevice& want = references.of(reference, c);
    run_ranks(c.ranks, [&](Gang& root) {
      const auto gangs = mesh_of(root);
      const ParallelOptions options = options_of(c, reference);
      const auto group =
          make_shard_group(gangs, "1", block_parameters(c.dtype), options.shard, reference.seed);
      Model model(make_sequential({small_block(), std::make_shared<Foreign>(group), small_block()}), gangs);
      model.build().parallelize(options);
      const auto of_group = model_from_groups({group});
      expect_training(want, reference, c, {&model, of_group.get()},
                      [&] { group->reduce(root.device().stream()); });
    });
  }
}

}  // namespace
}  // namespace gangway::test
