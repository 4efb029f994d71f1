// The bytes that tensor, sequence and loss parallelism move in one microbatch, counted by a recording gang on
// a device without data.
//
// Letters: W ranks, L layers, T tokens, D width, V vocabulary, e bytes per element.
#include <optional>

#include "gang/local/fake.h"
#include "nn/fp8.h"
#include "parallel/parallel_testing.h"

namespace gangway::test {
namespace {

constexpr int64_t kLayers = 3, kWidth = 32, kVocabulary = 40, kRows = 2, kLength = 16;
constexpr uint64_t kTokens = kRows * kLength;

struct Counted {
  uint64_t calls = 0, bytes = 0;
};
using Moved = std::map<CollectiveOp, Counted>;

DecoderOptions config_of() {
  DecoderOptions config;
  config.vocab = kVocabulary;
  config.dim = kWidth;
  config.layers = kLayers;
  config.heads = config.kv_heads = 8;
  config.ffn = 64;
  return config;
}

Moved moved(int ranks, const FamilyPlanOptions& llama, RecomputeKind recompute = RecomputeKind::none,
            std::optional<Fp8Scaling> fp8 = {}) {
  GangOptions meta;
  meta.device = "meta";
  const auto root = Gang::create_fake(ranks / 2, ranks, meta, /*record=*/true, /*refuse_meta=*/false);
  MeshOptions mesh;
  mesh.tp = ranks;
  const ModulePtr decoder = make_decoder(config_of());
  if (fp8) apply_fp8(decoder, {.patterns = {}, .scaling = *fp8});
  Model model(decoder, create_gangs(root, mesh));
  ParallelOptions options;
  options.tensor.family = llama;
  options.recompute.kind = recompute;
  model.build().parallelize(options);
  Context ctx = model.run().context(model.device().stream());
  ctx.fused_loss = true;
  const Shape shape{kRows, kLength};
  const Tensor inputs[] = {Tensor::allocate(model.device().allocator(), DType::i64, shape),
                           Tensor::allocate(model.device().allocator(), DType::i64, shape)};
  Frame& frame = model.frame(0);
  model.run().forward(ctx, inputs, &frame);
  model.run().backward(ctx, {}, frame);
  frame.reset();
  Moved all;
  for (const RecordedCollective& c : recorded(model.gangs().tp()->engine())) {
    if (c.channel != Channel::tp) continue;
    EXPECT_TRUE(c.ordered && c.input_ordered);
    EXPECT_FALSE(c.host_waited);
    ++all[c.op].calls;
    all[c.op].bytes += c.bytes;
  }
  return all;
}

// The bytes that one rank receives of one f32 tensor of all tokens, when it is gathered, or when its sum is
// scattered.
uint64_t activations(uint64_t ranks) { return (ranks - 1) * kTokens / ranks * kWidth * 4; }
// The maximum, the sum and the label's logit of each token, in f64.
uint64_t statistics(uint64_t ranks) { return (ranks - 1) * 3 * kTokens * 8; }
uint64_t logits(uint64_t ranks) { return (ranks - 1) * kTokens * kVocabulary / ranks * 4; }

// There is one all-reduce for the attention and one for the feed-forward of each layer, in forward and in
// backward; one for the embedding; and one for the gradient of the head's input.
TEST(TensorBytes, WithoutSequenceParallelismSumsAreOnAllRanks) {
  for (const int ranks : {2, 4, 8}) {
    const auto w = static_cast<uint64_t>(ranks);
    for (const bool loss : {true, false}) {
      const Moved all = moved(ranks, {.sequence_parallel = false, .loss_parallel = loss});
      EXPECT_EQ(all.at(CollectiveOp::all_reduce).calls, 4 * kLayers + 2u);
      EXPECT_EQ(all.at(CollectiveOp::all_reduce).bytes, (4 * kLayers + 2) * 2 * activations(w));
      EXPECT_EQ(all.at(CollectiveOp::all_gather).bytes, loss ? statistics(w) : logits(w));
      EXPECT_EQ(all.size(), 2u);
    }
  }
}

// Reduce-scatters replace the all-reduces. The bytes that they save are spent on gathers, and backward
// gathers the inputs of a layer again instead of keeping them.
TEST(TensorBytes, WithSequenceParallelismPartsAreGatheredAndSummed) {
  for (const int ranks : {2, 4, 8}) {
    const auto w = static_cast<uint64_t>(ranks);
    const Moved all = moved(ranks, {.sequence_parallel = true, .loss_parallel = true});
    EXPECT_EQ(all.at(CollectiveOp::reduce_scatter).calls, 4 * kLayers + 2u);
    EXPECT_EQ(all.at(CollectiveOp::reduce_scatter).bytes, (4 * kLayers + 2) * activations(w));
    EXPECT_EQ(all.at(CollectiveOp::all_gather).calls, 6 * kLayers + 2 + 1u) << "the last one of statistics";
    EXPECT_EQ(all.at(CollectiveOp::all_gather).bytes, (6 * kLayers + 2) * activations(w) + statistics(w));
    EXPECT_EQ(all.size(), 2u);
  }
}

// Of the six gathers of a layer four are of inputs of layers in FP8, in forward and again in backward: a byte
// for each f32, and in forward the scales of rows. The other two are of gradients.
TEST(TensorBytes, InputsOfLayersInFp8AreGatheredAsCodes) {
  for (const Fp8Scaling scaling : {Fp8Scaling::tensor, Fp8Scaling::delayed, Fp8Scaling::row})
    for (const int ranks : {2, 4}) {
      const auto w = static_cast<uint64_t>(ranks);
      const bool rows = scaling == Fp8Scaling::row;
      const Moved all = moved(ranks, {.sequence_parallel = true}, RecomputeKind::none, scaling);
      const uint64_t scales = rows ? 2 * kLayers * (w - 1) * kTokens / w * 4 : 0;
      EXPECT_EQ(all.at(CollectiveOp::all_gather).bytes,
                (2 * kLayers + 2) * activations(w) + kLayers * activations(w) + scales + statistics(w));
      EXPECT_EQ(all.at(CollectiveOp::all_gather).calls, 6 * kLayers + 3u + (rows ? 2 * kLayers : 0u));
      if (rows) continue;  // whose products agree on other scales, too
      EXPECT_EQ(all.at(CollectiveOp::all_reduce).calls, 2u * kLayers) << "a scale for each gather of forward";
    }
}

// A recomputed block runs its forward again, with all that this moves.
TEST(TensorBytes, RecomputedBlocksMoveTheirForwardTwice) {
  const Moved once = moved(4, {.sequence_parallel = false}), twice = moved(4, {}, RecomputeKind::full);
  EXPECT_EQ(twice.at(CollectiveOp::all_reduce).calls, once.at(CollectiveOp::all_reduce).calls + 2 * kLayers);
}

}  // namespace
}  // namespace gangway::test
