// Parameters that tensor parallelism and fully_shard both split, on any dim, compared with whole tensors.
#include "parallel/split_module.h"

namespace gangway::test {
namespace {

struct Kind {
  Strategy strategy;
  DType param;  // none: f64 throughout
};
constexpr Kind kKinds[] = {{Strategy::full_shard, DType{}},
                           {Strategy::full_shard, DType::bf16},
                           {Strategy::shard_grad_op, DType{}},
                           {Strategy::no_shard, DType{}},
                           {Strategy::no_shard, DType::bf16}};

ParallelOptions options_of(const Kind& kind) {
  ParallelOptions options;
  options.seed = 11;
  options.shard.strategy = kind.strategy;
  options.shard.param_dtype = options.shard.reduce_dtype = kind.param;
  options.master_dtype = kind.param == DType{} ? DType::f64 : DType::f32;
  options.shard.bucket_cap_mb = 0.001;
  return options;
}

// Runs body(model, mesh, n, kind) on every rank of every mesh and for every size. The kinds take turns.
template <typename Body>
void on_meshes(const Body& body, std::initializer_list<int64_t> sizes = {0, 1, 5, 64}) {
  size_t turn = 0;
  for (const SplitMesh& mesh : split_meshes())
    for (const int64_t n : sizes) {
      const Kind& kind = kKinds[turn++ % std::size(kKinds)];
      SCOPED_TRACE(testing::Message()
                   << mesh.ranks << " ranks, tp " << mesh.tp << ", replicas " << mesh.replicas << ", n " << n
                   << ", strategy " << static_cast<int>(kind.strategy) << ", param " << name(kind.param));
      run_ranks(mesh.ranks, [&](Gang& root) {
        const auto model = make_split_model(root, mesh, {n, n}, options_of(kind));
        body(*model, mesh, n, kind);
      });
    }
}

SplitModule& split_module(Model& model, size_t i) {
  return dynamic_cast<SplitModule&>(unwrapped(unwrapped(model.root()).child(i)));
}

// This rank's part of a whole tensor: the piece of its tp rank, and of that piece ceil(n / W) rows.
Vector own_part(Model& model, const NamedParameter& p, const Vector& whole, bool sharded) {
  const Vector piece = split_module(model, p.name[0] == '0' ? 0 : 1).piece(*p.parameter, whole);
  Shape shape = p.parameter->shape;
  const Placement& tp = p.parameter->layout.at(0);
  const auto r = static_cast<size_t>(model.gangs().coordinate(Axis::tp));
  if (tp.kind == Placement::Kind::shard) shape[tp.dim] = tp.bounds[r + 1] - tp.bounds[r];
  if (!sharded) return piece;
  const int64_t W = model.gangs().fsdp_gang()->size(), w = model.gangs().fsdp_gang()->rank();
  const int64_t rows = (shape[0] + W - 1) / W;
  return rows_of(piece, shape, 0, std::min(shape[0], w * rows), std::min(shape[0], (w + 1) * rows));
}

void step(Model& model, int microbatches) {
  for (int m = 0; m < microbatches; ++m) {
    Context ctx = model.run().context(model.device().stream());
    const Tensor x = make(model.device(), DType::f64, Shape{1}, {1});
    model.run().set_is_last_backward(m + 1 == microbatches);
    const Values y = model.run().forward(ctx, {&x, 1}, &model.frame(0));
    model.run().backward(ctx, y, model.frame(0));
    model.frame(0).reset();
  }
}

// The sum over all data-parallel ranks, and over tp if each tp rank has an addend.
Vector whole_gradient(const Parameter& p, const SplitMesh& mesh, int microbatches) {
  Vector sum(static_cast<size_t>(p.shape.count()));
  const bool partial = !p.grad_partial_axes.empty();
  for (size_t i = 0; i < sum.size(); ++i)
    for (int d = 0; d < mesh.data(); ++d)
      for (int t = 0; t < (partial ? mesh.tp : 1); ++t)
        sum[i] += microbatches * SplitModule::gradient(static_cast<int64_t>(i), d, t, partial);
  return sum;
}

TEST(SplitParameters, FirstValuesAreThoseOfOneDeviceOnEveryMesh) {
  on_meshes([](Model& model, const SplitMesh&, int64_t n, const Kind& kind) {
    const auto whole = split_values(n, 11, options_of(kind).master_dtype);
    for (const NamedParameter& p : model.inspect().parameters()) {
      const Vector own = own_part(model, p, whole.at(p.name), kind.strategy != Strategy::no_shard);
      EXPECT_EQ(get(p.parameter->shard), own) << p.name;
      EXPECT_EQ(p.parameter->local_shape().count(), static_cast<int64_t>(own.size())) << p.name;
      EXPECT_EQ(get(model.inspect().gather(*p.parameter, model.device().stream())), whole.at(p.name))
          << p.name;
    }
  });
}

TEST(SplitParameters, ComputeSeesTheTpPieceAndAssignWritesTheOwnPart) {
  on_meshes([](Model& model, const SplitMesh&, int64_t, const Kind&) {
    std::map<std::string, Vector> whole;
    for (const NamedParameter& p : model.inspect().parameters()) {
      Vector& values = whole[p.name];
      for (int64_t i = 0; i < p.parameter->shape.count(); ++i)
        values.push_back(static_cast<double>((i * 7) % 127));
      model.inspect().assign(*p.parameter, make(model.device(), DType::f64, p.parameter->shape, values),
                             model.device().stream());
      EXPECT_EQ(get(model.inspect().gather(*p.parameter, model.device().stream())), values) << p.name;
    }
    step(model, 1);
    for (size_t i = 0; i < 2; ++i)
      for (const ParameterPtr& p : split_module(model, i).parameters())
        EXPECT_EQ(split_module(model, i).seen.at(p->name),
                  split_module(model, i).piece(*p, whole.at(p->full_name)))
            << p->full_name;
  });
}

TEST(SplitParameters, GradientsAreSumsOverDataAndThePartialAxes) {
  on_meshes([](Model& model, const SplitMesh& mesh, int64_t, const Kind&) {
    for (int round = 1; round <= 2; ++round) {  // the second round adds to the first
      step(model, 2);
      for (const NamedParameter& p : model.inspect().parameters())
        EXPECT_EQ(get(model.inspect().gather_gradient(*p.parameter, model.device().stream())),
                  whole_gradient(*p.parameter, mesh, 2 * round))
            << p.name << " round " << round;
    }
  });
}

TEST(SplitParameters, TheNormCountsEveryElementOnce) {
  on_meshes([](Model& model, const SplitMesh& mesh, int64_t, const Kind&) {
    step(model, 1);
    double squares = 0, greatest = 0;
    for (const NamedParameter& p : model.inspect().parameters())
      for (const double g : whole_gradient(*p.parameter, mesh, 1)) {
        squares += g * g;
        greatest = std::max(greatest, g);
      }
    Stream& stream = model.device().stream();
    EXPECT_NEAR(model.run().gradient_norm(2, stream), std::sqrt(squares), 1e-12 * std::sqrt(squares));
    EXPECT_EQ(model.run().gradient_norm(INFINITY, stream), greatest);
    model.run().clip_gradients(0.5, 2, stream);
    EXPECT_NEAR(model.run().gradient_norm(2, stream), squares == 0 ? 0 : 0.5, 1e-6);
  });
}

TEST(SplitParameters, AnUpdateOfOwnPartsIsSeenWhole) {
  on_meshes(
      [](Model& model, const SplitMesh& mesh, int64_t n, const Kind& kind) {
        const auto whole = split_values(n, 11, options_of(kind).master_dtype);
        Stream& stream = model.device().stream();
        step(model, 1);
        model.run().begin_update(stream);
        for (const NamedParameter& p : model.inspect().parameters())
          if (p.parameter->shard.count() != 0)
            model.ops().add(p.parameter->shard_grad->tensor, -0.25, p.parameter->shard, stream);
        model.run().end_update(stream);
        for (const NamedParameter& p : model.inspect().parameters()) {
          Vector want = whole.at(p.name);
          const Vector gradient = whole_gradient(*p.parameter, mesh, 1);
          for (size_t i = 0; i < want.size(); ++i) want[i] -= 0.25 * gradient[i];
          EXPECT_LE(normwise(get(model.inspect().gather(*p.parameter, stream)), want),
                    kind.param == DType{} ? 1e-15 : 1e-6)
              << p.name;
        }
      },
      {0, 1, 7, 129});
}

void expect_zero_padding(Model& model) {
  model.run().finish_gradients(model.device().stream());
  for (const auto& group : model.fsdp().groups())
    for (const PackedParameter& p : group->packing().parameters)
      for (const Tensor& own : {p.parameter->shard, p.parameter->shard_grad->tensor}) {
        const Vector piece = get(own_piece(own.buffer(), own.byte_offset(), own.dtype(), p));
        for (size_t i = static_cast<size_t>(own.count()); i < piece.size(); ++i)
          EXPECT_EQ(piece[i], 0) << p.name;
      }
}

TEST(SplitParameters, PaddingOfValuesAndGradientsIsZero) {
  on_meshes(
      [](Model& model, const SplitMesh&, int64_t, const Kind& kind) {
        if (kind.strategy == Strategy::no_shard) return;
        step(model, 2);
        expect_zero_padding(model);
      },
      {1, 5});
}

// Parameter groups use the buffers of full gradients in turn: the padding of one has held gradients of
// another.
TEST(SplitParameters, PaddingStaysZeroWhereGroupsOfOtherSizesUsedTheBuffer) {
  for (const SplitMesh& mesh : split_meshes())
    for (const Kind& kind : kKinds) {
      if (kind.strategy == Strategy::no_shard) continue;
      run_ranks(mesh.ranks, [&](Gang& root) {
        const auto model = make_split_model(root, mesh, {7, 5, 1, 9, 3}, options_of(kind));
        step(*model, 3);
        expect_zero_padding(*model);
      });
    }
}

TEST(SplitParameters, LayoutsThatDoNotFitAreRefused) {
  run_ranks(2, [](Gang& root) {
    MeshOptions degrees;
    degrees.tp = 2;
    const auto gangs = create_gangs(root.shared_from_this(), degrees);
    const auto refused = [&](Code code, const Layout& layout, std::initializer_list<const char*> parts,
                             const char* partial = "") {
      const auto module = std::make_shared<SplitModule>(6, 2, gangs->coordinate(Axis::tp));
      module->parameters()[0]->layout = layout;
      module->parameters()[0]->grad_partial_axes = partial;
      Model model(module, gangs);
      expect_refusal(
          code, [&] { model.build().parallelize({}); }, parts);
    };
    refused(Code::invalid_state, {}, {"tp is 2", "tensor_parallel comes first"});
    refused(Code::invalid_argument, {Placement::shard("tp", 0, {0, 2, 4, 6})},
            {"rows", "3 pieces", "2 ranks"});
    refused(Code::invalid_argument, {Placement::shard("tp", 2, {0, 2, 6})}, {"rows", "dim 2"});
    refused(Code::invalid_argument, {Placement::shard("tp", 0, {0, 2, 5})}, {"rows", "from 0 to 6"});
    refused(Code::invalid_argument, {Placement::replicate("tp"), Placement::shard("tp", 0, {0, 2, 6})},
            {"rows", "two placements"});
    refused(Code::invalid_argument, {Placement::replicate("tp"), Placement::shard("dp_shard", 0, {0, 6})},
            {"rows", "data axis"});
    refused(Code::invalid_argument, {Placement::shard("tp", 0, {0, 2, 6})},
            {"rows", "split over tp", "partial over tp"}, "tp");
    refused(Code::invalid_argument, {Placement::replicate("tp")}, {"rows", "dp_shard+tp", "data axis"},
            "dp_shard+tp");
  });
}

}  // namespace
}  // namespace gangway::test
