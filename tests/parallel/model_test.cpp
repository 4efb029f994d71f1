// Whole models: microbatches, precision, and evaluation during training.
#include "parallel/reference_run.h"

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

ParallelOptions mixed(Strategy strategy, bool f32_norms, DType compute = DType::bf16) {
  ParallelOptions options;
  options.shard.strategy = strategy;
  options.shard.param_dtype = compute;
  if (f32_norms)
    options.shard.dtype_rules = {{"model.norm.weight", DType::f32},
                                 {"model.layers.*.input_layernorm.weight", DType::f32}};
  return options;
}

void expect_half(const StepValues& values, const Reference& exact, const std::string& reference,
                 DType compute = DType::bf16) {
  const HalfErrors pytorch = half_errors(compute, reference);
  EXPECT_NEAR(values.loss / exact.at("loss").values[0], 1, kBesidePyTorch * pytorch.loss);
  for (const auto& [name, gradient] : values.gradients)
    EXPECT_LE(normwise(gradient, exact.at("grad." + name).values),
              kBesidePyTorch * pytorch.gradients.at(name))
        << name;
}

void expect_near_the_reference(DType compute) {
  const double loss_scale = compute == DType::f16 ? 65536 : 1;  // as in the reference, which PyTorch made
  for (const char* file : {"llama_small", "llama_parity_tied"}) {
    const Reference reference(file);
    for (const Strategy strategy : kStrategies)
      run_ranks(2, [&](Gang& root) {
        const auto model = make_model(reference, mesh_of(root), mixed(strategy, false, compute));
        expect_half(run_step(*model, reference, 1, loss_scale), reference, file, compute);
      });
  }
}

TEST(Parallelize, MixedPrecisionStaysNearTheReferenceInBf16) { expect_near_the_reference(DType::bf16); }
TEST(Parallelize, MixedPrecisionStaysNearTheReferenceInF16) { expect_near_the_reference(DType::f16); }

// A rule names the weight of the head, or the embedding that is tied to the head. Its parameter group
// computes in that dtype, and casts inputs and outputs from and to the dtype of the others.
TEST(Parallelize, TheHeadMayComputeInAnotherDtypeThanTheBlocks) {
  const Reference small("llama_small"), tied("llama_parity_tied");
  for (const Strategy strategy : kStrategies)
    run_ranks(2, [&](Gang& root) {
      ParallelOptions options = mixed(strategy, false);
      options.shard.dtype_rules = {{"lm_head.weight", DType::f32}};
      const auto model = make_model(small, mesh_of(root), options);
      expect_half(run_step(*model, small), small, "llama_small");
      // The master itself has the compute dtype.
      EXPECT_FALSE(model->inspect().parameter("lm_head.weight").parameter->shard_copy);
      const Tensor tokens = make_ids(model->device(), Shape{2, small.sequence()}, small.rows("tokens", 0, 2));
      Context ctx = model->run().context(model->device().stream());
      EXPECT_EQ(model->run().forward(ctx, {&tokens, 1}, nullptr)[0].dtype(), DType::f32);
      model->temporaries().reset();
      options.shard.dtype_rules = {{"model.embed_tokens.weight", DType::f32}};
      expect_half(run_step(*make_model(tied, mesh_of(root), options), tied), tied, "llama_parity_tied");
    });
}

// A product whose input has another dtype because of a rule, or because a rule excludes the product from
// param_dtype.
TEST(Parallelize, InputsOfAParameterGroupAreCastToTheDtypeOfItsProducts) {
  run_ranks(2, [&](Gang& root) {
    for (const DType rest : {DType{}, DType::bf16}) {
      Model model(make_sequential({make_linear(2, 2, false), make_linear(2, 2, false)}), mesh_of(root));
      ParallelOptions options;
      options.shard.param_dtype = rest;
      options.shard.dtype_rules = {{"1.weight", rest == DType{} ? DType::bf16 : DType::f32}};
      model.build().parallelize(options);
      const Tensor x = make(model.device(), DType::f32, Shape{3, 2}, {1, 2, 3, 4, 5, 6});
      Context ctx = model.run().context(model.device().stream());
      Frame& frame = model.frame(0);
      const Values y = model.run().forward(ctx, {&x, 1}, &frame);
      EXPECT_EQ(y[0].dtype(), options.shard.dtype_rules[0].dtype);
      const Tensor dy = make(model.device(), y[0].dtype(), Shape{3, 2}, {1, 1, 1, 1, 1, 1});
      EXPECT_EQ(model.run().backward(ctx, {&dy, 1}, frame)[0].dtype(), DType::f32);
      frame.reset();
      model.run().finish_gradients(model.device().stream());
    }
  });
}

TEST(Parallelize, WithoutCastsAParameterGroupTakesItsInputsAsTheyCome) {
  run_ranks(1, [&](Gang& root) {
    Model model(make_sequential({make_linear(2, 2, false)}), mesh_of(root));
    ParallelOptions options;
    options.shard.param_dtype = DType::bf16;
    options.shard.cast_forward_inputs = false;
    model.build().parallelize(options);
    Context ctx = model.run().context(model.device().stream());
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor x = make(model.device(), dtype, Shape{3, 2}, {1, 2, 3, 4, 5, 6});
      if (dtype == DType::bf16)
        EXPECT_EQ(model.run().forward(ctx, {&x, 1}, nullptr)[0].dtype(), DType::bf16);
      else
        expect_refusal(Code::invalid_argument,
                       [&] {
                         model.run().forward(ctx, {&x, 1}, nullptr);
                       },
                       {"bf16", "f32"});
      model.temporaries().reset();
    }
  });
}

// The activations of a row have the same bits wherever they are computed. Only sums over rows differ in their
// order.
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
          const Parameter& weight = *model->inspect().parameter("lm_head.weight").parameter;
          EXPECT_EQ(weight.shard.dtype(), DType::f32);
          EXPECT_EQ(weight.shard_copy.dtype(), DType::bf16);
          EXPECT_EQ(weight.shard_grad->tensor.dtype(), DType::f32);
          EXPECT_EQ(bool(model->inspect().parameter("model.norm.weight").parameter->shard_copy), !f32_norms);
        });
  }
}

double evaluate(Model& model) {
  Context ctx = model.run().context(model.device().stream());
  const Shape shape{4, llama().sequence()};
  const Tensor inputs[] = {make_ids(model.device(), shape, llama().rows("tokens", 2, 6)),
                           make_ids(model.device(), shape, llama().rows("labels", 2, 6))};
  const double loss = get(model.run().forward(ctx, inputs, nullptr)[0])[0];
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
        Context ctx = model->run().context(model->device().stream());
        ctx.loss_scale = 1.0 / static_cast<double>(llama().weight());
        model->run().forward(ctx, inputs, &model->frame(0));
        EXPECT_EQ(evaluate(*model), alone) << "between forward and backward";
        model->run().backward(ctx, {}, model->frame(0));
        EXPECT_EQ(evaluate(*model), alone) << "between backward and the update";
        for (const NamedParameter& p : model->inspect().parameters())
          EXPECT_LE(normwise(get(model->inspect().gather_gradient(*p.parameter, model->device().stream())),
                             llama().at("grad." + p.name).values),
                    1e-10)
              << p.name;
        model->run().begin_update(model->device().stream());
        model->run().end_update(model->device().stream());
      });
}

}  // namespace
}  // namespace gangway::test
