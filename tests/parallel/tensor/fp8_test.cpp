// Layers in FP8 over ranks: whose scales are whole, whose are a rank's own, and recomputation.
#include "nn/fp8.h"
#include "parallel/tensor/styled_trees.h"

namespace gangway::test {
namespace {

template <Fp8Scaling scaling>
ModulePtr in_fp8(ModulePtr tree) {
  Fp8Options options;
  options.scaling = scaling;
  apply_fp8(tree, options);
  return tree;
}

template <Fp8Scaling scaling>
ModulePtr mlp() {
  return in_fp8<scaling>(mlp_between_norms());
}
template <Fp8Scaling scaling>
ModulePtr linears() {
  return in_fp8<scaling>(norms_and_linears());
}
template <Fp8Scaling scaling>
ModulePtr attention() {
  return in_fp8<scaling>(norm_and_attention());
}

const char* const kMlpPlan = "1.gate_proj -> colwise\n1.up_proj -> colwise\n1.down_proj -> rowwise\n";
const char* const kAttentionPlan =
    "1.q_proj -> colwise\n1.k_proj -> colwise\n1.v_proj -> colwise\n1.o_proj -> rowwise\n";

TEST(Fp8OverRanks, ScalesOfRowsGiveTheNumbersOfOneDevice) {
  const std::vector<StyledTree> trees = {
      {"mlp", mlp<Fp8Scaling::row>, kMlpPlan, {2, 16, 8}},
      {"mlp and a sequence", mlp<Fp8Scaling::row>, kMlpSequencePlan, {2, 16, 8}},
      {"linears and a sequence", linears<Fp8Scaling::row>, kLinearSequencePlan, {3, 16, 8}},
      {"attention", attention<Fp8Scaling::row>, kAttentionPlan, {2, 4, 16}}};
  for (const StyledTree& tree : trees) {
    const bool chunks = std::string(tree.name).find("sequence") != std::string::npos;
    for (const int copies : {1, 2}) {
      const Numbers want = on_one_device(tree, copies);
      run_ranks(2 * copies, [&](Gang& root) {
        const auto model = styled_model(root, tree, 2, Strategy::full_shard, chunks ? copies : 1);
        expect_equal(run(*model, tree), want, text(tree.name, " copies ", copies));
      });
    }
  }
}

// FSDP gathers whole weights, and each data rank has the same batch here.
TEST(Fp8OverRanks, ScalesOfATensorThatNothingSplitsGiveTheNumbersOfOneDevice) {
  for (const StyledTree& tree :
       {StyledTree{"mlp", mlp<Fp8Scaling::tensor>, kMlpPlan, {2, 5, 8}},
        StyledTree{"attention", attention<Fp8Scaling::delayed>, kAttentionPlan, {2, 4, 16}}}) {
    const Numbers want = on_one_device(tree, 3);
    run_ranks(3, [&](Gang& root) {
      const auto model = styled_model(root, tree, 1);
      expect_equal(run(*model, tree), want, tree.name);
    });
  }
}

// Codes of e4m3 are within 1/16 of a number, and codes of e5m2 within 1/8. Two operands, each rounded with one
// scale here and another there, differ by 4/16 in y, and by 2 (1/8 + 1/16) in gradients, at most.
TEST(Fp8OverRanks, ScalesOfASplitTensorDifferByRounding) {
  const StyledTree tree = {
      "columns",
      [] { return in_fp8<Fp8Scaling::tensor>(make_sequential({make_linear(32, 48, false, 0.5)})); },
      "0 -> colwise, output Replicate\n",
      {2, 8, 32}};
  const Numbers want = on_one_device(tree);
  run_ranks(4, [&](Gang& root) {
    const auto model = styled_model(root, tree, 4);
    const Numbers got = run(*model, tree);
    EXPECT_LE(normwise(got.y, want.y), 0.25);
    EXPECT_LE(normwise(got.dx, want.dx), 0.375);
    EXPECT_LE(normwise(got.gradients.at("0.weight"), want.gradients.at("0.weight")), 0.375);
    EXPECT_GT(normwise(got.y, want.y), 1e-6);
  });
}

TEST(Fp8OverRanks, ARecomputationHasTheSameCodes) {
  const Reference reference("llama_small");
  for (const Fp8Scaling scaling : {Fp8Scaling::tensor, Fp8Scaling::delayed, Fp8Scaling::row})
    run_ranks(2, [&](Gang& root) {
      const auto step = [&](RecomputeKind kind) {
        const ModulePtr decoder = make_decoder(reference.config);
        Fp8Options fp8;
        fp8.patterns = {"model.layers.*.mlp.*", "**.o_proj"};
        fp8.scaling = scaling;
        apply_fp8(decoder, fp8);
        ParallelOptions options;
        options.recompute.kind = kind;
        options.master_dtype = DType::f64;
        Model model(decoder, mesh_of(root));
        model.build().parallelize(options);
        set_initial(model, reference);
        return run_step(model, reference, 2);
      };
      const StepValues kept = step(RecomputeKind::none);
      EXPECT_NEAR(kept.loss / reference.at("loss").values[0], 1, 0.05);
      EXPECT_NE(kept.loss, reference.at("loss").values[0]);
      for (const RecomputeKind kind : {RecomputeKind::full, RecomputeKind::selective}) {
        const StepValues again = step(kind);
        EXPECT_EQ(again.loss, kept.loss);
        for (const auto& [name, gradient] : kept.gradients)
          EXPECT_LE(normwise(again.gradients.at(name), gradient), 1e-13) << name;
      }
    });
}

TEST(Fp8OverRanks, RanksWithOtherOptionsAreToldSo) {
  run_ranks(2, [&](Gang& root) {
    const ModulePtr tree = root.rank() == 0 ? mlp<Fp8Scaling::row>() : mlp<Fp8Scaling::tensor>();
    Model model(tree, mesh_of(root));
    expect_refusal(Code::mismatch, [&] { model.build().parallelize({}); }, {"fp8 scaling"});
  });
}

}  // namespace
}  // namespace gangway::test
