// Whole models: microbatches, precision, evaluation inside training, foreign compute in place of a block.
#include "nn/custom.h"
#include "parallel/shard_group.h"
#include "parallel/trial.h"

namespace gangway::test {
namespace {

const Reference& llama() {
  static const Reference reference("llama_parity");
  return reference;
}

constexpr Strategy kStrategies[] = {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard};

// --- the Llama of the reference files

TEST(Parallelize, MicrobatchesGiveTheReferencesGradients) {
  for (const Strategy strategy : kStrategies)
    run_ranks(2, [&](Gang& root) {
      ParallelOptions options;
      options.shard.strategy = strategy;
      options.master_dtype = DType::f64;
      const auto model = make_model(llama(), mesh_of(root), options);
      expect_reference(run_step(*model, llama(), 3), llama(), 1e-10);
    });
}

ParallelOptions mixed(Strategy strategy, bool f32_norms) {
  ParallelOptions options;
  options.shard.strategy = strategy;
  options.shard.param_dtype = DType::bf16;
  if (f32_norms)
    options.shard.dtype_rules = {{"model.norm.weight", DType::f32},
                                 {"model.layers.*.input_layernorm.weight", DType::f32}};
  return options;
}

// Rounding the parameters to bf16 moves the gradients of this model by 1.5e-2 in exact arithmetic, and those
// of the eight layers of the parity file by 6.6e-2.
TEST(Parallelize, MixedPrecisionStaysNearTheReference) {
  const Reference small("llama_small");
  run_ranks(2, [&](Gang& root) {
    const auto model = make_model(small, mesh_of(root), mixed(Strategy::full_shard, false));
    const StepValues values = run_step(*model, small);
    EXPECT_NEAR(values.loss / small.at("loss").values[0], 1, 1e-2);
    for (const auto& [name, gradient] : values.gradients) {
      const Vector& want = small.at("grad." + name).values;
      EXPECT_GE(cosine(gradient, want), 0.999) << name;
      EXPECT_LE(normwise(gradient, want), 2.5e-2) << name;
    }
  });
}

// A rule names the weight of the head, or the embedding that is the head's too: its unit computes in that
// dtype and takes and gives the others'.
TEST(Parallelize, TheHeadMayComputeInAnotherDtypeThanTheBlocks) {
  const Reference small("llama_small"), tied("llama_parity_tied");
  for (const Strategy strategy : kStrategies)
    run_ranks(2, [&](Gang& root) {
      ParallelOptions options = mixed(strategy, false);
      options.shard.dtype_rules = {{"lm_head.weight", DType::f32}};
      const auto model = make_model(small, mesh_of(root), options);
      const StepValues values = run_step(*model, small);
      EXPECT_NEAR(values.loss / small.at("loss").values[0], 1, 1e-2);
      for (const auto& [name, gradient] : values.gradients)
        EXPECT_GE(cosine(gradient, small.at("grad." + name).values), 0.999) << name;
      EXPECT_FALSE(model->parameter("lm_head.weight").parameter->shard_copy);  // the master is what computes
      const Tensor tokens = make_ids(model->device(), Shape{2, small.sequence()}, small.rows("tokens", 0, 2));
      Context ctx = model->context(model->device().stream());
      EXPECT_EQ(model->forward(ctx, {&tokens, 1}, nullptr)[0].dtype(), DType::f32);
      model->temporaries().reset();
      options.shard.dtype_rules = {{"model.embed_tokens.weight", DType::f32}};
      for (const auto& [name, gradient] : run_step(*make_model(tied, mesh_of(root), options), tied).gradients)
        EXPECT_GE(cosine(gradient, tied.at("grad." + name).values), 0.99) << name;
    });
}

// A product whose inputs come in another dtype by a rule alone, or that a caller's rule alone sets apart.
TEST(Parallelize, InputsOfAUnitAreCastToTheDtypeOfItsProducts) {
  run_ranks(2, [&](Gang& root) {
    for (const DType rest : {DType{}, DType::bf16}) {
      Model model(make_sequential({make_linear(2, 2, false), make_linear(2, 2, false)}), mesh_of(root));
      ParallelOptions options;
      options.shard.param_dtype = rest;
      options.shard.dtype_rules = {{"1.weight", rest == DType{} ? DType::bf16 : DType::f32}};
      model.parallelize(options);
      const Tensor x = make(model.device(), DType::f32, Shape{3, 2}, {1, 2, 3, 4, 5, 6});
      Context ctx = model.context(model.device().stream());
      Frame& frame = model.frame(0);
      const Values y = model.forward(ctx, {&x, 1}, &frame);
      EXPECT_EQ(y[0].dtype(), options.shard.dtype_rules[0].dtype);
      const Tensor dy = make(model.device(), y[0].dtype(), Shape{3, 2}, {1, 1, 1, 1, 1, 1});
      EXPECT_EQ(model.backward(ctx, {&dy, 1}, frame)[0].dtype(), DType::f32);
      frame.reset();
      model.finish_gradients(model.device().stream());
    }
  });
}

// Activations of a row have the same bits wherever it is computed; only sums over rows differ in their order.
TEST(Parallelize, MixedPrecisionIsThatOfOneRank) {
  for (const bool f32_norms : {false, true}) {
    StepValues one;
    run_ranks(1, [&](Gang& root) {
      one = run_step(*make_model(llama(), mesh_of(root), mixed(Strategy::full_shard, f32_norms)), llama());
    });
    for (const Strategy strategy : kStrategies)
      for (const bool regions : {true, false})
        run_ranks(2, [&](Gang& root) {
          const auto model = make_model(llama(), mesh_of(root), mixed(strategy, f32_norms), regions);
          const StepValues values = run_step(*model, llama());
          EXPECT_NEAR(values.loss / one.loss, 1, 1e-6);
          for (const auto& [name, gradient] : values.gradients)
            EXPECT_LE(normwise(gradient, one.gradients.at(name)), 1e-5) << name;
          const Parameter& weight = *model->parameter("lm_head.weight").parameter;
          EXPECT_EQ(weight.shard.dtype(), DType::f32);
          EXPECT_EQ(weight.shard_copy.dtype(), DType::bf16);
          EXPECT_EQ(weight.shard_grad.dtype(), DType::f32);
          EXPECT_EQ(bool(model->parameter("model.norm.weight").parameter->shard_copy), !f32_norms);
        });
  }
}

double evaluate(Model& model) {
  Context ctx = model.context(model.device().stream());
  const Shape shape{4, llama().sequence()};
  const Tensor inputs[] = {make_ids(model.device(), shape, llama().rows("tokens", 2, 6)),
                           make_ids(model.device(), shape, llama().rows("labels", 2, 6))};
  const double loss = get(model.forward(ctx, inputs, nullptr)[0])[0];
  model.temporaries().reset();
  return loss;
}

TEST(Parallelize, EvaluationInsideTrainingChangesNothing) {
  for (const Strategy strategy : kStrategies)
    for (const bool regions : {true, false})
      run_ranks(2, [&](Gang& root) {
        ParallelOptions options;
        options.shard.strategy = strategy;
        options.master_dtype = DType::f64;
        const auto model = make_model(llama(), mesh_of(root), options, regions);
        const double alone = evaluate(*model);
        const auto [first, last] = data_rows(model->gangs(), llama().batch());
        const Shape shape{last - first, llama().sequence()};
        const Tensor inputs[] = {make_ids(model->device(), shape, llama().rows("tokens", first, last)),
                                 make_ids(model->device(), shape, llama().rows("labels", first, last))};
        Context ctx = model->context(model->device().stream());
        ctx.loss_seed =
            make(model->device(), DType::f64, Shape{1}, {1.0 / static_cast<double>(llama().weight())});
        model->forward(ctx, inputs, &model->frame(0));
        EXPECT_EQ(evaluate(*model), alone) << "between forward and backward";
        model->backward(ctx, {}, model->frame(0));
        EXPECT_EQ(evaluate(*model), alone) << "between backward and the update";
        for (const NamedParameter& p : model->parameters())
          EXPECT_LE(normwise(get(model->gather_gradient(*p.parameter, model->device().stream())),
                             llama().at("grad." + p.name).values),
                    1e-10)
              << p.name;
        model->begin_update(model->device().stream());
        model->end_update(model->device().stream());
      });
}

// --- foreign compute

// y = s * child(x), s of one value per feature; own code for both halves.
class Scaled final : public CustomBehaviour {
 public:
  std::vector<Spec> shapes(Custom&, Context&, std::span<const Spec> inputs) override { return {inputs[0]}; }
  void forward(Call& call) override {
    const Tensor y = child(call).forward1(call.ctx, call.inputs[0], call.frame);
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
    put(call.input_grads[0], get(child(call).backward1(call.ctx, inner, *call.frame)));
  }
  bool has_backward_weight() const override { return true; }
  void backward_weight(Call& call) override {
    const Vector& made = *static_cast<Vector*>(call.state);
    const Vector dy = get(call.output_grads[0]);
    Vector sum = get(call.parameters[0]->grad);
    for (size_t i = 0; i < dy.size(); ++i) sum[i % sum.size()] += dy[i] * made[i];
    put(call.parameters[0]->grad, sum);
  }
  void free_state(void* state) noexcept override { delete static_cast<Vector*>(state); }
  bool accepts(DType compute) const override { return compute != DType::bf16; }

 private:
  static Module& child(Call& call) { return call.module.child(0); }
};

AttentionOptions small_attention() {
  return {.dim = 6, .heads = 3, .kv_heads = 1, .head_dim = 2, .rope = {}, .deviation = 0.3};
}
ModulePtr small_block() { return make_block(small_attention(), 5, 1e-5); }

ModulePtr with_custom() {
  CustomOptions options;
  options.name = "Scaled";
  options.parameters = {{"scale", Shape{6}, Init::normal(1)}};
  options.children = {{"block", small_block()}};
  return make_sequential({small_block(), make_custom(options, std::make_shared<Scaled>()), small_block()});
}
const Trial kCustom{with_custom, Shape{2, 5, 6}};

// Its name is its caller's: it says nothing of what the module is.
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
    options.shard.dtype_rules = {{"0.scale", DType::f32}};  // beside a bias in f64, which a product refuses
    model.parallelize(options);
    std::vector<std::string> recomputed;
    for (const NamedModule& named : named_modules(model.root().shared_from_this()))
      if (std::string_view(named.module->kind()) == "Recompute") recomputed.push_back(named.path);
    EXPECT_EQ(recomputed, std::vector<std::string>{"1.inner"});
  });
}

TEST(Parallelize, CustomModuleInPlaceOfABlock) {
  const auto want = kCustom.alone(3, 2);
  for (const Strategy strategy : kStrategies)
    for (const RecomputeKind recompute : {RecomputeKind::none, RecomputeKind::full})
      run_ranks(3, [&](Gang& root) {
        Model model(with_custom(), mesh_of(root));
        ParallelOptions options;
        options.shard.strategy = strategy;
        options.recompute.kind = recompute;
        options.master_dtype = DType::f64;
        options.seed = kCustom.seed;
        model.parallelize(options);
        for (int m = 0; m < 2; ++m) kCustom.run(model, m);
        const auto got = kCustom.gradients(model);
        EXPECT_EQ(got.size(), want.size());
        expect_near(got, want, 1e-12);
      });
}

TEST(Parallelize, DtypeThatACustomModuleRefusesIsRefusedBeforehandByItsPath) {
  run_ranks(2, [](Gang& root) {
    Model model(with_custom(), mesh_of(root));
    ParallelOptions options;
    options.shard.param_dtype = DType::bf16;
    expect_refusal(Code::not_supported, [&] { model.parallelize(options); }, {"module 1", "bf16"});
    options.shard.param_dtype = DType{};
    model.parallelize(options);  // a refused call changed nothing
  });
}

// Computes with a block whose values and gradients are a shard group's.
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
    frame.drain(ctx);
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
      own[i].parameter->grad = group_->view(i, Part::full_gradient);
      own[i].parameter->grad_written = true;
    }
  }
  std::shared_ptr<ShardGroup> group_;
  ModulePtr block_;
};

std::vector<GroupParameter> block_parameters() {
  std::vector<GroupParameter> out;
  for (const NamedParameter& p : named_parameters(*small_block()))
    out.push_back(
        {.name = p.name, .shape = p.parameter->shape, .dtype = DType::f64, .init = p.parameter->init});
  return out;
}

TEST(ShardGroup, InPlaceOfABlock) {
  const Trial trial{[] {
                      return make_sequential({small_block(), small_block(), small_block()});
                    },
                    Shape{2, 5, 6}};
  const auto want = trial.alone(3, 2);
  for (const Strategy strategy : kStrategies)
    run_ranks(3, [&](Gang& root) {
      const auto gangs = mesh_of(root);
      ParallelOptions options;
      options.shard.strategy = strategy;
      options.master_dtype = DType::f64;
      options.seed = trial.seed;
      const auto group = make_shard_group(gangs, "1", block_parameters(), options.shard, trial.seed);
      Model model(make_sequential({small_block(), std::make_shared<Foreign>(group), small_block()}), gangs);
      model.parallelize(options);
      for (int m = 0; m < 2; ++m) {
        model.set_last_microbatch(m == 1);
        trial.run(model, m);
      }
      group->reduce(root.device().stream());
      auto got = trial.gradients(model);
      const auto of_group = model_from_groups({group});
      for (const auto& [name, gradient] : trial.gradients(*of_group)) got[name] = gradient;
      EXPECT_EQ(got.size(), want.size());
      expect_near(got, want, 1e-12);
    });
}

}  // namespace
}  // namespace gangway::test
