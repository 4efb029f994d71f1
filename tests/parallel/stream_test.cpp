// Parameter groups order streams after collectives and never make the host wait: a host that waited could not
// launch work ahead on a device with asynchronous streams. The recording fake engine notes what its callers
// did.
#include <map>

#include "gang/local/fake.h"
#include "nn/small_llama.h"
#include "parallel/parallel_testing.h"

namespace gangway::test {
namespace {

struct Case {
  Strategy strategy;
  int replicas;
  DType param;
};

GangPtr recording_gang(int ranks) {
  GangOptions meta;  // a device without data; only the ordering is tested
  meta.device = "meta";
  return Gang::create_fake(0, ranks, meta, /*record=*/true, /*refuse_meta=*/false);
}

std::unique_ptr<Model> step_once(Gang& root, const Case& c) {
  auto model = std::make_unique<Model>(make_decoder(small_llama()), mesh_of(root, c.replicas));
  model->fsdp().use_regions(false);
  ParallelOptions options;
  options.shard.strategy = c.strategy;
  options.shard.param_dtype = c.param;
  model->build().parallelize(options);
  Stream& stream = model->device().stream();
  Context ctx = model->run().context(stream);
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    model->run().set_is_last_backward(microbatch == 1);
    const Tensor ids = Tensor::allocate(model->device().allocator(), DType::i64, Shape{2, 8});
    const Tensor inputs[] = {ids, ids};
    model->run().forward(ctx, inputs, &model->frame(0));
    model->run().backward(ctx, {}, model->frame(0));
    model->frame(0).reset();
  }
  model->run().begin_update(stream);
  model->run().end_update(stream);
  return model;
}

TEST(Streams, AStepOrdersThemAfterItsCollectivesAndNeverBlocksTheHost) {
  for (const Case& c : {Case{Strategy::full_shard, 1, DType{}}, Case{Strategy::full_shard, 2, DType::bf16},
                        Case{Strategy::shard_grad_op, 1, DType::bf16},
                        Case{Strategy::shard_grad_op, 2, DType{}}, Case{Strategy::no_shard, 2, DType{}}}) {
    const auto root = recording_gang(4);
    const auto model = step_once(*root, c);
    const GroupContext& place = model->fsdp().groups().front()->place();
    size_t gathers = 0, reductions = 0;
    for (const Gang* gang : {place.shards.get(), place.replicas.get()}) {
      if (gang == nullptr) continue;
      for (const RecordedCollective& r : recorded(gang->engine())) {
        const bool gather = r.channel == Channel::fsdp_gather;
        if (!gather && r.channel != Channel::fsdp_reduce && r.channel != Channel::replicate) continue;
        (gather ? gathers : reductions) += 1;
        EXPECT_FALSE(r.host_waited) << name(r.op) << " of " << r.count;
        EXPECT_TRUE(r.ordered) << name(r.op) << " of " << r.count;
        // A later gather of the same rows ends after this one, so the update is ordered after the last gather
        // alone.
        EXPECT_TRUE(gather || r.input_ordered) << name(r.op) << " of " << r.count;
      }
    }
    EXPECT_EQ(gathers > 0, place.shard_ranks() > 1);
    EXPECT_GT(reductions, 0u);
  }
}

TEST(Streams, AnUpdateComesAfterPeersHaveReadThisRanksRows) {
  const auto root = recording_gang(2);
  const auto model = step_once(*root, {Strategy::full_shard, 1, DType{}});
  const GroupContext& place = model->fsdp().groups().front()->place();
  // Tells for the last gather of each size whether the stream was ordered after it. Equal blocks have equal
  // sizes.
  std::map<size_t, bool> input_ordered;
  for (const RecordedCollective& r : recorded(place.shards->engine()))
    if (r.channel == Channel::fsdp_gather) input_ordered[r.count] = r.input_ordered;
  EXPECT_FALSE(input_ordered.empty());
  for (const auto& [count, ordered] : input_ordered) EXPECT_TRUE(ordered) << count;
}

}  // namespace
}  // namespace gangway::test
