#include "parallel/context/balance.h"

#include "parallel/context/dense.h"

namespace gangway::test {
namespace {

TEST(ContextBalance, ARankHasItsHeadChunkAndItsTailChunk) {
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const int64_t chunk : {1, 3})
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<int64_t> positions;
        int64_t local = 0;
        for (const Chunk& c : chunks_of(2 * chunk, rank, ranks)) {
          EXPECT_EQ(c.local, local);
          local += c.count;
          for (int64_t i = 0; i < c.count; ++i) positions.push_back(c.position + i);
        }
        EXPECT_EQ(positions, tokens_of(2 * ranks * chunk, rank, ranks)) << rank << " of " << ranks;
      }
}

TEST(ContextBalance, JoiningAllPartsRestoresTheSequence) {
  const auto device = make_device(test_device());
  const auto ops = make_ops(device);
  Stream& stream = device->stream();
  for (const int ranks : {1, 2, 3, 8})
    for (const Shape& shape : {Shape{2, 24 * ranks}, Shape{1, 2 * ranks}, Shape{0, 4 * ranks}, Shape{3, 0}}) {
      std::vector<int64_t> ids(static_cast<size_t>(shape.count()));
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(7 * i) - 100;
      const Tensor whole = make_ids(*device, shape, ids);
      const Tensor restored = make_ids(*device, shape, std::vector<int64_t>(ids.size(), -1));
      for (int rank = 0; rank < ranks; ++rank) {
        const Shape part{shape[0], shape[1] / ranks};
        const Tensor local =
            make_ids(*device, part, std::vector<int64_t>(static_cast<size_t>(part.count()), -1));
        split_sequence(*ops, whole, local, 1, rank, ranks, stream);
        std::vector<int64_t> want;
        for (int64_t b = 0; b < shape[0]; ++b)
          for (const int64_t t : tokens_of(shape[1], rank, ranks))
            want.push_back(ids[static_cast<size_t>(b * shape[1] + t)]);
        const HostMemory host(local);
        EXPECT_EQ(std::vector<int64_t>(host.data<int64_t>(), host.data<int64_t>() + local.count()), want);
        join_sequence(*ops, local, restored, 1, rank, ranks, stream);
      }
      const HostMemory host(restored);
      EXPECT_EQ(std::vector<int64_t>(host.data<int64_t>(), host.data<int64_t>() + restored.count()), ids);
    }
}

TEST(ContextBalance, ASequenceThatDoesNotDivideIsRefusedWithItsNumbers) {
  const auto refuses = [](int64_t tokens, int cp, int tp, const char* unit) {
    expect_refusal(Code::invalid_argument, [&] { check_sequence(tokens, cp, tp); },
                   {std::to_string(tokens).c_str(), unit, "cp", "tp"});
  };
  refuses(6, 2, 1, "multiple of 4");
  refuses(18, 4, 1, "multiple of 8");
  refuses(12, 2, 4, "multiple of 8");   // lcm(4, 8)
  refuses(18, 3, 4, "multiple of 12");  // lcm(6, 12)
  for (const int64_t tokens : {0, 8, 800}) check_sequence(tokens, 2, 4);
  check_sequence(12, 2, 3);  // lcm(4, 6)
  check_sequence(7, 1, 1);
  check_sequence(12, 1, 3);
}

// Every visible pair of a query and a key is computed once, on the query's rank, and all ranks compute
// equally many pairs.
TEST(ContextBalance, TheStepsOfARingCoverEveryPairOnceWithEqualWork) {
  for (const bool causal : {true, false})
    for (const int ranks : {1, 2, 3, 4, 5, 8})
      for (const int64_t chunk : {1, 4}) {
        const int64_t tokens = 2 * chunk * ranks;
        std::vector<int> computed(static_cast<size_t>(tokens * tokens));
        std::vector<int64_t> work(static_cast<size_t>(ranks));
        for (int rank = 0; rank < ranks; ++rank)
          for (int i = 0; i < ranks; ++i) {
            const RingStep step = ring_step(i, 2 * chunk, causal, rank, ranks);
            EXPECT_EQ(step.source, ((rank - i) % ranks + ranks) % ranks);
            const std::vector<int64_t> queries = tokens_of(tokens, rank, ranks),
                                       keys = tokens_of(tokens, step.source, ranks);
            for (int64_t q = step.first_query; q < 2 * chunk; ++q)
              for (int64_t k = 0; k < step.last_key; ++k) {
                if (step.causal && k > q) continue;
                ++computed[static_cast<size_t>(queries[static_cast<size_t>(q)] * tokens +
                                               keys[static_cast<size_t>(k)])];
                ++work[static_cast<size_t>(rank)];
              }
          }
        for (int64_t q = 0; q < tokens; ++q)
          for (int64_t k = 0; k < tokens; ++k)
            EXPECT_EQ(computed[static_cast<size_t>(q * tokens + k)], causal && k > q ? 0 : 1)
                << q << " " << k;
        for (const int64_t pairs : work) EXPECT_EQ(pairs, work[0]) << ranks << " ranks, chunk " << chunk;
      }
}

}  // namespace
}  // namespace gangway::test
