// Small trees of modules with a plan each, and their results on one device and over ranks.
#pragma once

#include "parallel/parallel_testing.h"

namespace gangway::test {

struct StyledTree {
  const char* name;
  ModulePtr (*make)();
  const char* plan;
  Shape input;
};

// Plans for mlp_between_norms() and norms_and_linears() whose sequence is split between the layers.
inline constexpr const char* kMlpSequencePlan =
    "0 -> sequence_parallel, input Replicate\n1 -> prepare_input(Shard(1), Varying)\n"
    "1.gate_proj -> colwise, input Varying\n1.up_proj -> colwise, input Varying\n"
    "1.down_proj -> rowwise, output Shard(1)\n2 -> sequence_parallel, output Replicate\n";
inline constexpr const char* kLinearSequencePlan =
    "0 -> sequence_parallel, input Replicate\n1 -> colwise, input Shard(1)\n"
    "2 -> rowwise, output Shard(1)\n3 -> sequence_parallel, output Replicate\n";

// Biases start from random values: biases of zero would hide that a bias is added several times.
inline ModulePtr tree_of(const StyledTree& tree) {
  ModulePtr root = tree.make();
  for (const NamedParameter& p : named_parameters(*root))
    if (p.parameter->name == "bias") p.parameter->init = Init::normal(0.5);
  return root;
}

inline ModulePtr two_linears() {
  return make_sequential({make_linear(6, 8, true, 0.5), make_linear(8, 6, true, 0.5)});
}
inline ModulePtr norms_and_linears() {
  return make_sequential({make_rmsnorm(8, 1e-5), make_linear(8, 12, true, 0.5), make_linear(12, 8, true, 0.5),
                          make_rmsnorm(8, 1e-5)});
}
inline ModulePtr mlp_between_norms() {
  return make_sequential({make_rmsnorm(8, 1e-5), make_mlp(8, 12, true, 0.5), make_rmsnorm(8, 1e-5)});
}
inline ModulePtr norm_and_mlp() {
  return make_sequential({make_rmsnorm(8, 1e-5), make_mlp(8, 12, true, 0.5), make_linear(8, 3, true, 0.5)});
}
inline ModulePtr norm_and_plain_mlp() {
  return make_sequential({make_rmsnorm(8, 1e-5), make_mlp(8, 12, false, 0.5), make_linear(8, 3, true, 0.5)});
}
inline ModulePtr norm_and_attention() {
  AttentionOptions options;
  options.dim = 16;
  options.heads = 8;
  options.kv_heads = 4;
  options.qkv_bias = options.out_bias = true;
  options.deviation = 0.5;
  return make_sequential({make_rmsnorm(16, 1e-5), make_attention(options)});
}

inline ModulePtr attention_with_norms() {
  AttentionOptions options;
  options.dim = 16;
  options.heads = 8;
  options.kv_heads = 4;
  options.head_dim = 6;
  options.qk_norm = QkNorm::head;
  options.eps = 1e-2;
  options.deviation = 0.5;
  return make_sequential({make_attention(options)});
}

inline std::vector<StyledTree> styled_trees() {
  return {
      {"columns then rows", two_linears, "0 -> colwise\n1 -> rowwise\n", {2, 4, 6}},
      {"columns, gathered", two_linears, "0 -> colwise, output whole\n", {2, 4, 6}},
      {"rows of a whole input", two_linears, "1 -> rowwise, input Replicate\n", {2, 4, 6}},
      {"rows of a part of the sequence",
       norms_and_linears,
       "0 -> sequence_parallel, input Replicate\n1 -> sequence_parallel\n"
       "2 -> rowwise, input Shard(1), output Shard(1)\n3 -> sequence_parallel, output Replicate\n",
       {2, 4, 8}},
      {"a sequence between products",
       norms_and_linears,
       "0 -> sequence_parallel, input Replicate\n1 -> colwise, input Shard(1)\n2 -> rowwise, output "
       "Shard(1)\n"
       "3 -> sequence_parallel, output Replicate\n",
       {2, 4, 8}},
      {"one boundary for two columns",
       norm_and_mlp,
       "1 -> prepare_input(Replicate, Varying)\n1.gate_proj -> colwise, input Varying\n"
       "1.up_proj -> colwise, input Varying\n1.down_proj -> rowwise\n",
       {3, 4, 8}},
      {"a boundary for each column",
       norm_and_mlp,
       "1.gate_proj -> colwise\n1.up_proj -> colwise\n1.down_proj -> rowwise\n",
       {3, 4, 8}},
      {"an output that is prepared",
       norm_and_plain_mlp,
       "1 -> prepare_output(Partial, Replicate)\n1.gate_proj -> colwise\n1.up_proj -> colwise\n"
       "1.down_proj -> rowwise, output local\n2 -> replicate\n",
       {3, 4, 8}},
      {"heads",
       norm_and_attention,
       "1.q_proj -> colwise\n1.k_proj -> colwise\n1.v_proj -> colwise\n1.o_proj -> rowwise\n",
       {2, 4, 16}},
      {"norms of heads",
       attention_with_norms,
       "0.q_proj -> colwise\n0.k_proj -> colwise\n0.v_proj -> colwise\n0.o_proj -> rowwise\n"
       "0.q_norm -> headwise\n0.k_norm -> headwise\n",
       {2, 4, 16}},
      {"heads and a sequence",
       norm_and_attention,
       "0 -> sequence_parallel, input Replicate\n1 -> prepare_input(Shard(1), Varying)\n"
       "1.q_proj -> colwise, input Varying\n1.k_proj -> colwise, input Varying\n"
       "1.v_proj -> colwise, input Varying\n1.o_proj -> rowwise\n",
       {2, 4, 16}},
  };
}

struct Numbers {
  Vector y, dx;
  std::map<std::string, Vector> gradients;
};

inline Vector input_of(const StyledTree& tree) {
  return random_vector(static_cast<size_t>(tree.input.count()), 7);
}
inline Vector gradient_of(const Tensor& y) { return random_vector(static_cast<size_t>(y.count()), 8); }

// The results on one device. `copies` ranks run the same batch each.
inline Numbers on_one_device(const StyledTree& tree, int copies = 1) {
  const auto device = make_device(test_device());
  const auto ops = make_ops(device);
  const ModulePtr root = tree_of(tree);
  for (const NamedParameter& p : named_parameters(*root)) p.parameter->dtype = DType::f64;
  materialize(*root, *ops, 5);
  Stack temporaries(device->allocator());
  Frame frame(device->allocator());
  Context ctx{.ops = *ops, .stream = device->stream(), .temporaries = temporaries, .training = true};
  const Tensor x = make(*device, DType::f64, tree.input, input_of(tree));
  const Tensor y = root->forward_one(ctx, x, &frame);
  Numbers numbers{get(y), {}, {}};
  const Tensor dy = frame.allocate_gradient(DType::f64, y.shape());
  put(dy, gradient_of(y));
  numbers.dx = get(root->backward_one(ctx, dy, frame));
  frame.run_weight_gradients(ctx);
  for (const NamedParameter& p : named_parameters(*root)) {
    Vector& sum = numbers.gradients[p.name] = get(p.parameter->grad->tensor);
    for (double& g : sum) g *= copies;
  }
  return numbers;
}

// The ranks that tp leaves are those of dp_shard.
inline std::unique_ptr<Model> styled_model(Gang& root, const StyledTree& tree, int tp,
                                           Strategy strategy = Strategy::full_shard, int chunks = 1) {
  MeshOptions mesh;
  mesh.tp = tp;
  ParallelOptions options;
  options.tensor.rows = plan_from_text(tree.plan);
  options.tensor.overlap_chunks = chunks;
  options.shard.strategy = strategy;
  options.master_dtype = DType::f64;
  options.seed = 5;
  auto model = std::make_unique<Model>(tree_of(tree), create_gangs(root.shared_from_this(), mesh));
  model->build().parallelize(options);
  return model;
}

inline Numbers run(Model& model, const StyledTree& tree, bool defers = false) {
  Stream& stream = model.device().stream();
  Context ctx = model.run().context(stream);
  ctx.defer_weight = defers;
  Frame& frame = model.frame(0);
  const Tensor x = make(model.device(), DType::f64, tree.input, input_of(tree));
  const Spec spec = spec_of(x);
  const Specs checked = model.run().check_forward(ctx, {&spec, 1}, &frame);
  const Tensor y = model.run().forward(ctx, {&x, 1}, &frame)[0];
  EXPECT_EQ(checked.at(0).shape, y.shape());
  Numbers numbers{get(y), {}, {}};
  const Tensor dy = frame.allocate_gradient(DType::f64, y.shape());
  put(dy, gradient_of(y));
  numbers.dx = get(model.run().backward(ctx, {&dy, 1}, frame).at(0));
  frame.run_weight_gradients(ctx);
  frame.reset();
  model.run().finish_gradients(stream);
  for (const NamedParameter& p : model.inspect().parameters())
    if (p.parameter->trainable)
      numbers.gradients[p.name] = get(model.inspect().gather_gradient(*p.parameter, stream));
  return numbers;
}

inline void expect_equal(const Numbers& got, const Numbers& want, const std::string& what) {
  EXPECT_LE(normwise(got.y, want.y), 1e-13) << what;
  EXPECT_LE(normwise(got.dx, want.dx), 1e-13) << what;
  ASSERT_EQ(got.gradients.size(), want.gradients.size()) << what;
  for (const auto& [name, gradient] : want.gradients)
    EXPECT_LE(normwise(got.gradients.at(name), gradient), 1e-13) << what << " " << name;
}

}  // namespace gangway::test
