// Steps that are computed twice, and the gradient norm of each parameter.
#include <cmath>

#include "train/rig.h"

namespace gangway {
namespace {

using test::error_of;
using test::Rig;
using test::SquareLoss;

TEST(Replay, AStepThatIsComputedTwiceHasTheBitsOfAPlainOne) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard})
    test::run_ranks(2, [&](Gang& root) {
      std::vector<double> wanted;
      for (const bool replay : {false, true}) {
        const Rig rig = test::llama_rig(root, strategy, DType::f32);
        StepOptions options;
        options.microbatches = 2;
        options.max_grad_norm = 0.5;
        options.replay = replay;
        for (int step = 0; step < 2; ++step)
          rig.step(test::pattern_batch(*rig.model, 4, 9, step + root.rank()), options);
        if (!replay) wanted = rig.parameters();
        EXPECT_EQ(rig.parameters(), wanted);
      }
    });
}

// The loss keeps a count of its calls, as broken hardware would give another gradient.
TEST(Replay, OtherBitsOfOneRankAreToldToAllAndNothingChanges) {
  test::run_ranks(3, [](Gang& root) {
    const auto loss = std::make_shared<SquareLoss>();
    const Rig rig = test::square_rig(root, loss);
    const std::vector<double> before = rig.parameters();
    StepOptions options;
    options.replay = true;
    loss->drifts = root.rank() == 1;
    const Error error = error_of([&] { rig.step(loss->batch(*rig.model, root.rank(), 0), options); });
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    EXPECT_NE(error.message().find("computed the step twice, and the gradient of weight has other bits"),
              std::string::npos)
        << error.message();
    EXPECT_EQ(rig.parameters(), before);
    loss->drifts = false;
    EXPECT_EQ(rig.step(loss->batch(*rig.model, root.rank(), 0), options).step, 1);
  });
}

TEST(GradientNorms, TheirSquaresSumUpToTheNormOfTheStep) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard})
    for (const int ranks : {1, 3})
      test::run_ranks(ranks, [&](Gang& root) {
        const Rig rig = test::llama_rig(root, strategy);
        EXPECT_EQ(error_of([&] { rig.model->inspect().gradient_norms(); }).code(), Code::invalid_state);
        StepOptions options;
        options.max_grad_norm = 1e9;
        options.gradient_norms = true;
        const StepResult result = rig.step(test::pattern_batch(*rig.model, 2, 9, root.rank()), options);
        double squares = 0;
        for (const double norm : rig.model->inspect().gradient_norms()) squares += norm * norm;
        EXPECT_NEAR(std::sqrt(squares), result.grad_norm, 1e-12 * result.grad_norm);
        EXPECT_EQ(rig.model->inspect().gradient_norms().size(), rig.model->inspect().parameters().size());
      });
}

TEST(GradientNorms, AreOnEveryMeshThoseOfOneRank) {
  DecoderOptions decoder = test::small_llama(true);
  decoder.vocab = 18;
  const std::pair<int, MeshOptions> meshes[] = {
      {1, {}},        {2, {.dp_replicate = 2}}, {2, {.dp_shard = 2}},   {2, {.tp = 2}},
      {2, {.cp = 2}}, {2, {.pp = 2}},           {4, {.pp = 2, .tp = 2}}};
  std::vector<double> alone;
  for (const auto& [ranks, degrees] : meshes)
    test::run_ranks(ranks, [&, ranks = ranks, degrees = degrees](Gang& root) {
      const auto model =
          test::make_model(make_decoder(decoder), create_gangs(root.shared_from_this(), degrees),
                           test::parallel(Strategy::full_shard));
      const auto optimizer = make_optimizer("sgd", model->inspect().parameters(), {}, model->ops());
      int index = 0, count = 1;
      model->gangs().data_shard(&index, &count);
      StepOptions options;
      options.gradient_norms = true;
      train_step(*model, optimizer.get(), test::pattern_batch(*model, 4 / count, 8, 3 * index * 4 / count),
                 options, model->device().stream());
      const std::vector<double>& norms = model->inspect().gradient_norms();
      if (ranks == 1) alone = norms;
      ASSERT_EQ(norms.size(), alone.size());
      for (size_t i = 0; i < norms.size(); ++i)
        EXPECT_NEAR(norms[i] / alone[i], 1, 1e-10)
            << model->inspect().parameters()[i].name << ", " << root.size() << " ranks";
    });
}

}  // namespace
}  // namespace gangway
