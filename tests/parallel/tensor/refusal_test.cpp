// Refusals of tensor parallel plans, with the row and the reason, before anything changes; and which of
// several rows wins.
#include "parallel/parallel_testing.h"
#include "parallel/tensor/apply.h"

namespace gangway::test {
namespace {

GangPtr fake(int ranks) { return Gang::create_fake(0, ranks, GangOptions{}, false); }

void expect_refused(const ModulePtr& root, int tp, const char* plan, std::initializer_list<const char*> words,
                    Code code = Code::invalid_argument) {
  TensorOptions options;
  assign_full_names(*root);
  expect_refusal(
      code,
      [&] {
        options.rows = plan_from_text(plan);
        TensorPlan(root, options, fake(tp));
      },
      words);
  for (const NamedParameter& p : named_parameters(*root)) EXPECT_TRUE(p.parameter->layout.empty()) << p.name;
}

ModulePtr linears(int64_t in, int64_t middle, int64_t out, bool bias = true) {
  return make_sequential({make_linear(in, middle, bias), make_linear(middle, out, bias)});
}

ModulePtr llama_of(int64_t heads, int64_t kv_heads, int64_t vocab, int64_t ffn, bool tied = false) {
  DecoderOptions config;
  config.vocab = vocab;
  config.dim = 8 * heads;
  config.layers = 1;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.ffn = ffn;
  config.tied = tied;
  return make_decoder(config);
}

TEST(TensorPlan, AnUnknownPathIsNotFound) {
  expect_refused(linears(4, 4, 4), 2, "0 -> colwise\n3 -> rowwise\n", {"3 -> rowwise", "no module"},
                 Code::not_found);
  expect_refused(linears(4, 4, 4), 1, "x.* -> colwise", {"x.* -> colwise"}, Code::not_found);
}

TEST(TensorPlan, TwoRowsForOneModuleAreRefused) {
  expect_refused(linears(4, 4, 4), 2, "0 -> colwise\n* -> rowwise\n",
                 {"0 -> colwise", "* -> rowwise", "both for 0"});
}

TEST(TensorPlan, ADropoutOfAPartWithoutARowIsRefused) {
  const auto dropped = [](double probability) {
    return make_sequential({make_linear(4, 4, true), make_dropout(probability), make_linear(4, 4, true)});
  };
  const std::string plan = "0 -> colwise\n2 -> rowwise\n";
  expect_refused(dropped(0.5), 2, plan.c_str(), {"no row for 1", "Shard(-1)", "headwise"});
  TensorOptions options;
  options.rows = plan_from_text(plan + "1 -> headwise\n");
  EXPECT_NO_THROW(TensorPlan(dropped(0.5), options, fake(2)));
  options.rows = plan_from_text(plan);
  EXPECT_NO_THROW(TensorPlan(dropped(0), options, fake(2))) << "nothing is dropped";
}

TEST(TensorPlan, DimsThatDoNotDivideAreRefusedWithBothNumbers) {
  expect_refused(linears(4, 6, 4), 4, "0 -> colwise", {"0 -> colwise", "out 6", "tp 4"});
  expect_refused(linears(4, 6, 4), 4, "1 -> rowwise", {"1 -> rowwise", "in 6", "tp 4"});
  expect_refused(make_sequential({make_embedding(9, 6)}), 4, "0 -> colwise", {"dim 6", "tp 4"});
  expect_refused(llama_of(4, 4, 12, 18), 4, "", {"gate_proj", "out 18", "tp 4"});
}

TEST(TensorPlan, AVocabularyNeedNotDivideAndHasAnIdForEachRank) {
  for (const int64_t ids : {4, 5, 9, 10, 11})
    TensorPlan(llama_of(4, 4, ids, 16, ids == 9), {}, fake(4)).modules();
  TensorOptions rows;
  rows.rows = plan_from_text("0 -> rowwise");
  TensorPlan(make_sequential({make_embedding(9, 6)}), rows, fake(4)).modules();
  expect_refused(make_sequential({make_embedding(3, 6)}), 4, "0 -> rowwise",
                 {"0 -> rowwise", "rows 3", "too few for tp 4", "at least one"});
  expect_refused(llama_of(4, 4, 3, 16), 4, "",
                 {"model.embed_tokens", "of the llama plan", "rows 3", "too few for tp 4"});
  expect_refused(llama_of(4, 4, 3, 16), 4, "model.embed_tokens -> replicate", {"lm_head", "out 3", "tp 4"});
}

TEST(TensorPlan, HeadsThatDoNotDivideAreRefused) {
  expect_refused(llama_of(6, 6, 12, 16), 4, "", {"q_proj", "6 heads", "tp 4"});
  expect_refused(llama_of(8, 2, 12, 16), 4, "", {"k_proj", "2 key and value heads", "tp 4"});
}

TEST(TensorPlan, LayoutsThatDoNotMeetAreRefused) {
  expect_refused(linears(4, 4, 4), 2, "0 -> colwise\n", {"no row for 1", "0 -> colwise", "Shard(-1)"});
  expect_refused(linears(4, 4, 4), 2, "0 -> colwise, output whole\n1 -> rowwise\n",
                 {"1 -> rowwise", "takes Shard(-1)", "0 -> colwise", "gives Replicate"});
  expect_refused(linears(4, 4, 4), 2, "0 -> colwise, input Varying\n1 -> rowwise\n",
                 {"0 -> colwise", "takes Varying", "the model's input gives Replicate"});
  const char* const sequence = "model.layers.*.self_attn.o_proj -> rowwise, output Shard(1)\n";
  expect_refused(llama_of(4, 4, 8, 16), 2, sequence,
                 {"o_proj", "gives Shard(1)", "model.embed_tokens", "gives Replicate",
                  "model.layers.0 takes them together"});
  expect_refused(llama_of(4, 4, 8, 16), 2, "model.layers.*.self_attn.k_proj -> replicate",
                 {"k_proj -> replicate", "takes Replicate", "gives Varying"});
  expect_refused(llama_of(4, 4, 8, 16), 2, "model.embed_tokens -> rowwise, output Shard(1)",
                 {"no row for model.layers.0.input_layernorm", "Shard(1)"});
  expect_refused(make_sequential({make_mlp(8, 8, false)}), 2,
                 "0.gate_proj -> colwise\n0.down_proj -> rowwise", {"0.up_proj", "Shard(-1)"});
}

TEST(TensorPlan, ANormOfHeadsIsHeadwiseWhereTheHeadsAreSplit) {
  const auto tree = [] {
    AttentionOptions options;
    options.dim = 16;
    options.heads = options.kv_heads = 4;
    options.qk_norm = QkNorm::head;
    return make_sequential({make_attention(options)});
  };
  const char* const heads =
      "0.q_proj -> colwise\n0.k_proj -> colwise\n0.v_proj -> colwise\n0.o_proj -> rowwise\n";
  expect_refused(tree(), 2, heads, {"no row for 0.q_norm", "Shard(-1)"});
  expect_refused(tree(), 2, "0.q_norm -> headwise", {"0.q_norm -> headwise", "takes Shard(2)"});
}

ModulePtr attention() {
  AttentionOptions options;
  options.dim = 16;
  options.heads = options.kv_heads = 4;
  return make_sequential({make_attention(options)});
}

// A parent that declares as many heads as it is told for the outputs of its linear.
class Heads final : public Module {
 public:
  Heads(int64_t out, int64_t heads) : heads_(heads) { add_child("proj", make_linear(8, out, false)); }
  const char* kind() const override { return "Heads"; }
  std::optional<DataFlow> data_flow() const override {
    return DataFlow{{{0, {DataFlow::kInput}, {heads_, "heads"}}}, {0}};
  }
  Values forward(Context&, std::span<const Tensor>, Frame*) override { return {}; }
  Values backward(Context&, std::span<const Tensor>, Frame&) override { return {}; }

 private:
  int64_t heads_;
};

TEST(TensorPlan, ALinearThatMakesAllHeadsIsNotHeadwise) {
  const auto tree = [](int64_t out) { return make_sequential({std::make_shared<Heads>(out, 4)}); };
  expect_refused(tree(10), 2, "0.proj -> headwise", {"0.proj has out 10, which its 4 heads do not divide"});
  expect_refused(tree(16), 2, "0.proj -> headwise",
                 {"0.proj makes all of its 4 heads", "colwise splits this"});
  expect_refused(tree(16), 2, "0.proj -> headwise, input Replicate", {"0.proj makes all of its 4 heads"});
  expect_refused(make_sequential({make_embedding(8, 8)}), 2, "0 -> headwise",
                 {"0 is an Embedding", "colwise"});
  expect_refused(llama_of(4, 4, 8, 16), 2, "model.layers.*.self_attn.k_proj -> headwise",
                 {"k_proj makes all of its 4 key and value heads"});
}

TEST(TensorPlan, MovesThatNoCollectiveMakesAreRefused) {
  expect_refused(linears(4, 4, 4), 2, "0 -> rowwise, input Varying",
                 {"0 -> rowwise, input Varying", "no collective"});
  expect_refused(linears(4, 4, 4), 2, "0 -> prepare_input(Replicate, Partial)", {"no collective"});
}

TEST(TensorPlan, ModulesThatAStyleCannotSplitAreRefused) {
  expect_refused(make_sequential({make_rmsnorm(4, 1e-5)}), 2, "0 -> colwise", {"0 is a RMSNorm", "Linear"});
  expect_refused(make_sequential({make_mlp(4, 4, false)}), 2, "0 -> rowwise", {"0 is a Mlp"});
  expect_refused(linears(4, 4, 4), 2, "0 -> rowwise, input Replicate, output local", {"bias", "Partial"});
  expect_refused(llama_of(4, 4, 8, 16), 2, "lm_head -> rowwise", {"lm_head", "colwise only"});
  expect_refused(llama_of(4, 4, 8, 16), 2, "lm_head -> colwise, output Shard(1)", {"logits", "Shard(1)"});
}

TEST(TensorPlan, ABiasThatIsHandedOutFitsTheOutputBesideIt) {
  const auto linear = [] { return make_sequential({make_linear_skip_bias_add(4, 4)}); };
  expect_refused(linear(), 2, "0 -> colwise, output whole", {"hands out its bias", "Shard(-1)", "Replicate"});
  expect_refused(linear(), 2, "0 -> rowwise, output Shard(1)",
                 {"hands out its bias", "Replicate", "Shard(1)"});
  for (const char* const plan : {"0 -> colwise", "0 -> rowwise, input Replicate"}) {
    TensorOptions options;
    options.rows = plan_from_text(plan);
    TensorPlan(linear(), options, fake(2));
  }
}

TEST(TensorPlan, ATiedParameterHasOneLayout) {
  expect_refused(llama_of(4, 4, 8, 16, true), 2, "model.embed_tokens -> colwise, output whole",
                 {"model.embed_tokens.weight", "tied", "Shard(1)", "Shard(0)"});
  expect_refused(llama_of(4, 4, 8, 16, true), 2, "lm_head -> replicate", {"tied", "Shard(0)", "Replicate"});
}

TEST(TensorPlan, AModelWithoutAPlanIsRefused) {
  expect_refused(linears(4, 4, 4), 2, "", {"tp is 2", "no tensor parallel plan"}, Code::not_supported);
  TensorPlan(linears(4, 4, 4), {}, fake(1));
}

TEST(TensorPlan, ParametersThatAreSplitAlreadyAreRefused) {
  ModulePtr root = llama_of(4, 4, 8, 16);
  const TensorPlan plan(root, {}, fake(2));
  plan.apply(root);
  expect_refusal(Code::invalid_state, [&] { TensorPlan(root, {}, fake(2)); },
                 {"model.embed_tokens", "tp already"});
}

// A module that has a plan for its own children.
class OwnPlan final : public Module {
 public:
  OwnPlan(const char* plan, ModulePtr inner) : plan_(plan) { add_child("inner", std::move(inner)); }
  const char* kind() const override { return "OwnPlan"; }
  std::string parallel_plan() const override { return plan_; }
  Values forward(Context& ctx, std::span<const Tensor> x, Frame* f) override {
    return child(0).forward(ctx, x, f);
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& f) override {
    return child(0).backward(ctx, dy, f);
  }

 private:
  const char* plan_;
};

std::string chosen(const ModulePtr& root, const char* plan) {
  assign_full_names(*root);
  TensorOptions options;
  options.rows = plan_from_text(plan);
  const TensorPlan made(root, options, fake(2));
  std::string all;
  for (const StyledModule& m : made.modules())
    all += m.place.path + " " + name(m.row.style) + " by " + (m.source.empty() ? "caller" : m.source) + "; ";
  return all;
}

TEST(TensorPlan, AModuleBringsItsOwnRowsAndTheCallersWin) {
  const auto tree = [] {
    return make_sequential(
        {std::make_shared<OwnPlan>("inner.0 -> colwise\ninner.1 -> rowwise", linears(4, 4, 4))});
  };
  EXPECT_EQ(chosen(tree(), ""), "0.inner.0 colwise by module 0; 0.inner.1 rowwise by module 0; ");
  EXPECT_EQ(chosen(tree(), "0.inner.* -> replicate"),
            "0.inner.0 replicate by caller; 0.inner.1 replicate by caller; ");
  EXPECT_EQ(chosen(tree(), "0.inner.1 -> rowwise, output whole"),
            "0.inner.0 colwise by module 0; 0.inner.1 rowwise by caller; ");
  // The row of the innermost module wins.
  const ModulePtr twice = std::make_shared<OwnPlan>("inner.0.inner.* -> replicate", tree());
  EXPECT_EQ(chosen(twice, ""),
            "inner.0.inner.0 colwise by module inner.0; inner.0.inner.1 rowwise by module inner.0; ");
  expect_refused(std::make_shared<OwnPlan>("inner.7 -> colwise", linears(4, 4, 4)), 2, "",
                 {"inner.7 -> colwise", "of module (root)", "no module"}, Code::not_found);
  expect_refused(std::make_shared<OwnPlan>("inner -> sideways", linears(4, 4, 4)), 2, "",
                 {"module (root)", "line 1", "sideways"});
}

// A module whose second child reads what the first gives, and which says so.
class Declared final : public Module {
 public:
  Declared(ModulePtr first, ModulePtr second) {
    add_child("first", std::move(first));
    add_child("second", std::move(second));
  }
  const char* kind() const override { return "Declared"; }
  std::optional<DataFlow> data_flow() const override {
    return DataFlow{.steps = {{0, {DataFlow::kInput}, {6, "wheels"}}, {1, {0}}}, .output = {1}};
  }
  Values forward(Context& ctx, std::span<const Tensor> x, Frame* f) override {
    return {child(1).forward_one(ctx, child(0).forward_one(ctx, x[0], f), f)};
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& f) override {
    return {child(0).backward_one(ctx, child(1).backward_one(ctx, dy[0], f), f)};
  }
};

TEST(TensorPlan, LayoutsAreFollowedThroughAnyModuleThatDeclaresItsDataFlow) {
  const auto tree = [] {
    return std::make_shared<Declared>(make_linear(4, 12, false), make_linear(12, 4, false));
  };
  expect_refused(tree(), 2, "first -> colwise", {"no row for second", "first -> colwise", "Shard(-1)"});
  expect_refused(tree(), 4, "first -> colwise\nsecond -> rowwise", {"first has 6 wheels", "tp 4"});
  EXPECT_EQ(chosen(tree(), "first -> colwise\nsecond -> rowwise"),
            "first colwise by caller; second rowwise by caller; ");
}

ModulePtr plain(int64_t in, int64_t out) { return make_linear(in, out, false); }

const char* const kSum = "0 -> rowwise, input Replicate, output local\n";

TEST(TensorPlan, APartialValueIntoAModuleThatIsNotLinearIsRefused) {
  expect_refused(make_sequential({plain(4, 4), make_activation(Activation::gelu)}), 2, kSum,
                 {"1 is not linear", "0 -> rowwise", "gives Partial"});
  expect_refused(make_sequential({plain(4, 4), make_rmsnorm(4, 1e-5)}), 2, kSum,
                 {"1 is not linear", "gives Partial"});
  for (const bool gated : {false, true})
    expect_refused(
        make_sequential({gated ? make_mlp(4, 8, false) : make_plain_mlp(4, 8, false, Activation::gelu)}), 2,
        gated ? "0.*_proj -> rowwise, input Replicate, output local"
              : "0.up_proj -> rowwise, input Replicate, output local",
        {"0 is not linear", "_proj -> rowwise", "gives Partial"});
}

TEST(TensorPlan, APartialValueGoesThroughALinearModule) {
  for (const bool drops : {false, true}) {
    const ModulePtr between = drops ? make_dropout(0.5) : make_sequential({make_dropout(0.5)});
    EXPECT_EQ(chosen(make_sequential({plain(4, 4), between, plain(4, 4)}),
                     text(kSum, "2 -> rowwise, input Partial").c_str()),
              "0 rowwise by caller; 2 rowwise by caller; ");
  }
}

TEST(TensorPlan, AnOutputThatIsPartialOrVaryingIsRefused) {
  expect_refused(make_sequential({plain(4, 4)}), 2, kSum,
                 {"the output of Sequential is Partial", "0 -> rowwise"});
  expect_refused(make_sequential({plain(4, 4), make_activation(Activation::gelu)}), 2,
                 "0 -> replicate\n1 -> prepare_input(Replicate, Varying)",
                 {"the output of Sequential is Varying", "the same gradient on all ranks"});
}

// It declares nothing about itself.
class Silent final : public Module {
 public:
  explicit Silent(ModulePtr inner) {
    if (inner != nullptr) add_child("inner", std::move(inner));
  }
  const char* kind() const override { return "Silent"; }
  Values forward(Context&, std::span<const Tensor>, Frame*) override { return {}; }
  Values backward(Context&, std::span<const Tensor>, Frame&) override { return {}; }
};

TEST(TensorPlan, AModuleThatDeclaresNothingTakesAPartialValueOnlyIfItsRowSaysSo) {
  const auto tree = [] { return make_sequential({plain(4, 4), std::make_shared<Silent>(nullptr)}); };
  expect_refused(tree(), 2, kSum, {"1 is not linear", "gives Partial"});
  EXPECT_EQ(chosen(tree(), text(kSum, "1 -> prepare_input(Partial, Partial)").c_str()),
            "0 rowwise by caller; 1 prepare_input by caller; ");
}

TEST(TensorPlan, AWholeParameterWhoseGradientNothingSumsIsRefused) {
  const auto tree = [] { return make_sequential({std::make_shared<Silent>(make_rmsnorm(4, 1e-5))}); };
  for (const char* const plan : {"0 -> prepare_input(Replicate, Shard(1))", "0 -> headwise, input Replicate"})
    expect_refused(
        tree(), 2, plan,
        {"no row for 0.inner", "whose parameters are Replicate", "gives it Shard(", "nothing sums"});
  expect_refused(llama_of(4, 4, 8, 16), 2, "model.norm -> prepare_input(Replicate, Varying)",
                 {"no row for model.norm", "gives it Varying"});
  EXPECT_EQ(chosen(tree(), "0 -> sequence_parallel, input Replicate"), "0 sequence_parallel by caller; ");
}

TEST(TensorPlan, TheRowsInsideOfAModuleWithARowAreFollowed) {
  expect_refused(llama_of(4, 4, 8, 16), 2, "model.layers.*.mlp -> replicate",
                 {"gate_proj -> colwise", "takes Varying", "mlp -> replicate", "gives Replicate"});
  expect_refused(attention(), 2, "0 -> sequence_parallel, input Replicate",
                 {"0.core_attention attends to whole sequences", "Shard("});
}

TEST(TensorPlan, ARefusedParallelizeLeavesTheModelAsItWas) {
  run_ranks(2, [](Gang& root) {
    MeshOptions mesh;
    mesh.tp = 2;
    Model model(llama_of(4, 4, 8, 16), create_gangs(root.shared_from_this(), mesh));
    ParallelOptions options;
    // The rule is checked only after everything is wrapped.
    options.shard.dtype_rules = {{"model.layers.0.mlp.up_proj.weight", DType::bf16}};
    expect_refusal(Code::invalid_argument, [&] { model.build().parallelize(options); }, {"up_proj"});
    for (const NamedParameter& p : named_parameters(model.root())) EXPECT_TRUE(p.parameter->layout.empty());
    for (const NamedModule& m : named_modules(model.root().shared_from_this()))
      EXPECT_FALSE(m.module->is_wrapper()) << m.path;
    model.build().parallelize({});
    EXPECT_TRUE(model.materialized());
  });
}

TEST(TensorPlan, DifferentPlansOnRanksAreReported) {
  run_ranks(2, [](Gang& root) {
    MeshOptions mesh;
    mesh.tp = 2;
    Model model(llama_of(4, 4, 8, 16), create_gangs(root.shared_from_this(), mesh));
    ParallelOptions options;
    options.tensor.family.loss_parallel = root.rank() == 0;
    expect_refusal(Code::mismatch, [&] { model.build().parallelize(options); },
                   {"loss", "loss parallel", "logits gathered"});
    options.tensor.family = {.sequence_parallel = root.rank() == 0};
    expect_refusal(Code::mismatch, [&] { model.build().parallelize(options); }, {"embed_tokens", "Shard(1)"});
    model.build().parallelize({});
  });
}

TEST(TensorPlan, ParametersThatAreWholeOnRanksOfTpAreCompared) {
  run_ranks(4, [](Gang& root) {
    MeshOptions mesh;
    mesh.tp = 2;
    Model model(llama_of(4, 4, 8, 16), create_gangs(root.shared_from_this(), mesh));
    model.build().parallelize({});
    Stream& stream = model.device().stream();
    model.inspect().check_replicas(stream);
    const Tensor norm = model.inspect().parameter("model.norm.weight").parameter->shard;
    Vector values = get(norm);
    if (root.rank() == 3) values[2] = 5;  // ranks 2 and 3 hold the second half
    put(norm, values);
    expect_refusal(Code::mismatch, [&] { model.inspect().check_replicas(stream); },
                   {"model.norm.weight[18] is 1 on rank 2, 5 on rank 3"});
  });
}

TEST(TensorPlan, PiecesMayBeAppliedOneByOne) {
  run_ranks(4, [](Gang& root) {
    MeshOptions mesh;
    mesh.tp = 2;
    Model model(llama_of(4, 4, 8, 16), create_gangs(root.shared_from_this(), mesh));
    expect_refusal(Code::invalid_state, [&] { model.build().fully_shard("model.layers.*", {}); },
                   {"tp is 2", "tensor_parallel comes first"});
    model.build().tensor_parallel({});
    expect_refusal(Code::invalid_state, [&] { model.build().tensor_parallel({}); }, {"tp already"});
    ParallelOptions late;  // options for tp, which has been applied already
    late.tensor.family.sequence_parallel = true;
    expect_refusal(Code::invalid_state, [&] { model.build().parallelize(late); }, {"tp already"});
    ParallelOptions again;
    again.tensor.rows = plan_from_text("lm_head -> replicate");
    expect_refusal(Code::invalid_state, [&] { model.build().parallelize(again); }, {"tp already"});
    model.build().fully_shard("model.layers.*", {});
    expect_refusal(Code::invalid_state, [&] { model.build().tensor_parallel({}); },
                   {"comes before fully_shard"});
    model.build().fully_shard("", {});
    model.build().materialize(1, DType::f32);
    const Parameter& p = *model.inspect().parameter("model.layers.0.mlp.down_proj.weight").parameter;
    EXPECT_EQ(describe(p.layout), "tp: Shard(1), dp_shard: Shard(0)");
  });
}

}  // namespace
}  // namespace gangway::test
