// A module whose parameters are split over "tp" by their layouts alone: on dim 0, on dim 1, on the middle one
// of three dims, and not at all. Its backward adds gradients that a test can compute for each element.
// Whatever concerns whole tensors is written as plain loops.
#pragma once

#include "parallel/parallel_testing.h"

namespace gangway::test {

// Rows [first, last) along dim `dim` of a row-major tensor.
inline Vector rows_of(const Vector& whole, const Shape& shape, int dim, int64_t first, int64_t last) {
  Vector part;
  const int64_t inner = shape.count_from(dim + 1);
  for (int64_t i = 0; i < static_cast<int64_t>(whole.size()); ++i) {
    const int64_t row = i / inner % shape[dim];
    if (row >= first && row < last) part.push_back(whole[static_cast<size_t>(i)]);
  }
  return part;
}

class SplitModule final : public Module {
 public:
  SplitModule(int64_t n, int tp, int tp_rank) : tp_rank_(tp_rank) {
    split("rows", {n, 3}, 0, tp, Init::normal(0.5));
    split("columns", {n, 5}, 1, tp, {Init::Kind::fill, 0, std::make_shared<Counting>(Counting(5))});
    split("both", {n + 2, n}, 1, tp, Init::normal(0.5));
    split("middle", {3, n, 2}, 1, tp, Init::normal(0.5));
    replicate("equal", {n, 2});
    replicate("partial", {n})->grad_partial_axes = "tp";
  }

  // The gradient that one rank adds to element i in one microbatch: a small integer, which is exact in bf16.
  static double gradient(int64_t i, int data_index, int tp_rank, bool partial) {
    return static_cast<double>((i + 2 * data_index + (partial ? tp_rank : 0)) % 5);
  }

  // The piece of a whole tensor that this tp rank computes with.
  Vector piece(const Parameter& p, const Vector& whole) const {
    const Placement& tp = p.layout.at(0);
    if (tp.kind != Placement::Kind::shard) return whole;
    const auto r = static_cast<size_t>(tp_rank_);
    return rows_of(whole, p.shape, tp.dim, tp.bounds[r], tp.bounds[r + 1]);
  }

  const char* kind() const override { return "SplitModule"; }
  Values forward(Context&, std::span<const Tensor> inputs, Frame*) override {
    seen.clear();
    for (const ParameterPtr& p : parameters()) seen[p->name] = get(p->value);
    return {inputs.begin(), inputs.end()};
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame&) override {
    for (const ParameterPtr& p : parameters()) {
      Vector whole(static_cast<size_t>(p->shape.count()));
      for (size_t i = 0; i < whole.size(); ++i)
        whole[i] = gradient(static_cast<int64_t>(i), static_cast<int>(ctx.data_index), tp_rank_,
                            !p->grad_partial_axes.empty());
      const Tensor& sum = p->grad->zero_if_unwritten(ctx.ops, ctx.stream);
      Vector now = get(sum);
      const Vector added = piece(*p, whole);
      check_sizes(now, added);
      for (size_t i = 0; i < now.size(); ++i) now[i] += added[i];
      put(sum, now);
    }
    return {dy.begin(), dy.end()};
  }

  std::map<std::string, Vector> seen;  // the values that the last forward saw

 private:
  struct Counting final : Init::Initializer {
    explicit Counting(int64_t columns) : columns(columns) {}
    void fill(int64_t first, int64_t last, void* out, size_t count, DType dtype) override {
      EXPECT_EQ(static_cast<int64_t>(count), (last - first) * columns);
      for (int64_t i = 0; i < (last - first) * columns; ++i) {
        const auto value = static_cast<double>((first * columns + i) % 251);
        if (dtype == DType::f64) static_cast<double*>(out)[i] = value;
        if (dtype == DType::f32) static_cast<float*>(out)[i] = static_cast<float>(value);
      }
    }
    int64_t columns;
  };

  static void check_sizes(const Vector& a, const Vector& b) {
    if (a.size() != b.size()) fail(Code::internal, "a gradient has ", a.size(), " elements, not ", b.size());
  }
  void split(const char* name, const Shape& shape, int dim, int tp, const Init& init) {
    add_parameter(name, shape, init)->layout = {Placement::shard("tp", dim, balanced_bounds(shape[dim], tp))};
  }
  ParameterPtr replicate(const char* name, const Shape& shape) {
    ParameterPtr p = add_parameter(name, shape, Init::normal(0.5));
    p->layout = {Placement::replicate("tp")};
    return p;
  }

  int tp_rank_;
};

struct SplitMesh {
  int ranks, tp, replicas;
  int data() const { return ranks / tp; }
};
inline const std::vector<SplitMesh>& split_meshes() {
  static const std::vector<SplitMesh> meshes = {{1, 1, 1}, {2, 2, 1}, {2, 1, 1}, {3, 1, 1},
                                                {4, 2, 1}, {5, 1, 1}, {6, 2, 1}, {6, 3, 1},
                                                {7, 7, 1}, {8, 2, 2}, {8, 4, 1}};
  return meshes;
}

// Makes a model with one module for each of `sizes`. Each module is a parameter group.
inline std::unique_ptr<Model> make_split_model(Gang& root, const SplitMesh& mesh,
                                               const std::vector<int64_t>& sizes,
                                               const ParallelOptions& options) {
  MeshOptions degrees;
  degrees.tp = mesh.tp;
  degrees.dp_replicate = mesh.replicas;
  const auto gangs = create_gangs(root.shared_from_this(), degrees);
  std::vector<ModulePtr> modules;
  for (const int64_t n : sizes)
    modules.push_back(std::make_shared<SplitModule>(n, mesh.tp, gangs->coordinate(Axis::tp)));
  auto model = std::make_unique<Model>(make_sequential(modules), gangs);
  model->build().parallelize(options);
  return model;
}

// The initial values of a model on one device, made by nn alone.
inline std::map<std::string, Vector> split_values(int64_t n, uint64_t seed, DType dtype) {
  const auto device = make_device("cpu");
  const auto ops = make_ops(device);
  const ModulePtr whole =
      make_sequential({std::make_shared<SplitModule>(n, 1, 0), std::make_shared<SplitModule>(n, 1, 0)});
  std::map<std::string, Vector> values;
  for (const NamedParameter& p : named_parameters(*whole)) {
    p.parameter->dtype = dtype;
    p.parameter->layout.clear();
  }
  materialize(*whole, *ops, seed);
  for (const NamedParameter& p : named_parameters(*whole)) values[p.name] = get(p.parameter->value);
  return values;
}

}  // namespace gangway::test
