// Sequences that travel in chunks while products run on the chunks that have arrived: numbers, order, bytes
// and refusals.
#include "gang/local/fake.h"
#include "parallel/tensor/apply.h"
#include "parallel/tensor/styled_trees.h"
#include "support/ops_interceptor.h"

namespace gangway::test {
namespace {

const char* const kAttentionPlan =
    "0 -> sequence_parallel, input Replicate\n1 -> prepare_input(Shard(1), Varying)\n"
    "1.q_proj -> colwise, input Varying\n1.k_proj -> colwise, input Varying\n"
    "1.v_proj -> colwise, input Varying\n1.o_proj -> rowwise\n";

// With one row the pieces of a chunk are contiguous, with several rows they are not.
std::vector<StyledTree> sequence_trees() {
  return {{"linears, one row", norms_and_linears, kLinearSequencePlan, {1, 16, 8}},
          {"linears", norms_and_linears, kLinearSequencePlan, {3, 16, 8}},
          {"mlp", mlp_between_norms, kMlpSequencePlan, {2, 16, 8}},
          {"attention, one row", norm_and_attention, kAttentionPlan, {1, 16, 16}},
          {"attention", norm_and_attention, kAttentionPlan, {2, 16, 16}}};
}

TEST(SequenceChunks, GiveTheNumbersOfOneDevice) {
  for (const StyledTree& tree : sequence_trees()) {
    const Numbers want = on_one_device(tree);
    for (const int tp : {2, 4})
      for (const int chunks : {2, 4})
        run_ranks(tp, [&](Gang& root) {
          const auto model = styled_model(root, tree, tp, Strategy::full_shard, chunks);
          expect_equal(run(*model, tree), want, text(tree.name, " tp ", tp, " chunks ", chunks));
        });
  }
}

// A parameter group that casts its input reads it before the product does, so it must get the whole input.
TEST(SequenceChunks, AParameterGroupAroundTheFirstProductGetsTheWholeInput) {
  const StyledTree tree = sequence_trees()[2];
  const Numbers want = on_one_device(tree);
  run_ranks(2, [&](Gang& root) {
    MeshOptions mesh;
    mesh.tp = 2;
    Model model(tree_of(tree), create_gangs(root.shared_from_this(), mesh));
    TensorOptions options;
    options.rows = plan_from_text(tree.plan);
    options.overlap_chunks = 2;
    model.build().tensor_parallel(options);
    ShardOptions narrow;
    narrow.param_dtype = DType::f32;
    narrow.output_dtype = DType::f64;
    for (const char* group : {"1.gate_proj", "1.up_proj"}) model.build().fully_shard(group, narrow);
    model.build().fully_shard("", {});
    model.build().materialize(5, DType::f64);
    EXPECT_LE(normwise(run(model, tree).y, want.y), 1e-6);
  });
}

// At each product of a forward: the number of collectives launched, and of those whose outputs the stream was
// ordered after.
struct Order {
  std::vector<size_t> launched, arrived;
};

class OrderOps final : public OpsInterceptor {
 public:
  OrderOps(Ops& inner, const Engine& engine, Order& order)
      : OpsInterceptor(inner), engine_(engine), order_(order) {}

 private:
  void intercept(const char* operation, const std::function<void()>& call) override {
    if (std::string(operation) == "gemm") {
      const std::vector<RecordedCollective> all = recorded(engine_);
      order_.launched.push_back(all.size());
      order_.arrived.push_back(static_cast<size_t>(
          std::count_if(all.begin(), all.end(), [](const auto& c) { return c.ordered; })));
    }
    call();
  }
  const Engine& engine_;
  Order& order_;
};

const char* const kColumns = "-> prepare_input(Replicate, Shard(1))\n0 -> colwise, input Shard(1)";
const char* const kRows = "-> prepare_input(Replicate, Shard(-1))\n0 -> rowwise, output Shard(1)";

// Runs a Linear 8 to 8 with this plan over two ranks, on a device without data.
Order order_of(const char* plan, int chunks) {
  GangOptions meta;
  meta.device = "meta";
  const auto gang = Gang::create_fake(0, 2, meta, /*record=*/true, /*refuse_meta=*/false);
  ModulePtr root = make_sequential({make_linear(8, 8, false)});
  assign_full_names(*root);
  TensorOptions options;
  options.rows = plan_from_text(plan);
  options.overlap_chunks = chunks;
  TensorPlan(root, options, gang).apply(root);
  const auto device = make_device("meta");
  const auto ops = make_ops(device);
  for (const NamedParameter& p : named_parameters(*root)) {
    p.parameter->place = {0};
    p.parameter->value = Tensor::allocate(device->allocator(), DType::f32, p.parameter->compute_shape());
  }
  Order order;
  OrderOps watched(*ops, gang->engine(), order);
  Stack temporaries(device->allocator());
  Frame frame(device->allocator());
  Context ctx{.ops = watched, .stream = device->stream(), .temporaries = temporaries};
  root->forward_one(ctx, Tensor::allocate(device->allocator(), DType::f32, Shape{1, 24, 8}), &frame);
  return order;
}

// All chunks are on their way before the first product, which waits only for the first chunk. A chunk has two
// pieces, from two ranks.
TEST(SequenceChunks, AProductRunsWhileTheNextChunkIsGathered) {
  const Order order = order_of(kColumns, 3);
  EXPECT_EQ(order.launched, (std::vector<size_t>{3, 3, 3, 3, 3, 3}));
  EXPECT_EQ(order.arrived, (std::vector<size_t>{1, 1, 2, 2, 3, 3}));
}

// A chunk is sent as soon as its products are made, and nothing waits for it before the last product.
TEST(SequenceChunks, AChunkIsSummedWhileTheNextProductRuns) {
  const Order order = order_of(kRows, 3);
  EXPECT_EQ(order.launched, (std::vector<size_t>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(order.arrived, (std::vector<size_t>(6, 0)));
}

TEST(SequenceChunks, OneChunkIsOneProduct) {
  EXPECT_EQ(order_of(kColumns, 1).arrived, (std::vector<size_t>{1}));
  EXPECT_EQ(order_of(kRows, 1).launched, (std::vector<size_t>{0}));
}

void expect_refused(const char* plan, int chunks, std::initializer_list<const char*> words) {
  const ModulePtr root = make_sequential({make_linear(8, 8, false)});
  assign_full_names(*root);
  TensorOptions options;
  options.rows = plan_from_text(plan);
  options.overlap_chunks = chunks;
  expect_refusal(
      Code::invalid_argument,
      [&] { TensorPlan(root, options, Gang::create_fake(0, 2, GangOptions{}, false)); }, words);
}

TEST(SequenceChunks, NumbersThatDoNotFitAreRefused) {
  expect_refused(kColumns, 0, {"overlap_chunks is 0"});
  expect_refused(kColumns, -3, {"overlap_chunks is -3"});
  expect_refused("0 -> colwise", 2, {"overlap_chunks is 2", "no row", "sequence_parallel"});
}

// Generation runs without a frame, and its sequences have any length.
TEST(SequenceChunks, WithoutAFrameASequenceTravelsWhole) {
  const StyledTree tree = {"attention", norm_and_attention, kAttentionPlan, {2, 12, 16}};
  const Numbers want = on_one_device(tree);
  run_ranks(2, [&](Gang& root) {
    const auto model = styled_model(root, tree, 2, Strategy::full_shard, 4);
    Context ctx = model->run().context(model->device().stream());
    const Tensor x = make(model->device(), DType::f64, tree.input, input_of(tree));
    const Spec spec = spec_of(x);
    model->run().check_forward(ctx, {&spec, 1}, nullptr);
    EXPECT_LE(normwise(get(model->run().forward(ctx, {&x, 1}, nullptr)[0]), want.y), 1e-13);
  });
}

TEST(SequenceChunks, ASequenceThatDoesNotDivideIsRefusedBeforeAnythingMoves) {
  const StyledTree tree = {"linears", norms_and_linears, kLinearSequencePlan, {2, 12, 8}};
  run_ranks(2, [&](Gang& root) {
    const auto model = styled_model(root, tree, 2, Strategy::full_shard, 4);
    Context ctx = model->run().context(model->device().stream());
    const Spec x{DType::f64, tree.input};
    expect_refusal(Code::invalid_argument,
                   [&] {
                     model->run().check_forward(ctx, {&x, 1}, &model->frame(0));
                   },
                   {"overlap_chunks is 4", "6 tokens"});
  });
}

}  // namespace
}  // namespace gangway::test
