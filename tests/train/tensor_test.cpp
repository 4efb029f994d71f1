// Training steps with tensor, sequence and loss parallelism, alone and together with the other axes, against
// the reference files.
#include "base/expect_error.h"
#include "gang/agreement.h"
#include "train/train_testing.h"

namespace gangway {
namespace {

using test::Reference;

struct Case {
  int tp = 1, shards = 1, replicas = 1, cp = 1;
  bool sequence = false, loss = true;
  Strategy strategy = Strategy::full_shard;
  int microbatches = 1;
  RecomputeKind recompute = RecomputeKind::none;
  ContextMethod method = ContextMethod::ring;
  int chunks = 1;

  int ranks() const { return tp * shards * replicas * cp; }
  std::string text() const {
    return gangway::text("tp ", tp, ", dp_shard ", shards, ", dp_replicate ", replicas, ", cp ", cp,
                         sequence ? ", sequence" : "", loss ? ", loss" : "", ", strategy ",
                         static_cast<int>(strategy), ", recompute ", static_cast<int>(recompute), ", chunks ",
                         chunks);
  }
};

GangsPtr gangs_of(Gang& root, const Case& c) {
  MeshOptions mesh;
  mesh.tp = c.tp;
  mesh.cp = c.cp;
  mesh.dp_shard = c.shards;
  mesh.dp_replicate = c.replicas;
  return create_gangs(root.shared_from_this(), mesh);
}

ParallelOptions options_of(const Case& c, DType master) {
  ParallelOptions options = test::parallel(c.strategy, master);
  options.tensor.family = {c.sequence, c.loss};
  options.tensor.overlap_chunks = c.chunks;
  options.recompute.kind = c.recompute;
  options.context = c.method;
  return options;
}

// Compares loss and norm of each of five steps, the parameters after them, and the loss of the first batch in
// evaluation.
void expect_reference(const Reference& reference, const Case& c, DType master) {
  const bool wide = master == DType::f64;
  const double tolerance = wide ? 1e-10 : 1e-5, final_tolerance = wide ? 1e-10 : 2e-4;
  SCOPED_TRACE(c.text());
  test::run_ranks(c.ranks(), [&](Gang& root) {
    const auto model =
        test::make_model(make_decoder(reference.config), gangs_of(root, c), options_of(c, master));
    test::assign_initial(*model, reference);
    const auto optimizer =
        make_optimizer("adamw", model->inspect().parameters(), test::optimizer_of(reference), model->ops());
    StepOptions options;
    options.max_grad_norm = reference.optimizer.max_grad_norm;
    options.microbatches = c.microbatches;
    const std::vector<double>& losses = reference.values("adamw.losses");
    const std::vector<double>& norms = reference.values("adamw.grad_norms");
    Stream& stream = model->device().stream();
    const StepResult eval = eval_step(*model, test::own_rows(*model, reference, 0), options, stream);
    EXPECT_NEAR(eval.loss / losses[0], 1, tolerance) << "evaluation";
    for (int64_t step = 0; step < 5; ++step) {
      const auto at = static_cast<size_t>(step);
      const StepResult result =
          train_step(*model, optimizer.get(), test::own_rows(*model, reference, step), options, stream);
      EXPECT_NEAR(result.loss / losses[at], 1, tolerance) << "step " << step;
      EXPECT_NEAR(result.grad_norm / norms[at], 1, step == 0 ? tolerance : 5 * tolerance) << "step " << step;
      EXPECT_EQ(result.skipped, Skip::none);
    }
    for (const NamedParameter& p : model->inspect().parameters())
      EXPECT_LT(test::distance(test::gathered(*model, *p.parameter), reference.values("final." + p.name)),
                final_tolerance)
          << p.name;
  });
}

// Compares every gradient of the first step, after forward and backward without a step.
void expect_gradients(const Reference& reference, const Case& c, DType master) {
  SCOPED_TRACE(c.text());
  test::run_ranks(c.ranks(), [&](Gang& root) {
    const auto model =
        test::make_model(make_decoder(reference.config), gangs_of(root, c), options_of(c, master));
    test::assign_initial(*model, reference);
    Stream& stream = model->device().stream();
    const Batch batch = test::own_rows(*model, reference, 0);
    const Values inputs = {batch.inputs[0], batch.targets[0]};
    Context ctx = model->run().context(stream);
    ctx.training = true;
    ctx.loss_scale = 1 / static_cast<double>(reference.weight());
    Frame& frame = model->frame(0);
    model->run().set_is_last_backward(true);
    const double loss = test::HostMemory(model->run().forward(ctx, inputs, &frame)[0]).data<double>()[0];
    model->run().backward(ctx, {}, frame);
    frame.reset();
    model->run().finish_gradients(stream);
    const double tolerance = master == DType::f64 ? 1e-10 : 1e-5;
    EXPECT_NEAR(model->gangs().loss_gang()->agreement().all_sum(Channel::user, loss) * ctx.loss_scale /
                    reference.values("loss")[0],
                1, tolerance);
    for (const NamedParameter& p : model->inspect().parameters())
      EXPECT_LT(
          test::distance(test::gathered_gradient(*model, *p.parameter), reference.values("grad." + p.name)),
          tolerance)
          << p.name;
  });
}

TEST(TensorParallel, GradientsWithAllOptionsEqualTheReference) {
  expect_gradients(Reference("llama_parity"), {.tp = 2, .sequence = true}, DType::f64);
}

TEST(TensorParallel, EveryGradientEqualsTheReference) {
  const Reference reference("llama_parity");
  for (const bool sequence : {false, true})
    for (const bool loss : {false, true}) {
      if (!sequence || !loss)
        expect_gradients(reference, {.tp = 2, .sequence = sequence, .loss = loss}, DType::f64);
      expect_gradients(reference, {.tp = 2, .shards = 2, .sequence = sequence, .loss = loss}, DType::f64);
    }
  expect_gradients(reference, {.tp = 4, .sequence = true}, DType::f64);
  expect_gradients(reference, {.tp = 2, .sequence = true}, DType::f32);
}

TEST(TensorParallel, FiveStepsInF64EqualTheReference) {
  const Reference reference("llama_parity");
  expect_reference(reference, {.tp = 1, .shards = 2}, DType::f64);
  expect_reference(reference, {.tp = 2}, DType::f64);
  expect_reference(reference, {.tp = 4, .loss = false}, DType::f64);
  expect_reference(reference, {.tp = 2, .shards = 2, .microbatches = 3}, DType::f64);
  expect_reference(reference, {.tp = 2, .replicas = 2, .strategy = Strategy::no_shard}, DType::f64);
  expect_reference(reference, {.tp = 2, .shards = 2, .replicas = 2, .strategy = Strategy::shard_grad_op},
                   DType::f64);
}

TEST(TensorParallel, FiveStepsWithSequenceParallelismEqualTheReference) {
  const Reference reference("llama_parity");
  expect_reference(reference, {.tp = 2, .sequence = true}, DType::f64);
  expect_reference(reference, {.tp = 4, .sequence = true, .loss = false}, DType::f64);
  expect_reference(reference, {.tp = 2, .shards = 2, .sequence = true, .microbatches = 3}, DType::f64);
  expect_reference(reference, {.tp = 2, .replicas = 2, .sequence = true, .strategy = Strategy::no_shard},
                   DType::f64);
  expect_reference(reference, {.tp = 2, .shards = 2, .replicas = 2, .sequence = true}, DType::f64);
}

TEST(TensorParallel, FiveStepsWithChunksOfTheSequenceEqualTheReference) {
  const Reference reference("llama_parity");
  expect_reference(reference, {.tp = 2, .sequence = true, .chunks = 2}, DType::f64);
  expect_reference(reference, {.tp = 4, .sequence = true, .chunks = 4}, DType::f64);
  expect_reference(reference, {.tp = 2, .shards = 2, .sequence = true, .microbatches = 3, .chunks = 4},
                   DType::f64);
  expect_reference(reference,
                   {.tp = 2, .cp = 2, .sequence = true, .recompute = RecomputeKind::full, .chunks = 2},
                   DType::f64);
}

TEST(TensorParallel, FiveStepsBesideContextParallelismEqualTheReference) {
  const Reference reference("llama_parity");
  using enum ContextMethod;
  for (const ContextMethod method : {ring, all_gather, all_to_all})
    expect_reference(reference, {.tp = 2, .cp = 2, .sequence = method != all_gather, .method = method},
                     DType::f64);
  expect_reference(reference, {.tp = 2, .shards = 2, .cp = 2, .sequence = true}, DType::f64);
}

TEST(TensorParallel, RecomputationGivesTheReferenceToo) {
  const Reference reference("llama_parity");
  for (const RecomputeKind kind : {RecomputeKind::full, RecomputeKind::selective, RecomputeKind::every})
    for (const bool sequence : {false, true})
      expect_reference(reference, {.tp = 2, .sequence = sequence, .recompute = kind}, DType::f64);
}

TEST(TensorParallel, FiveStepsInF32EqualTheReference) {
  const Reference reference("llama_parity");
  for (const bool sequence : {false, true})
    expect_reference(reference, {.tp = 2, .shards = 2, .sequence = sequence}, DType::f32);
  expect_reference(reference, {.tp = 4, .sequence = true}, DType::f32);
}

TEST(TensorParallel, TiedEmbeddingsAreOneParameter) {
  const Reference reference("llama_parity_tied");
  for (const bool sequence : {false, true})
    expect_reference(reference, {.tp = 2, .shards = 2, .sequence = sequence, .microbatches = 2}, DType::f64);
}

// The caller's rows win over those of the Llama plan. The embedding is first split by columns and then not
// split at all.
TEST(TensorParallel, RowsOfTheCallerGiveTheReferenceToo) {
  const Reference reference("llama_parity");
  for (const char* plan : {"model.embed_tokens -> colwise, output whole", "model.embed_tokens -> replicate",
                           "model.layers.3.mlp -> replicate\nmodel.layers.3.mlp.* -> replicate",
                           "lm_head -> replicate", "lm_head -> colwise, output whole"})
    test::run_ranks(2, [&](Gang& root) {
      Case c{.tp = 2};
      ParallelOptions options = options_of(c, DType::f64);
      options.tensor.rows = plan_from_text(plan);
      const auto model = test::make_model(make_decoder(reference.config), gangs_of(root, c), options);
      test::assign_initial(*model, reference);
      const auto optimizer =
          make_optimizer("adamw", model->inspect().parameters(), test::optimizer_of(reference), model->ops());
      StepOptions step;
      step.max_grad_norm = reference.optimizer.max_grad_norm;
      const StepResult result = train_step(*model, optimizer.get(), test::own_rows(*model, reference, 0),
                                           step, model->device().stream());
      EXPECT_NEAR(result.loss / reference.values("adamw.losses")[0], 1, 1e-10) << plan;
      EXPECT_NEAR(result.grad_norm / reference.values("adamw.grad_norms")[0], 1, 1e-10) << plan;
    });
}

// Activations and their sums are rounded. The losses stay as close to f32 as on one device.
TEST(TensorParallel, Bf16StaysBesideF32) {
  const Reference reference("llama_parity");
  for (const bool sequence : {false, true})
    for (const bool loss : {false, true})
      test::run_ranks(4, [&](Gang& root) {
        const Case c{.tp = 2, .shards = 2, .sequence = sequence, .loss = loss};
        ParallelOptions options = options_of(c, DType::f32);
        options.shard.param_dtype = DType::bf16;
        const auto model = test::make_model(make_decoder(reference.config), gangs_of(root, c), options);
        test::assign_initial(*model, reference);
        const auto optimizer = make_optimizer("adamw", model->inspect().parameters(),
                                              test::optimizer_of(reference), model->ops());
        const StepResult result = train_step(*model, optimizer.get(), test::own_rows(*model, reference, 0),
                                             {}, model->device().stream());
        EXPECT_NEAR(result.loss / reference.values("adamw.losses")[0], 1, 0.01) << c.text();
        EXPECT_NE(result.loss, reference.values("adamw.losses")[0]);
      });
}

TEST(TensorParallel, EveryMeshGeneratesTheSameTokens) {
  const Reference reference("llama_parity");
  std::vector<int64_t> alone;
  for (const Case& c : {Case{}, Case{.tp = 2}, Case{.tp = 2, .shards = 2, .sequence = true},
                        Case{.tp = 4, .sequence = true, .loss = false}})
    test::run_ranks(c.ranks(), [&](Gang& root) {
      const auto model =
          test::make_model(make_decoder(reference.config), gangs_of(root, c), options_of(c, DType::f64));
      test::assign_initial(*model, reference);
      GenerateOptions options;
      options.new_tokens = 30;  // with the prompt one more than the model's 32 positions
      options.temperature = 0;
      const std::vector<int64_t> tokens =
          generate(*model, std::vector<int64_t>{3, 1, 4}, options, model->device().stream());
      if (c.ranks() == 1) alone = tokens;
      EXPECT_EQ(tokens, alone) << c.text();
    });
}

// Sequence parallelism gives each rank an equal part of the sequence.
TEST(TensorParallel, SequencesThatCannotBeSplitAreRefusedOnAllRanks) {
  const Reference reference("llama_parity");
  test::run_ranks(4, [&](Gang& root) {
    const Case c{.tp = 4, .sequence = true};
    const auto model =
        test::make_model(make_decoder(reference.config), gangs_of(root, c), options_of(c, DType::f64));
    const auto optimizer =
        make_optimizer("adamw", model->inspect().parameters(), test::optimizer_of(reference), model->ops());
    const std::vector<int64_t> ids(20, 1);
    const auto batch = [&](int64_t tokens) {
      Batch b;
      b.inputs = {test::tensor_of(*model, DType::i64, Shape{2, tokens}, ids.data())};
      return b;
    };
    const Error error = test::error_of(
        [&] { train_step(*model, optimizer.get(), batch(10), StepOptions{}, model->device().stream()); });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find("sequence parallelism splits the sequence (dim 1 of [2, 10, "),
              std::string::npos)
        << error.message();
    EXPECT_NE(error.message().find("10 rows to split over tp"), std::string::npos) << error.message();
    EXPECT_EQ(train_step(*model, optimizer.get(), batch(8), StepOptions{}, model->device().stream()).weight,
              14);
  });
}

// A data-parallel rank may have no rows. Its tp ranks still meet, with empty tensors.
TEST(TensorParallel, ADataCoordinateWithoutRowsTakesPart) {
  const Reference reference("llama_parity");
  for (const bool sequence : {false, true})
    test::run_ranks(4, [&](Gang& root) {
      const Case c{.tp = 2, .shards = 2, .sequence = sequence};
      const auto model =
          test::make_model(make_decoder(reference.config), gangs_of(root, c), options_of(c, DType::f64));
      test::assign_initial(*model, reference);
      const auto optimizer =
          make_optimizer("adamw", model->inspect().parameters(), test::optimizer_of(reference), model->ops());
      StepOptions options;
      options.max_grad_norm = reference.optimizer.max_grad_norm;
      const int64_t rows = root.rank() < 2 ? reference.batch() : 0;
      const StepResult result =
          train_step(*model, optimizer.get(), test::batch_rows(*model, reference, 0, 0, rows), options,
                     model->device().stream());
      EXPECT_NEAR(result.loss / reference.values("adamw.losses")[0], 1, 1e-10);
      EXPECT_NEAR(result.grad_norm / reference.values("adamw.grad_norms")[0], 1, 1e-10);
    });
}

// On one host ranks read each other's activations in place.
TEST(TensorParallel, NothingThatABoundaryMovesIsStaged) {
  if (!test::on_cpu()) GTEST_SKIP() << "the host engine's count; this device has another";
  const Reference reference("llama_parity");
  for (const bool sequence : {false, true})
    test::run_ranks(2, [&](Gang& root) {
      const Case c{.tp = 2, .sequence = sequence};
      const auto model =
          test::make_model(make_decoder(reference.config), gangs_of(root, c), options_of(c, DType::f32));
      const auto optimizer =
          make_optimizer("adamw", model->inspect().parameters(), test::optimizer_of(reference), model->ops());
      const Traffic before = model->gangs().tp()->traffic();
      train_step(*model, optimizer.get(), test::own_rows(*model, reference, 0), {}, model->device().stream());
      const Traffic after = model->gangs().tp()->traffic();
      EXPECT_GT(after.bytes_moved, before.bytes_moved);
      // The results of a step's checks are staged. One redistribution of activations would stage more than
      // this limit.
      EXPECT_LT(after.bytes_staged - before.bytes_staged, 4096u);
    });
}

TEST(TensorParallel, RanksOfOneDataCoordinateTakeTheSameBatch) {
  const Reference reference("llama_parity");
  test::run_ranks(4, [&](Gang& root) {
    const Case c{.tp = 2, .shards = 2};
    const auto model =
        test::make_model(make_decoder(reference.config), gangs_of(root, c), options_of(c, DType::f64));
    const auto optimizer =
        make_optimizer("adamw", model->inspect().parameters(), test::optimizer_of(reference), model->ops());
    Batch batch = test::own_rows(*model, reference, 0);
    const auto step = [&] { train_step(*model, optimizer.get(), batch, {}, model->device().stream()); };
    step();  // ranks 0 and 1 have other rows than ranks 2 and 3
    if (root.rank() == 3) batch.inputs = test::own_rows(*model, reference, 1).inputs;
    if (model->device().kind() == DeviceKind::cpu) {
      const Error error = test::error_of(step);
      EXPECT_EQ(error.code(), Code::mismatch);
      EXPECT_NE(error.message().find("ranks 2 and 3"), std::string::npos) << error.message();
    }
    // The same values with another shape. Ranks compare values only on a CPU, and shapes on every device.
    batch = test::own_rows(*model, reference, 0);
    const Batch right = batch;
    if (root.rank() == 3)
      for (Values* values : {&batch.inputs, &batch.targets})
        (*values)[0] = (*values)[0].reshape({2 * (*values)[0].dim(0), (*values)[0].dim(1) / 2});
    const Error error = test::error_of(step);
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    EXPECT_NE(error.message().find("ranks 2 and 3"), std::string::npos) << error.message();
    batch = right;
    step();
  });
}

}  // namespace
}  // namespace gangway
