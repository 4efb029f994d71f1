// Training steps with context parallelism, against the reference files, and the batches that such a step
// refuses.
#include "parallel/context/attention.h"

#include "base/expect_error.h"
#include "train/train_testing.h"

namespace gangway {
namespace {

using test::Reference;

struct Case {
  int cp, shards, replicas;
  ContextMethod method;
  Strategy strategy = Strategy::full_shard;
  int microbatches = 1;
  bool recompute = false;

  int ranks() const { return cp * shards * replicas; }
  std::string text() const {
    return gangway::text("cp ", cp, ", dp_shard ", shards, ", dp_replicate ", replicas, ", ", name(method),
                         ", strategy ", static_cast<int>(strategy));
  }
};

GangsPtr gangs_of(Gang& root, const Case& c) {
  MeshOptions mesh;
  mesh.cp = c.cp;
  mesh.dp_shard = c.shards;
  mesh.dp_replicate = c.replicas;
  return create_gangs(root.shared_from_this(), mesh);
}

std::unique_ptr<Model> model_of(Gang& root, const Case& c, const DecoderOptions& config, DType master) {
  const GangsPtr gangs = gangs_of(root, c);
  const ModulePtr llama = make_decoder(config);
  apply_context(llama, gangs->cp(), c.method);
  ParallelOptions options = test::parallel(c.strategy, master);
  if (c.recompute) options.recompute.kind = RecomputeKind::full;
  return test::make_model(llama, gangs, options);
}

// Compares loss and gradient norm of each of five steps, and the parameters after them.
void expect_reference(const Reference& reference, const Case& c, DType master) {
  const bool wide = master == DType::f64;
  const double tolerance = wide ? 1e-10 : 1e-5, final_tolerance = wide ? 1e-10 : 2e-4;
  test::run_ranks(c.ranks(), [&](Gang& root) {
    const auto model = model_of(root, c, reference.config, master);
    test::assign_initial(*model, reference);
    const auto optimizer =
        make_optimizer("adamw", model->inspect().parameters(), test::optimizer_of(reference), model->ops());
    StepOptions options;
    options.max_grad_norm = reference.optimizer.max_grad_norm;
    options.microbatches = c.microbatches;
    const std::vector<double>& losses = reference.values("adamw.losses");
    const std::vector<double>& norms = reference.values("adamw.grad_norms");
    const StepResult eval =
        eval_step(*model, test::own_rows(*model, reference, 0), options, model->device().stream());
    EXPECT_NEAR(eval.loss / losses[0], 1, tolerance) << c.text();
    for (int64_t step = 0; step < 5; ++step) {
      const Batch batch = test::own_rows(*model, reference, step);
      const auto at = static_cast<size_t>(step);
      const StepResult result = train_step(*model, optimizer.get(), batch, options, model->device().stream());
      EXPECT_NEAR(result.loss / losses[at], 1, tolerance) << c.text();
      EXPECT_NEAR(result.grad_norm / norms[at], 1, step == 0 ? tolerance : 5 * tolerance) << c.text();
      EXPECT_EQ(result.skipped, Skip::none);
    }
    for (const NamedParameter& p : model->inspect().parameters())
      EXPECT_LT(test::distance(test::gathered(*model, *p.parameter), reference.values("final." + p.name)),
                final_tolerance)
          << c.text() << ", " << p.name;
  });
}

void expect_gradients(const Reference& reference, const Case& c) {
  test::run_ranks(c.ranks(), [&](Gang& root) {
    const auto model = model_of(root, c, reference.config, DType::f64);
    test::assign_initial(*model, reference);
    Stream& stream = model->device().stream();
    int index = 0, count = 1;
    model->gangs().data_shard(&index, &count);
    const std::vector<int64_t> rows = balanced_bounds(reference.batch(), count);
    const Batch batch = test::batch_rows(*model, reference, 0, rows[static_cast<size_t>(index)],
                                         rows[static_cast<size_t>(index) + 1]);
    const int cp = c.cp, rank = model->gangs().coordinate(Axis::cp);
    Values local;
    for (const Tensor& whole : {batch.inputs[0], batch.targets[0]}) {
      local.push_back(
          Tensor::allocate(model->device().allocator(), DType::i64, Shape{whole.dim(0), whole.dim(1) / cp}));
      split_sequence(model->ops(), whole, local.back(), 1, rank, cp, stream);
    }
    Context ctx = model->run().context(stream);
    ctx.training = true;
    ctx.loss_scale = 1 / static_cast<double>(reference.weight());
    Frame& frame = model->frame(0);
    model->run().set_is_last_backward(true);
    model->run().forward(ctx, local, &frame);
    model->run().backward(ctx, {}, frame);
    frame.reset();
    model->run().finish_gradients(stream);
    for (const NamedParameter& p : model->inspect().parameters()) {
      EXPECT_LT(
          test::distance(test::gathered_gradient(*model, *p.parameter), reference.values("grad." + p.name)),
          1e-10)
          << c.text() << ", " << p.name;
    }
  });
}

void expect_refusal(Code code, const char* words, const auto& call) {
  const Error error = test::error_of(call);
  EXPECT_STREQ(name(error.code()), name(code)) << error.message();
  EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
}

constexpr ContextMethod kRing = ContextMethod::ring, kGather = ContextMethod::all_gather,
                        kExchange = ContextMethod::all_to_all;

TEST(ContextParallel, FiveStepsInF64EqualTheReference) {
  const Reference reference("llama_parity");
  for (const ContextMethod method : {kRing, kGather, kExchange}) {
    expect_reference(reference, {2, 1, 1, method}, DType::f64);
    expect_reference(reference, {2, 2, 1, method, Strategy::shard_grad_op, 3}, DType::f64);
    expect_reference(reference, {4, 1, 1, method, Strategy::no_shard, 2}, DType::f64);
  }
  expect_reference(reference, {8, 1, 1, kRing}, DType::f64);
  expect_reference(reference, {2, 2, 2, kRing, Strategy::full_shard, 2}, DType::f64);
  expect_reference(reference, {2, 2, 1, kRing, Strategy::full_shard, 1, true}, DType::f64);
}

TEST(ContextParallel, FiveStepsInF32EqualTheReference) {
  const Reference reference("llama_parity");
  for (const ContextMethod method : {kRing, kGather, kExchange})
    expect_reference(reference, {2, 2, 1, method}, DType::f32);
}

TEST(ContextParallel, TiedEmbeddingsAreOneParameter) {
  const Reference reference("llama_parity_tied");
  expect_reference(reference, {2, 2, 1, kRing, Strategy::full_shard, 2}, DType::f64);
}

TEST(ContextParallel, GradientsOfARingEqualTheReference) {
  expect_gradients(Reference("llama_parity"), {2, 1, 1, kRing});
}

TEST(ContextParallel, EveryGradientEqualsTheReference) {
  const Reference reference("llama_parity");
  for (const ContextMethod method : {kRing, kGather, kExchange}) {
    if (method != kRing) expect_gradients(reference, {2, 1, 1, method});
    expect_gradients(reference, {2, 2, 1, method});
  }
}

TEST(ContextParallel, BatchesThatCannotBeSplitAreRefusedOnAllRanks) {
  const Reference reference("llama_small");  // its sequences have 12 tokens
  test::run_ranks(2, [&](Gang& root) {
    const auto model = model_of(root, {2, 1, 1, kRing}, reference.config, DType::f64);
    const auto optimizer =
        make_optimizer("adamw", model->inspect().parameters(), test::optimizer_of(reference), model->ops());
    const auto refuses = [&](const Batch& batch, Code code, const char* words) {
      expect_refusal(code, words, [&] {
        train_step(*model, optimizer.get(), batch, StepOptions{}, model->device().stream());
      });
    };
    const auto cut = [&](int64_t tokens) {
      const std::vector<int64_t> ids(static_cast<size_t>(2 * tokens), 1);
      Batch batch;
      batch.inputs = {test::tensor_of(*model, DType::i64, Shape{2, tokens}, ids.data())};
      batch.targets = {test::tensor_of(*model, DType::i64, Shape{2, tokens}, ids.data())};
      batch.shift_labels = true;
      return batch;
    };
    refuses(cut(10), Code::invalid_argument, "10 tokens");
    refuses(cut(16), Code::invalid_argument, "longer than max_position_embeddings 12");
    Batch weighted = cut(12);
    weighted.weight = 22;
    refuses(weighted, Code::not_supported, "cp 2");
    Batch uneven = cut(12);
    uneven.targets = cut(8).targets;
    refuses(uneven, Code::invalid_argument, "sequences of 12");
    Batch copies = test::own_rows(*model, reference, 0);
    copies.targets = copies.inputs;
    refuses(copies, Code::invalid_argument, "is its own token");
    const StepResult result =
        train_step(*model, optimizer.get(), cut(12), StepOptions{}, model->device().stream());
    EXPECT_EQ(result.weight, 22);  // the last token of each row has no label
  });
}

TEST(ContextParallel, AMeshWithCpWantsAttentionThatIsSpreadOverIt) {
  const Reference reference("llama_small");
  test::run_ranks(2, [&](Gang& root) {
    const GangsPtr gangs = gangs_of(root, {2, 1, 1, kRing});
    Model model(make_decoder(reference.config), gangs);
    expect_refusal(Code::invalid_state, "context_parallel comes first",
                   [&] { model.build().fully_shard("", {}); });
    model.build().context_parallel(ContextMethod::all_gather);
    EXPECT_TRUE(is_context_parallel(model.root().shared_from_this(), 2));
    model.build().fully_shard("", {});
    expect_refusal(Code::invalid_state, "comes before fully_shard",
                   [&] { model.build().context_parallel(ContextMethod::ring); });
  });
}

}  // namespace
}  // namespace gangway
