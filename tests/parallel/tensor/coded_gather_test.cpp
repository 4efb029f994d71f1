// Sequences that travel as codes to layers in FP8: the same bits as of a gather of values, on every rank and
// in every step; who gets codes; order; memory.
#include "parallel/tensor/coded_gather.h"

#include <bit>
#include <limits>

#include "gang/local/fake.h"
#include "nn/lora.h"
#include "nn/small_llama.h"
#include "ops/fp8.h"
#include "parallel/tensor/apply.h"
#include "parallel/tensor/styled_trees.h"
#include "support/ops_interceptor.h"

namespace gangway::test {
namespace {

constexpr char kColumns[] = "-> prepare_input(Replicate, Shard(1))\n0 -> colwise, input Shard(1)";
constexpr Fp8Scaling kScalings[] = {Fp8Scaling::tensor, Fp8Scaling::delayed, Fp8Scaling::row};

// A wrapper that may read its input in values, so that it gets them.
class ReadsValues final : public Module {
 public:
  explicit ReadsValues(ModulePtr inner) { add_child("", std::move(inner)); }
  const char* kind() const override { return "ReadsValues"; }
  bool is_wrapper() const override { return true; }
  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    return child(0).check_forward(ctx, inputs);
  }
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    return child(0).forward(ctx, inputs, frame);
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    return child(0).backward(ctx, dy, frame);
  }
  void add_backward(Context& ctx, const Tensor& dy, Frame& frame, const Tensor& dx) override {
    child(0).add_backward(ctx, dy, frame, dx);
  }
};

ModulePtr linear() { return make_sequential({make_linear(44, 96, true, 0.5)}); }
ModulePtr gpu_linear() { return make_sequential({make_linear(16, 32, true, 0.5)}); }

// A tree whose module `reader` gathers its input, with the child `last` that reads it last (-1: the module).
struct GatheringTree {
  StyledTree styled;
  size_t module;
  int last;
};

// Codes of 44 inputs do not move in words, those of 8 and 16 do. A CPU takes other loops for the whole
// product of the first tree than for that of a few rows. GPUs take no such sizes.
std::vector<GatheringTree> gathering_trees() {
  return {{{"linear", linear, kColumns, {2, 16, 44}}, 0, -1},
          {{"mlp", mlp_between_norms, kMlpSequencePlan, {2, 16, 8}}, 1, 1},
          {{"attention",
            norm_and_attention,
            "0 -> sequence_parallel, input Replicate\n1 -> prepare_input(Shard(1), Varying)\n"
            "1.q_proj -> colwise, input Varying\n1.k_proj -> colwise, input Varying\n"
            "1.v_proj -> colwise, input Varying\n1.o_proj -> rowwise\n",
            {1, 16, 16}},
           1,
           2}};
}

struct Way {
  Fp8Scaling scaling = Fp8Scaling::tensor;
  int tp = 2, chunks = 1;
  DType dtype = DType::f32;
  RecomputeKind recompute = RecomputeKind::none;
  bool values = false;  // gathers values
};

std::unique_ptr<Model> model_of(Gang& root, const GatheringTree& tree, const Way& way) {
  const ModulePtr modules = tree_of(tree.styled);
  apply_fp8(modules, {.patterns = {}, .scaling = way.scaling, .history = 2});
  if (way.values) {
    Module& parent = tree.last < 0 ? *modules : modules->child(tree.module);
    const size_t at = tree.last < 0 ? tree.module : static_cast<size_t>(tree.last);
    parent.set_child(at, std::make_shared<ReadsValues>(parent.children()[at].module));
  }
  EXPECT_EQ(layers_that_share_codes(modules->child(tree.module)).empty(), way.values);
  MeshOptions mesh;
  mesh.tp = way.tp;
  ParallelOptions options;
  options.tensor.rows = plan_from_text(tree.styled.plan);
  options.tensor.overlap_chunks = way.chunks;
  options.shard.param_dtype = way.dtype;
  options.recompute.kind = way.recompute;
  options.seed = 5;
  auto model = std::make_unique<Model>(modules, create_gangs(root.shared_from_this(), mesh));
  model->build().parallelize(options);
  return model;
}

// All numbers of one microbatch.
Vector microbatch(Model& model, const GatheringTree& tree, Context& ctx, const Vector& input) {
  Frame& frame = model.frame(0);
  const Tensor x = make(model.device(), DType::f32, tree.styled.input, input);
  const Tensor y = model.run().forward(ctx, {&x, 1}, &frame)[0];
  Vector all = get(y);
  const Tensor dy = frame.allocate_gradient(y.dtype(), y.shape());
  put(dy, gradient_of(y));
  const Vector dx = get(model.run().backward(ctx, {&dy, 1}, frame).at(0));
  all.insert(all.end(), dx.begin(), dx.end());
  frame.run_weight_gradients(ctx);
  frame.reset();
  return all;
}

// All numbers of four steps, the first two of two microbatches, whose magnitudes differ, and of an
// evaluation. `odd` are the last numbers of the third step's input, which are the last rank's.
Vector numbers_of(Gang& root, const GatheringTree& tree, const Way& way, const Vector& odd = {}) {
  const auto model = model_of(root, tree, way);
  Stream& stream = model->device().stream();
  Context ctx = model->run().context(stream);
  Vector all;
  const auto add = [&](const Vector& more) { all.insert(all.end(), more.begin(), more.end()); };
  for (ctx.step = 0; ctx.step < 4; ++ctx.step) {
    const int microbatches = ctx.step < 2 ? 2 : 1;
    for (ctx.microbatch = 0; ctx.microbatch < microbatches; ++ctx.microbatch) {
      Vector x = input_of(tree.styled);
      const double factor = ctx.microbatch == 1 ? 1.5 : 2.0 * static_cast<double>(ctx.step);
      for (double& number : x) number *= factor;
      if (ctx.step == 2) std::copy(odd.begin(), odd.end(), x.end() - static_cast<int64_t>(odd.size()));
      model->run().set_is_last_backward(ctx.microbatch + 1 == microbatches);
      add(microbatch(*model, tree, ctx, x));
    }
    model->run().finish_gradients(stream);
    if (ctx.step == 1 || ctx.step == 2)
      for (const NamedParameter& p : model->inspect().parameters())
        add(get(model->inspect().gather_gradient(*p.parameter, stream)));
    model->run().begin_update(stream);
    model->run().end_update(stream);
  }
  const Tensor x = make(model->device(), DType::f32, tree.styled.input, input_of(tree.styled));
  ctx.training = false;
  add(get(model->run().forward(ctx, {&x, 1}, nullptr)[0]));
  return all;
}

void expect_same_bits(const GatheringTree& tree, Way way, const Vector& odd = {}) {
  std::vector<Vector> want(static_cast<size_t>(way.tp)), got = want;
  for (const bool values : {true, false}) {
    way.values = values;
    run_ranks(way.tp, [&](Gang& root) {
      (values ? want : got)[static_cast<size_t>(root.rank())] = numbers_of(root, tree, way, odd);
    });
  }
  for (size_t r = 0; r < want.size(); ++r) {
    ASSERT_EQ(got[r].size(), want[r].size());
    size_t different = 0;
    for (size_t i = 0; i < want[r].size(); ++i)
      different +=
          static_cast<size_t>(std::bit_cast<uint64_t>(got[r][i]) != std::bit_cast<uint64_t>(want[r][i]));
    EXPECT_EQ(different, 0u) << tree.styled.name << " scaling " << static_cast<int>(way.scaling) << " tp "
                             << way.tp << " chunks " << way.chunks << " " << name(way.dtype) << " recompute "
                             << static_cast<int>(way.recompute) << " rank " << r;
  }
}

TEST(CodedGather, GivesTheBitsOfAGatherOfValues) {
  const std::vector<GatheringTree> trees = gathering_trees();
  for (const Fp8Scaling scaling : kScalings) {
    expect_same_bits(trees[0], {scaling, 2, 1, DType::bf16});
    expect_same_bits(trees[0], {scaling, 4, 4, DType::f32});
    expect_same_bits(trees[1], {scaling, 2, 2, DType::f32});
    expect_same_bits(trees[1], {scaling, 4, 1, DType::bf16});
    expect_same_bits(trees[2], {scaling, 2, 1, DType::f32});
    expect_same_bits(trees[2], {scaling, 4, 2, DType::bf16});
  }
}

TEST(CodedGather, GivesTheBitsOfAGatherOfValuesOnAGpuToo) {
  const GatheringTree tree = {{"linear of a GPU", gpu_linear, kColumns, {2, 8, 16}}, 0, -1};
  for (const Fp8Scaling scaling : {Fp8Scaling::delayed, Fp8Scaling::row})
    expect_same_bits(tree, {scaling, 2, 2});
}

TEST(CodedGather, ARecomputationGathersTheSameCodes) {
  for (const Fp8Scaling scaling : kScalings) {
    expect_same_bits(gathering_trees()[1], {scaling, 2, 2, DType::bf16, RecomputeKind::selective});
    expect_same_bits(gathering_trees()[2], {scaling, 2, 2, DType::bf16, RecomputeKind::full});
  }
}

// An infinity is the scale of all ranks, and the history takes no magnitude of its input. A NaN is none.
TEST(CodedGather, WhatOnlyOneRankHasReachesTheScaleOfAll) {
  using Limits = std::numeric_limits<double>;
  for (const Fp8Scaling scaling : kScalings)
    for (const Vector& odd : {Vector{Limits::infinity(), 1}, Vector{Limits::quiet_NaN(), 1}, Vector{1e30}})
      expect_same_bits(gathering_trees()[0], {scaling, 2}, odd);
}

ModulePtr attention_in_fp8(const std::function<void(const ModulePtr&)>& apply) {
  const ModulePtr root = norm_and_attention();
  assign_full_names(*root);
  apply(root);
  return root->children()[1].module;
}

// All numbers of five steps, of which the first has only zeros. The inputs of the third and the fourth travel
// as values: one is no sequence of three dims, and the other has no tokens.
Vector numbers_of_both_ways(Gang& root, const Way& way) {
  GatheringTree tree = gathering_trees()[1];
  const auto model = model_of(root, tree, way);
  Context ctx = model->run().context(model->device().stream());
  Vector all;
  for (const Shape& shape : {Shape{2, 16, 8}, {2, 16, 8}, {2, 16, 1, 8}, {2, 0, 8}, {2, 16, 8}}) {
    tree.styled.input = shape;
    Vector x = input_of(tree.styled);
    for (double& number : x) number *= static_cast<double>(ctx.step % 3);
    const Vector more = microbatch(*model, tree, ctx, x);
    all.insert(all.end(), more.begin(), more.end());
    model->run().finish_gradients(ctx.stream);
    model->run().begin_update(ctx.stream);
    model->run().end_update(ctx.stream);
    ++ctx.step;
  }
  return all;
}

TEST(CodedGather, KeepsWhatLayersKnowOfInputsThatTravelledAsValues) {
  for (const Fp8Scaling scaling : kScalings) {
    std::vector<Vector> want(2), got(2);
    for (const bool values : {true, false})
      run_ranks(2, [&](Gang& root) {
        Way way{scaling};
        way.values = values;
        (values ? want : got)[static_cast<size_t>(root.rank())] = numbers_of_both_ways(root, way);
      });
    EXPECT_TRUE(got == want) << "scaling " << static_cast<int>(scaling);
  }
}

TEST(CodedGather, IsForLayersThatMakeTheSameCodes) {
  const auto count = [](const std::function<void(const ModulePtr&)>& apply) {
    return layers_that_share_codes(*attention_in_fp8(apply)).size();
  };
  using Scaling = Fp8Scaling;
  EXPECT_EQ(count([](const ModulePtr& m) { apply_fp8(m, {}); }), 3u);
  EXPECT_EQ(count([](const ModulePtr&) {}), 0u);
  EXPECT_EQ(count([](const ModulePtr& m) { apply_fp8(m, {.patterns = {"1.q_proj", "1.k_proj"}}); }), 0u);
  const auto two = [&](const Fp8Options& v) {
    return count([&](const ModulePtr& m) {
      Fp8Options q{.patterns = {"1.q_proj", "1.k_proj"}, .scaling = Scaling::delayed, .history = 3};
      apply_fp8(m, q);
      apply_fp8(m, v);
    });
  };
  EXPECT_EQ(two({.patterns = {"1.v_proj"}, .scaling = Scaling::delayed, .history = 3}), 3u);
  EXPECT_EQ(two({.patterns = {"1.v_proj"}, .scaling = Scaling::delayed, .history = 4}), 0u);
  EXPECT_EQ(two({.patterns = {"1.v_proj"}, .scaling = Scaling::row, .history = 3}), 0u);
  EXPECT_EQ(count([](const ModulePtr& m) {
              apply_fp8(m, {});
              LoraOptions adapter;
              adapter.patterns = {"1.v_proj"};
              apply_lora(m, adapter);
            }),
            0u);
}

// At each product of codes: the number of collectives of codes that the stream was ordered after.
class OrderOps final : public OpsInterceptor, public Fp8Ops {
 public:
  OrderOps(Ops& inner, const Engine& engine)
      : OpsInterceptor(inner), inner_(fp8_ops(inner)), engine_(engine) {}
  void fp8_scale(const Fp8ScaleArgs& args, Stream& stream) override { inner_.fp8_scale(args, stream); }
  void fp8_codes(const Fp8CodesArgs& args, Stream& stream) override { inner_.fp8_codes(args, stream); }
  void fp8_gemm(const Fp8GemmArgs& args, Stream& stream) override {
    size_t count = 0;
    for (const RecordedCollective& c : recorded(engine_))
      count += static_cast<size_t>(c.op == CollectiveOp::all_gather && c.ordered);
    arrived.push_back(count);
    inner_.fp8_gemm(args, stream);
  }
  std::vector<size_t> arrived;

 private:
  Fp8Ops& inner_;
  const Engine& engine_;
};

// A Linear 16 to 16 in FP8 whose input is gathered in three chunks, on a device without data.
struct GatheredLinear {
  explicit GatheredLinear(const char* kind) {
    GangOptions meta;
    meta.device = kind;
    gang = Gang::create_fake(0, 2, meta, /*record=*/true, /*refuse_meta=*/false);
    root = make_sequential({make_linear(16, 16, false)});
    assign_full_names(*root);
    apply_fp8(root, {.patterns = {}, .scaling = Fp8Scaling::row});
    TensorOptions options;
    options.rows = plan_from_text(kColumns);
    options.overlap_chunks = 3;
    TensorPlan(root, options, gang).apply(root);
    device = make_device(kind);
    ops = make_ops(device);
    for (const NamedParameter& p : named_parameters(*root)) {
      p.parameter->place = {0};
      p.parameter->value = Tensor::allocate(device->allocator(), DType::f32, p.parameter->compute_shape());
    }
  }
  Values forward(Ops& with, const Values& x) {
    Stack temporaries(device->allocator());
    Frame frame(device->allocator());
    Context ctx{.ops = with, .stream = device->stream(), .temporaries = temporaries};
    return root->forward(ctx, x, &frame);
  }
  Tensor input(DType dtype, const Shape& shape) const {
    return Tensor::allocate(device->allocator(), dtype, shape);
  }

  GangPtr gang;
  ModulePtr root;
  std::shared_ptr<Device> device;
  std::shared_ptr<Ops> ops;
};

// Returns the gathers that have arrived at each product.
std::vector<size_t> arrived_on(const char* kind) {
  GatheredLinear linear(kind);
  OrderOps watched(*linear.ops, linear.gang->engine());
  linear.forward(watched, {linear.input(DType::f32, {1, 24, 16})});
  return watched.arrived;
}

// The scales of rows arrive first. A chunk has two pieces, from two ranks.
TEST(CodedGather, OnAGpuAProductRunsWhileTheNextChunkIsGathered) {
  EXPECT_EQ(arrived_on("meta:cuda"), (std::vector<size_t>{2, 2, 3, 3, 4, 4}));
}

TEST(CodedGather, OnACpuOneProductTakesAllChunks) { EXPECT_EQ(arrived_on("meta"), (std::vector<size_t>{4})); }

// A module that calls its children, such as a custom one, checks nothing before.
TEST(CodedGather, RefusesTheInputsThatTheLayersRefuse) {
  GatheredLinear linear("meta");
  const auto refuses = [&](const Values& x, const char* why) {
    expect_refusal(Code::invalid_argument, [&] { linear.forward(*linear.ops, x); }, {why});
  };
  refuses({linear.input(DType::bf16, {1, 24, 16})}, "they must have one dtype");
  refuses({linear.input(DType::f32, {1, 24, 32})}, "its last dim must be 16");
  refuses({linear.input(DType::f32, {1, 20, 16})}, "does not divide the 10 tokens");
  refuses({}, "got no input");
  linear.forward(*linear.ops, {linear.input(DType::f32, {1, 24, 16})});  // the gang goes on
}

TEST(CodedGather, RanksWithOtherLayersInFp8AreToldSo) {
  run_ranks(2, [&](Gang& root) {
    const ModulePtr tree = norm_and_attention();
    Fp8Options options;
    if (root.rank() == 0) options.patterns = {"1.q_proj", "1.k_proj", "1.o_proj"};
    apply_fp8(tree, options);
    MeshOptions mesh;
    mesh.tp = 2;
    Model model(tree, create_gangs(root.shared_from_this(), mesh));
    ParallelOptions parallel;
    parallel.tensor.rows = plan_from_text(gathering_trees()[2].styled.plan);
    expect_refusal(Code::mismatch, [&] { model.build().parallelize(parallel); }, {"input codes"});
  });
}

// Runs two steps and an evaluation.
MemoryUse memory_of(Gang& root, Fp8Scaling scaling, int chunks) {
  const ModulePtr decoder = make_decoder(small_llama());
  apply_fp8(decoder, {.patterns = {}, .scaling = scaling});
  MeshOptions mesh;
  mesh.tp = 2;
  Model model(decoder, create_gangs(root.shared_from_this(), mesh));
  ParallelOptions options;
  options.tensor.family.sequence_parallel = true;
  options.tensor.overlap_chunks = chunks;
  model.build().parallelize(options);
  const Shape shape{2, 12};
  const Tensor ids = model.device().kind() == DeviceKind::meta
                         ? Tensor::allocate(model.device().allocator(), DType::i64, shape)
                         : make_ids(model.device(), shape, std::vector<int64_t>(24, 7));
  const Tensor inputs[] = {ids, ids};
  Context ctx = model.run().context(model.device().stream());
  for (ctx.step = 0; ctx.step < 2; ++ctx.step) {
    model.run().forward(ctx, inputs, &model.frame(0));
    model.run().backward(ctx, {}, model.frame(0));
    model.frame(0).reset();
    model.run().begin_update(model.device().stream());
    model.run().end_update(model.device().stream());
  }
  model.run().forward(ctx, inputs, nullptr);
  model.temporaries().reset();
  return model.inspect().memory();
}

TEST(CodedGather, PlanOnMetaEqualsTheRunExactly) {
  for (const auto& [scaling, chunks] :
       {std::pair{Fp8Scaling::tensor, 1}, {Fp8Scaling::delayed, 3}, {Fp8Scaling::row, 3}}) {
    const auto planned = [&, s = scaling, n = chunks](int rank) {
      GangOptions meta;
      meta.device = test_meta();
      return memory_of(*Gang::create_fake(rank, 2, meta, true, false), s, n);
    };
    const std::vector<MemoryUse> plans = {planned(0), planned(1)};
    run_ranks(2, [&, s = scaling, n = chunks](Gang& root) {
      const MemoryUse taken = memory_of(root, s, n), &plan = plans[static_cast<size_t>(root.rank())];
      EXPECT_EQ(taken.activations, plan.activations);
      EXPECT_EQ(taken.gradients, plan.gradients);
      EXPECT_EQ(taken.temporaries, plan.temporaries);
    });
  }
}

}  // namespace
}  // namespace gangway::test
