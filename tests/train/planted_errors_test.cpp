// Errors that training systems have had, planted one at a time: in a module of the test, in a wrapper
// around one, or in a plan. gw_verify or the types of the plan find each, and name the module or the
// parameter. Without an error, and for each family of the library, they find nothing.
#include <iostream>

#include "families/family.h"
#include "gang/agreement.h"
#include "nn/documents.h"
#include "nn/lora.h"
#include "nn/loss.h"
#include "train/train_testing.h"
#include "train/verify.h"

namespace gangway::test {
namespace {

enum class Plant {
  norm_not_summed,
  doubled_over_cp,
  own_divisor,
  outside_of_clip,
  partial_into_norm,
  positions_run_on,
  window_off_by_one,
  tied_counted_twice,
  loss_of_rank,
  own_statistic,
  wrong_replica,
};

// --- what is planted ---------------------------------------------------------------------------------------

// A wrapper that changes the context of its module, or what its forward gives.
struct Hooks {
  std::function<void(Context&)> context;
  std::function<void(Values&)> outputs;
};
class Hooked final : public Module {
 public:
  Hooked(ModulePtr inner, Hooks hooks) : hooks_(std::move(hooks)) { add_child("", std::move(inner)); }
  const char* kind() const override { return "Hooked"; }
  bool is_wrapper() const override { return true; }
  size_t output_count(size_t inputs) const override { return child(0).output_count(inputs); }
  size_t gradient_count() const override { return child(0).gradient_count(); }
  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    Context own = ctx;
    if (hooks_.context) hooks_.context(own);
    return child(0).check_forward(own, inputs);
  }
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    Context own = ctx;
    if (hooks_.context) hooks_.context(own);
    Values y = child(0).forward(own, inputs, frame);
    if (hooks_.outputs) hooks_.outputs(y);
    return y;
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    Context own = ctx;
    if (hooks_.context) hooks_.context(own);
    return child(0).backward(own, dy, frame);
  }

 private:
  const Hooks hooks_;
};

double sum_over(const GangPtr& gang, double value) { return gang->agreement().all_sum(Channel::user, value); }

// y = s g x, with the parameter g and, for Plant::own_statistic, a statistic s, the mean of the squares of
// all rows; else s is 1. `over` is null on one rank.
class Gain final : public CustomBehaviour {
 public:
  Gain(Plant plant, bool wrong, GangsPtr over) : plant_(plant), wrong_(wrong), over_(std::move(over)) {}

  Specs shapes(Custom&, Context&, std::span<const Spec> inputs) override { return {inputs[0]}; }
  void forward(Call& call) override { copy_in(call.outputs[0], times(call.inputs[0], call, factor(call))); }
  void backward_input(Call& call) override {
    copy_in(call.input_grads[0], times(call.output_grads[0], call, factor(call)));
    const std::vector<double> x = times(call.inputs[0], call, 1), dy = copy_out<double>(call.output_grads[0]);
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += x[i] * dy[i];
    if (plant_ == Plant::doubled_over_cp && wrong_) sum = sum_over(over_->cp(), sum);
    if (plant_ == Plant::wrong_replica && wrong_ && over_->coordinate(Axis::tp) == 1) sum *= 2;
    const Tensor& gradient = call.parameters[0]->grad->tensor;
    copy_in<double>(gradient, {copy_out<double>(gradient)[0] + sum});
  }
  bool has_backward_weight() const override { return false; }
  void backward_weight(Call&) override {}
  void free_state(void*) noexcept override {}
  bool accepts(DType dtype) const override { return dtype == DType::f64; }

 private:
  static double factor(const Call& call) { return copy_out<double>(call.parameters[0]->value)[0]; }
  std::vector<double> times(const Tensor& tensor, const Call& call, double factor) const {
    std::vector<double> y = copy_out<double>(tensor);
    factor *= statistic(copy_out<double>(call.inputs[0]));
    for (double& value : y) value *= factor;
    return y;
  }
  double statistic(const std::vector<double>& x) const {
    if (plant_ != Plant::own_statistic) return 1;
    double sum = 0, count = static_cast<double>(x.size());
    for (const double value : x) sum += value * value;
    if (over_ && !wrong_) {
      sum = sum_over(over_->loss_gang(), sum);
      count = sum_over(over_->loss_gang(), count);
    }
    return sum / count;
  }

  const Plant plant_;
  const bool wrong_;
  const GangsPtr over_;
};

// A norm and two products. It does not say how values go through it, so that the types of the plan do not see
// that its norm gets a part of the sequence.
class NormAndProducts final : public Module {
 public:
  NormAndProducts() {
    add_child("norm", make_rmsnorm(16, 1e-5));
    add_child("up", make_linear(16, 24, false, 0.3));
    add_child("down", make_linear(24, 16, false, 0.3));
  }
  const char* kind() const override { return "NormAndProducts"; }
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    Tensor x = inputs[0];
    for (size_t i = 0; i < 3; ++i) x = child(i).forward_one(ctx, x, frame);
    return {x};
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    Tensor gradient = dy[0];
    for (size_t i = 3; i-- > 0;) gradient = child(i).backward_one(ctx, gradient, frame);
    return {gradient};
  }
};

ModulePtr gain(Plant plant, bool wrong, const GangsPtr& over) {
  CustomOptions options;
  options.name = "Gain";
  options.parameters = {{"factor", Shape{1}, Init::ones()}};
  return make_custom(options, std::make_shared<Gain>(plant, wrong, over));
}

ModulePtr block(BlockNorms norms, int64_t window) {
  BlockOptions options;
  options.dim = 16;
  options.heads = 4;
  options.kv_heads = 2;
  options.ffn = 24;
  options.deviation = 0.3;
  options.norms = norms;
  options.window = window;
  return make_block(options);
}

// The positions of rows of 8 tokens, as if each row were one document.
ModulePtr with_positions_that_run_on(ModulePtr inner, const Gangs& over, const Tensor& documents) {
  const Tensor positions = Tensor::allocate(documents.device().allocator(), DType::i64, documents.shape());
  for (int64_t i = 0; i < positions.count(); ++i) positions.data<int64_t>()[i] = i % 8;
  const auto wrong =
      std::make_shared<Documents>(DocumentRows{documents, positions},
                                  SequencePart{over.coordinate(Axis::cp), over.mesh().degree(Axis::cp)});
  return std::make_shared<Hooked>(std::move(inner),
                                  Hooks{[wrong](Context& ctx) { ctx.documents = wrong.get(); }, nullptr});
}

// The head of the mesh, with an error in what it makes of the labels.
ModulePtr wrong_head(const ModulePtr& head, Plant plant, const GangsPtr& over) {
  const ParameterPtr* tied = &head->child(LmHead::kOutput).parameters()[0];
  const auto own = std::make_shared<double>(0);  // the labels of this rank that count
  const auto share = [own, over] {
    const GangPtr& gang = over->loss_gang();
    return sum_over(gang, *own) / (*own * gang->size());
  };
  Hooks hooks;
  hooks.context = [=](Context& ctx) {
    ctx.fused_loss = false;
    if (plant == Plant::tied_counted_twice) (*tied)->listed = true;
    // The second time, in backward, the number of labels is known.
    if (plant == Plant::own_divisor && *own != 0) ctx.loss_scale *= share();
  };
  hooks.outputs = [=](Values& y) {
    *own = copy_out<double>(y[1])[0];
    if (plant == Plant::loss_of_rank) copy_in<double>(y[0], {copy_out<double>(y[0])[0] * share()});
  };
  return std::make_shared<Hooked>(head, hooks);
}

// The model over `over`, or on one rank for null. Only over the mesh there is an error.
ModulePtr planted(Plant plant, const GangsPtr& over, bool with_error, const Tensor& documents) {
  const bool wrong = over != nullptr && with_error;
  const ModulePtr embedding = make_embedding(18, 16, 0.5);
  const bool own_norms = plant == Plant::partial_into_norm;
  const ModulePtr first = block(own_norms ? BlockNorms::after : BlockNorms::before, 0);
  ModulePtr middle = gain(plant, wrong, over);
  if (plant == Plant::norm_not_summed) middle = std::make_shared<NormAndProducts>();
  // Rotary angles would hide that positions run on: only differences of positions within a document count.
  if (plant == Plant::positions_run_on) middle = make_learned_positions(12, 16, 0.3);
  const ModulePtr second = block(BlockNorms::before, wrong && plant == Plant::window_off_by_one ? 4 : 3);
  ModulePtr head = make_head(16, 18, 1e-5, 0.3);
  if (plant == Plant::tied_counted_twice)
    head->child(LmHead::kOutput).set_parameter(0, embedding->parameters()[0]);
  if (wrong && plant == Plant::outside_of_clip) first->child(3).child(2).parameters()[0]->listed = false;
  if (wrong && plant == Plant::positions_run_on)
    middle = with_positions_that_run_on(std::move(middle), *over, documents);
  if (wrong &&
      (plant == Plant::own_divisor || plant == Plant::tied_counted_twice || plant == Plant::loss_of_rank))
    head = wrong_head(head, plant, over);
  return make_sequential({embedding, first, middle, second, head});
}

// --- the table ---------------------------------------------------------------------------------------------

struct Planted {
  const char* error;
  Plant plant;
  MeshOptions degrees;
  const char* found_by;
  const char* names;  // what the message says
  const char* plan = "";
  const char* right_plan = "";  // "": the same
  int ranks() const { return degrees.pp * degrees.dp_shard * degrees.cp * degrees.tp; }
};

const char* const kNormOfParts =
    "2 -> prepare_input(Replicate, Shard(1))\n2.up -> colwise, input Shard(1)\n2.down -> rowwise\n";
const char* const kNormOfPartsSummed =
    "2 -> prepare_input(Replicate, Shard(1))\n2.up -> colwise, input Shard(1)\n2.down -> rowwise\n"
    "2.norm -> sequence_parallel\n";
const char* const kPartialAttention =
    "1.self_attn.q_proj -> colwise\n1.self_attn.k_proj -> colwise\n1.self_attn.v_proj -> colwise\n"
    "1.self_attn.o_proj -> rowwise, output local\n";
const char* const kWholeAttention =
    "1.self_attn.q_proj -> colwise\n1.self_attn.k_proj -> colwise\n1.self_attn.v_proj -> colwise\n"
    "1.self_attn.o_proj -> rowwise\n";

const Planted kErrors[] = {
    {"a norm's gradient is not summed over tp",
     Plant::norm_not_summed,
     {.dp_shard = 1, .tp = 2},
     "gw_verify",
     "the gradient of 2.norm.weight differs",
     kNormOfParts,
     kNormOfPartsSummed},
    {"a gradient is summed twice over cp",
     Plant::doubled_over_cp,
     {.dp_shard = 1, .cp = 2},
     "gw_verify",
     "the gradient of 2.factor differs"},
    {"the divisor is that of a rank, with uneven labels",
     Plant::own_divisor,
     {.dp_shard = 2},
     "gw_verify",
     "the gradient of 4.lm_head.weight differs"},
    {"a parameter is outside of the clip norm",
     Plant::outside_of_clip,
     {.dp_shard = 2},
     "gw_verify",
     ": that of 1.mlp.down_proj.weight counts as 0, and as "},
    {"a partial value goes into a norm",
     Plant::partial_into_norm,
     {.dp_shard = 1, .tp = 2},
     "the plan's types",
     "1.post_attention_layernorm is not linear",
     kPartialAttention,
     kWholeAttention},
    {"positions do not start again at a document",
     Plant::positions_run_on,
     {.dp_shard = 2},
     "gw_verify",
     "the first output that differs, in the order of forward, is that of 2"},
    {"a window is off by one",
     Plant::window_off_by_one,
     {.dp_shard = 1, .cp = 2},
     "gw_verify",
     "the first output that differs, in the order of forward, is that of 3.self_attn"},
    {"tied weights count twice in the clip norm",
     Plant::tied_counted_twice,
     {.pp = 2, .dp_shard = 1},
     "gw_verify",
     "a tied one counts twice: 0.weight"},
    {"the loss is averaged by rank",
     Plant::loss_of_rank,
     {.dp_shard = 2},
     "gw_verify",
     "the first output that differs, in the order of forward, is that of 4"},
    {"a statistic is not synchronised",
     Plant::own_statistic,
     {.dp_shard = 2},
     "gw_verify",
     "the first output that differs, in the order of forward, is that of 2"},
    {"one rank of tp has another gradient of a whole parameter",
     Plant::wrong_replica,
     {.dp_shard = 1, .tp = 2},
     "gw_verify",
     "the gradient of 2.factor differs by 1 of its norm",
     kWholeAttention},
};

// Rows of 8 tokens of two or three documents; one in four labels of the first data rank does not count, and
// three in four of the second.
Batch batch_of(Gangs& gangs) {
  Device& device = gangs.root()->device();
  int index = 0, count = 1;
  gangs.data_shard(&index, &count);
  const Shape shape{4 / count, 8};
  std::vector<int64_t> ids, labels, documents;
  for (int64_t i = 0; i < shape.count(); ++i) {
    ids.push_back((i * 5 + index * 7 + i * i) % 18);
    labels.push_back((i % 4 == 0) == (index == 0) ? kIgnoredLabel : (i * 3 + index) % 18);
    documents.push_back(i % 8 < 3 + index ? 2 : 1);
  }
  const auto tensor = [&](const std::vector<int64_t>& values) {
    const Tensor made = Tensor::allocate(device.allocator(), DType::i64, shape);
    copy_in(made, values);
    return made;
  };
  Batch batch;
  batch.inputs = {tensor(ids)};
  batch.targets = {tensor(labels)};
  batch.documents = tensor(documents);
  return batch;
}

struct Found {
  std::string by, text;
};

Found look_for(const Planted& row, bool with_error) {
  Found found;
  run_ranks(row.ranks(), [&](Gang& root) {
    const GangsPtr gangs = create_gangs(root.shared_from_this(), row.degrees);
    const Batch batch = batch_of(*gangs);
    VerifyOptions options;
    options.microbatches = row.degrees.pp;
    const bool right = !with_error && *row.right_plan != 0;
    options.parallel.tensor.rows = plan_from_text(right ? row.right_plan : row.plan);
    options.parallel.seed = 5;
    int builds = 0;
    Found own;
    try {
      const VerifyResult result = verify(
          gangs,
          [&] {
            const bool on_mesh = builds++ == 0;
            return planted(row.plant, on_mesh ? gangs : nullptr, with_error, batch.documents);
          },
          batch, options);
      own = {result.refusal.empty() ? "" : "gw_verify", result.refusal};
    } catch (const Error& error) {
      own = {"the plan's types", error.message()};
    }
    // A program may ask any rank.
    EXPECT_EQ(own.by, with_error ? row.found_by : "") << row.error << ", rank " << root.rank();
    EXPECT_NE(own.text.find(with_error ? row.names : ""), std::string::npos)
        << "rank " << root.rank() << ": " << own.text;
    if (root.rank() == 0) found = own;
  });
  return found;
}

TEST(PlantedErrors, EachIsFoundAndNamedOnEveryRank) {
  for (const Planted& row : kErrors) {
    const Found found = look_for(row, true);
    std::cout << row.error << " | " << found.by << " | " << found.text << "\n";
    EXPECT_EQ(found.by, row.found_by) << row.error;
    EXPECT_NE(found.text.find(row.names), std::string::npos) << row.error << ": " << found.text;
  }
}

TEST(PlantedErrors, WithoutTheErrorNothingIsFound) {
  for (const Planted& row : kErrors) EXPECT_EQ(look_for(row, false).text, "") << row.error;
}

// --- no false alarm ----------------------------------------------------------------------------------------

struct CleanMesh {
  const char* name;
  MeshOptions degrees;
  bool sequence_parallel = false;
  int ranks() const { return degrees.pp * degrees.dp_shard * degrees.cp * degrees.tp; }
};
const CleanMesh kClean[] = {
    {"tp 2", {.dp_shard = 1, .tp = 2}},
    {"tp 2 with sequences", {.dp_shard = 1, .tp = 2}, true},
    {"cp 2", {.dp_shard = 1, .cp = 2}},
    {"pp 2 x dp_shard 2", {.pp = 2, .dp_shard = 2}},
    {"pp 2 x cp 2 x tp 2 with sequences", {.pp = 2, .dp_shard = 1, .cp = 2, .tp = 2}, true},
};

DecoderOptions small(const Family& family) {
  DecoderOptions o = family.options;
  o.vocab = 18;
  o.dim = 16;
  o.layers = 2;
  o.heads = 4;
  o.kv_heads = o.learned_positions ? 4 : 2;
  o.head_dim = 0;
  o.ffn = 24;
  o.max_positions = 12;
  if (o.window != 0) o.window = 3;
  return o;
}

// B is not zero, so that A has a gradient.
ModulePtr adapted(const DecoderOptions& decoder) {
  const ModulePtr root = make_decoder(decoder);
  LoraOptions options;
  options.rank = 2;
  options.dropout = 0.5;
  apply_lora(root, options);
  for (const NamedParameter& p : named_parameters(*root))
    if (p.parameter->name == "lora_B.weight") p.parameter->init = Init::normal(0.1);
  return root;
}

Batch tokens_of(Gangs& gangs) {
  Batch batch = batch_of(gangs);
  batch.targets.clear();
  return batch;
}

struct CleanModel {
  std::string name;
  std::function<ModulePtr()> make;
};

// The families, and models whose dropouts drop the same numbers on every mesh.
std::vector<CleanModel> clean_models() {
  std::vector<CleanModel> all;
  for (const Family& family : families()) {
    const DecoderOptions decoder = small(family);
    all.push_back({family.name, [decoder] { return make_decoder(decoder); }});
    if (std::string(family.name) == "gpt2") {
      DecoderOptions drops = decoder;
      drops.embedding_dropout = drops.residual_dropout = 0.25;
      all.push_back({"gpt2 with dropouts", [drops] { return make_decoder(drops); }});
    }
    if (std::string(family.name) == "qwen2")
      all.push_back({"adapters with a dropout", [decoder] { return adapted(decoder); }});
  }
  return all;
}

TEST(PlantedErrors, NoFamilyHasOneOnAnyMesh) {
  for (const CleanMesh& mesh : kClean)
    run_ranks(mesh.ranks(), [&](Gang& root) {
      const GangsPtr gangs = create_gangs(root.shared_from_this(), mesh.degrees);
      VerifyOptions options;
      options.microbatches = mesh.degrees.pp;
      options.parallel.tensor.family.sequence_parallel = mesh.sequence_parallel;
      for (const CleanModel& model : clean_models()) {
        const VerifyResult result = verify(gangs, model.make, tokens_of(*gangs), options);
        EXPECT_EQ(result.refusal, "") << model.name << " on " << mesh.name;
        EXPECT_GT(result.grad_norm, 0) << model.name;
      }
    });
}

}  // namespace
}  // namespace gangway::test
