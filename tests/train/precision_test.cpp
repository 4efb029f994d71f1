// Training in bf16 and f16 with f32 masters stays as close to training in f32 as PyTorch's does.
#include "nn/reference_file.h"
#include "nn/small_llama.h"
#include "train/train_testing.h"

namespace gangway {
namespace {

constexpr int64_t kVocab = 64, kRows = 4, kLength = 32;
constexpr int kSteps = 50;

// A Markov chain that follows a fixed rule with probability 3/4 and is random otherwise. The model can learn
// the rule but cannot memorize the data, so the loss stays well above 0. Every step and every rank has a
// chain of its own.
Batch chain_batch(Model& model, int step, int rank) {
  uint64_t state = 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(2 * step + rank + 1);
  const auto next = [&] {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return static_cast<int64_t>(state >> 33);
  };
  std::vector<int64_t> ids;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t s = 0; s < kLength; ++s)
      ids.push_back(s > 0 && next() % 4 != 0 ? (5 * ids.back() + 7) % kVocab : next() % kVocab);
  const Tensor tokens = test::tensor_of(model, DType::i64, Shape{kRows, kLength}, ids.data());
  Batch batch;
  batch.inputs = {tokens};
  batch.targets = {tokens};
  batch.shift_labels = true;
  return batch;
}

std::vector<double> losses(DType compute) {
  DecoderOptions config = test::small_llama();
  config.vocab = kVocab;
  config.dim = 64;
  config.ffn = 160;
  config.max_positions = kLength;
  std::vector<double> out;
  test::run_ranks(2, [&](Gang& root) {
    ParallelOptions options = test::parallel(Strategy::full_shard, DType::f32);
    options.shard.param_dtype = compute;
    const auto model = test::make_model(make_decoder(config), test::make_gangs(root), options);
    EXPECT_EQ(model->inspect().parameters()[0].parameter->shard.dtype(), DType::f32);
    OptimizerOptions adamw;
    adamw.lr = 3e-3;
    const auto optimizer = make_optimizer("adamw", model->inspect().parameters(), adamw, model->ops());
    StepOptions step_options;
    step_options.max_grad_norm = 1;
    for (int step = 0; step < kSteps; ++step) {
      const StepResult result = train_step(*model, optimizer.get(), chain_batch(*model, step, root.rank()),
                                           step_options, model->device().stream());
      EXPECT_EQ(result.skipped, Skip::none);
      EXPECT_EQ(result.loss_scale, compute == DType::f16 ? 65536 : 1);
      if (root.rank() == 0) out.push_back(result.loss);
    }
  });
  return out;
}

// The limit is the largest deviation of PyTorch on the same batches, over several other initial parameters.
void expect_near_f32(DType compute) {
  const std::vector<double> f32 = losses(DType::f32), narrow = losses(compute);
  const double limit = test::kBesidePyTorch * test::half_training_error(compute);
  ASSERT_EQ(f32.size(), static_cast<size_t>(kSteps));
  ASSERT_EQ(narrow.size(), f32.size());
  EXPECT_LT(f32.back(), 0.8 * f32.front()) << "it learns";
  EXPECT_NE(f32, narrow) << "it computes in " << name(compute);
  for (size_t step = 0; step < f32.size(); ++step)
    EXPECT_NEAR(narrow[step] / f32[step], 1, limit) << "step " << step << ", loss " << f32[step];
}

TEST(Precision, FiftyStepsInBf16StayAsNearToF32AsPyTorchs) { expect_near_f32(DType::bf16); }
TEST(Precision, FiftyStepsInF16StayAsNearToF32AsPyTorchs) { expect_near_f32(DType::f16); }

}  // namespace
}  // namespace gangway
