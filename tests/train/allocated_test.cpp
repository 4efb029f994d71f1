// Compares the memory plan with what the allocators gave: the bytes of live blocks of the host and of the
// arena. The allocators know nothing of a model.
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "device/host_memory.h"
#include "nn/small_llama.h"
#include "parallel/fsdp/fsdp_state.h"
#include "train/train_testing.h"

namespace gangway {
namespace {

constexpr int64_t kRows = 16, kLength = 128;
constexpr uint64_t kPage = 4096, kSmallestChunk = 1 << 20;
constexpr uint32_t kArenaLimit = 60 << 20;

// Sizes at which every buffer of a parameter group is larger than the blocks that the arena cuts from the
// pages it keeps, and every stack but one is larger than its smallest chunk.
DecoderOptions config() {
  DecoderOptions c = test::small_llama();
  c.vocab = 512;
  c.dim = 64;
  c.ffn = 128;
  c.max_positions = kLength;
  return c;
}

struct Case {
  int ranks;
  Strategy strategy;
  DType param;
  RecomputeKind recompute;
  std::string describe() const {
    return text(ranks, " ranks, strategy ", static_cast<int>(strategy), ", param ",
                name(param == DType{} ? DType::f32 : param), ", recompute ", static_cast<int>(recompute));
  }
};

struct Trained {
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  std::shared_ptr<const ModelInspector::OptimizerBytes> counted;
};

// Trains two steps, because a stack has one block of the right size only after the first.
Trained train(Gang& root, const GangsPtr& gangs, const Case& c, const Tensor& ids) {
  ParallelOptions options = test::parallel(c.strategy, DType::f32);
  options.shard.param_dtype = c.param;
  options.recompute.kind = c.recompute;
  Trained trained;
  trained.model = test::make_model(make_decoder(config()), gangs, options);
  trained.optimizer =
      make_optimizer("adamw", trained.model->inspect().parameters(), {}, trained.model->ops());
  trained.counted = trained.model->inspect().count_optimizer(trained.optimizer->state_bytes());
  Batch batch;
  batch.inputs = batch.targets = {ids};
  StepOptions step;
  step.max_grad_norm = 1;
  for (int i = 0; i < 2; ++i)
    train_step(*trained.model, trained.optimizer.get(), batch, step, root.device().stream());
  return trained;
}

Tensor make_ids(Gang& root) {
  const Tensor ids = Tensor::allocate(root.device().allocator(), DType::i64, Shape{kRows, kLength});
  if (ids.raw() != nullptr) std::fill_n(ids.data<int64_t>(), ids.count(), 3);
  return ids;
}

MemoryUse plan(int rank, const Case& c) {
  GangOptions meta;
  meta.device = "meta";
  const GangPtr root = Gang::create_fake(rank, c.ranks, meta, true, false);
  return train(*root, test::make_gangs(*root), c, make_ids(*root)).model->inspect().memory();
}

// A source of the host's memory that counts the bytes it takes from the C library.
class Counted {
 public:
  Counted() {
    set_host_memory_hooks(std::make_shared<HostMemoryHooks>(
        HostMemoryHooks{[](void* live, size_t bytes, size_t alignment) {
                          *static_cast<std::atomic<uint64_t>*>(live) += bytes;
                          return std::aligned_alloc(alignment, bytes);
                        },
                        [](void* live, void* data, size_t bytes) {
                          *static_cast<std::atomic<uint64_t>*>(live) -= bytes;
                          std::free(data);
                        },
                        live_.get(), live_}));
  }
  ~Counted() { set_host_memory_hooks(nullptr); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  uint64_t live() const { return *live_; }

 private:
  const std::shared_ptr<std::atomic<uint64_t>> live_ = std::make_shared<std::atomic<uint64_t>>(0);
};

// The sum over all ranks.
struct Bytes {
  uint64_t host = 0, arena = 0;
};

// The bytes that all ranks have taken of the arena. A refused allocation tells them. Collective, because the
// requests of two ranks at once would count each other.
uint64_t taken_of_arena(Gang& root) {
  unsigned long long taken = 0;
  for (int r = 0; root.size() > 1 && r < root.size(); ++r) {
    root.barrier();
    if (r != root.rank()) continue;
    const Error want = test::error_of(
        [&] { Tensor::allocate(root.allocator(), DType::u8, Shape{int64_t{kArenaLimit} + 1}); });
    EXPECT_EQ(std::sscanf(want.message().c_str(), "host engine: %*u bytes are wanted, but %llu of", &taken),
              1)
        << want.message();
  }
  return taken;
}

// The memory that a peer gave back to the arena returns to its owner at the owner's next allocation, so each
// rank makes one.
Bytes bytes_now(Gang& root, const Counted& counted) {
  root.barrier();
  Tensor::allocate(root.allocator(), DType::u8, Shape{1 << 16});
  root.barrier();
  const uint64_t host = counted.live();
  const Bytes bytes{host, taken_of_arena(root)};
  root.barrier();
  return bytes;
}

// The bytes of what peers reach, which the arena holds. The host's allocator holds all else.
uint64_t reachable(const MemoryUse& use, const Case& c) {
  if (c.ranks == 1) return 0;
  return use.full_gradients + (c.strategy == Strategy::no_shard ? use.gradient_shards : use.region_rows);
}

// The number of blocks in the arena, each of which it rounds up to whole pages: a region for each parameter
// group, with a record of who holds it; a region for the version gates; and the full gradients of each rank
// (two in turn, or one for each parameter group) or its one bucket.
uint64_t arena_blocks(const Case& c, uint64_t groups) {
  const auto ranks = static_cast<uint64_t>(c.ranks);
  switch (c.strategy) {
    case Strategy::full_shard: return groups + 1 + 2 * ranks;
    case Strategy::shard_grad_op: return groups + 1 + groups * ranks;
    case Strategy::no_shard: return ranks;
  }
  return 0;
}

// Recomputed blocks have their gradients in a nested frame. Between two of them the outer frame holds only
// one row of dy for each token, in the smallest chunk that a stack takes. Returns the unused bytes of that
// chunk.
uint64_t chunk_rest(const Case& c) {
  if (c.recompute == RecomputeKind::none) return 0;
  const uint64_t item = c.param == DType::bf16 ? 2 : 4;
  return kSmallestChunk - static_cast<uint64_t>(kRows * kLength * config().dim) * item;
}

void expect_plan(Gang& root, const Case& c, const std::vector<MemoryUse>& planned, const Counted& counted) {
  const GangsPtr gangs = test::make_gangs(root);
  const Tensor ids = make_ids(root);
  // The gangs take their own memory at first use.
  train(root, gangs, c, ids);
  const Bytes before = bytes_now(root, counted);
  const Trained trained = train(root, gangs, c, ids);
  const Bytes after = bytes_now(root, counted);
  uint64_t host = 0, arena = 0;
  for (const MemoryUse& use : planned) {
    arena += reachable(use, c);
    host += use.total() - reachable(use, c) + chunk_rest(c);
  }
  EXPECT_EQ(after.host - before.host, host) << c.describe();
  const uint64_t taken = after.arena - before.arena, groups = trained.model->fsdp().groups().size();
  EXPECT_GE(taken, arena) << c.describe();
  EXPECT_LE(taken, arena + (c.ranks == 1 ? 0 : arena_blocks(c, groups) * kPage)) << c.describe();
  EXPECT_EQ(taken % kPage, 0u) << c.describe();
  if (root.rank() == 0)
    std::printf("%s: %llu bytes of the host, %llu of the arena, whose pages add %llu\n", c.describe().c_str(),
                static_cast<unsigned long long>(host), static_cast<unsigned long long>(arena),
                static_cast<unsigned long long>(taken - arena));
}

TEST(Allocated, BytesOfTheAllocatorsAreThePlans) {
  for (const int ranks : {1, 2})
    for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard})
      for (const DType param : {DType{}, DType::bf16})
        for (const RecomputeKind recompute : {RecomputeKind::none, RecomputeKind::full}) {
          if (recompute == RecomputeKind::full && strategy != Strategy::full_shard) continue;
          const Case c{ranks, strategy, param, recompute};
          std::vector<MemoryUse> planned;
          for (int r = 0; r < ranks; ++r) planned.push_back(plan(r, c));
          const Counted counted;
          GangOptions options = test::thread_rank_options();
          options.memory_limit = kArenaLimit;
          test::run_ranks(
              ranks, [&](Gang& root) { expect_plan(root, c, planned, counted); }, options);
        }
}

}  // namespace
}  // namespace gangway
