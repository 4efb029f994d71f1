#include "gang/local/fake.h"
#include "gang/agreement.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "gang/gang.h"

namespace gangway {
namespace {

using test::error_of;
using Op = CollectiveOp;

GangPtr fake(int rank, int size, bool record = false, const char* device = "cpu") {
  GangOptions options;
  options.threads = 1;
  options.device = device;
  return Gang::create_fake(rank, size, options, record, /*refuse_meta=*/false);
}

template <typename T>
std::vector<T> run(Gang& gang, Op op, DType dtype, const std::vector<T>& in, size_t count,
                   size_t out_elements, Reduce reduce = Reduce::none, int peer = -1,
                   const size_t* counts = nullptr) {
  std::vector<T> out(out_elements);
  Collective c;
  c.op = op;
  c.in = in.data();
  c.out = out.data();
  c.count = count;
  c.dtype = dtype;
  c.reduce = reduce;
  c.peer = peer;
  c.counts = counts;
  gang.run_now(Channel::user, c);
  return out;
}

using F = std::vector<float>;

TEST(FakeEngine, ReductionsActAsIfAllRanksHeldTheData) {
  const GangPtr gang = fake(1, 4);
  const F in = {1.5f, -2, 3};
  EXPECT_EQ(run(*gang, Op::all_reduce, DType::f32, in, 3, 3, Reduce::sum), (F{6, -8, 12}));
  EXPECT_EQ(run(*gang, Op::all_reduce, DType::f32, in, 3, 3, Reduce::product), (F{5.0625f, 16, 81}));
  for (const Reduce r : {Reduce::mean, Reduce::min, Reduce::max})
    EXPECT_EQ(run(*gang, Op::all_reduce, DType::f32, in, 3, 3, r), in);
  EXPECT_EQ(run(*gang, Op::reduce, DType::f32, in, 3, 3, Reduce::sum, 1), (F{6, -8, 12}));
  EXPECT_EQ(run(*gang, Op::reduce, DType::f32, in, 3, 3, Reduce::sum, 2), (F{0, 0, 0}));
  EXPECT_EQ(run(*gang, Op::reduce_scatter, DType::f32, F{1, 2, 3, 4, 5, 6, 7, 8}, 2, 2, Reduce::sum),
            (F{12, 16}));
  const size_t counts[] = {3, 1, 2, 0};
  EXPECT_EQ(run(*gang, Op::reduce_scatter, DType::f32, F{1, 2, 3, 4, 5, 6}, 0, 1, Reduce::sum, -1, counts),
            F{16});
}

TEST(FakeEngine, ReductionsOfEveryTypeAreRight) {
  const GangPtr gang = fake(0, 3);
  EXPECT_EQ(run(*gang, Op::all_reduce, DType::f64, std::vector<double>{0.1}, 1, 1, Reduce::sum)[0], 3 * 0.1);
  EXPECT_EQ(run(*gang, Op::all_reduce, DType::i32, std::vector<int32_t>{-7}, 1, 1, Reduce::product)[0], -343);
  EXPECT_EQ(run(*gang, Op::all_reduce, DType::i64, std::vector<int64_t>{INT64_MAX}, 1, 1, Reduce::sum)[0],
            static_cast<int64_t>(3 * static_cast<uint64_t>(INT64_MAX)));
  EXPECT_EQ(run(*gang, Op::all_reduce, DType::u8, std::vector<uint8_t>{100}, 1, 1, Reduce::sum)[0],
            300 % 256);
  EXPECT_EQ(run(*gang, Op::all_reduce, DType::boolean, std::vector<uint8_t>{1}, 1, 1, Reduce::max)[0], 1);
  const std::vector<uint16_t> half = {to_f16(0.5f).bits}, brain = {to_bf16(0.5f).bits};
  EXPECT_EQ(run(*gang, Op::all_reduce, DType::f16, half, 1, 1, Reduce::sum)[0], to_f16(1.5f).bits);
  EXPECT_EQ(run(*gang, Op::all_reduce, DType::bf16, brain, 1, 1, Reduce::product)[0], to_bf16(0.125f).bits);
}

TEST(FakeEngine, MovingOperationsActAsIfPeersSentTheData) {
  const GangPtr gang = fake(1, 3);
  EXPECT_EQ(run(*gang, Op::all_gather, DType::f32, F{1, 2}, 2, 6), (F{1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(run(*gang, Op::gather, DType::f32, F{1, 2}, 2, 6, Reduce::none, 1), (F{1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(run(*gang, Op::gather, DType::f32, F{1, 2}, 2, 6, Reduce::none, 0), F(6, 0));
  EXPECT_EQ(run(*gang, Op::broadcast, DType::f32, F{1, 2}, 2, 2, Reduce::none, 1), (F{1, 2}));
  EXPECT_EQ(run(*gang, Op::scatter, DType::f32, F{1, 2, 3}, 1, 1, Reduce::none, 1), F{2});
  EXPECT_EQ(run(*gang, Op::all_to_all, DType::f32, F{1, 2, 3, 4, 5, 6}, 2, 6), (F{3, 4, 3, 4, 3, 4}));
  const size_t counts[] = {1, 2, 0};
  EXPECT_EQ(run(*gang, Op::all_gather, DType::f32, F{1, 2}, 0, 3, Reduce::none, -1, counts), (F{1, 1, 2}));
  const size_t more[] = {3, 2, 0};
  const Error error = error_of([&] {
    run(*gang, Op::all_gather, DType::f32, F{1, 2}, 0, 5, Reduce::none, -1, more);
  });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_EQ(error.message(),
            "gang.all_gather: the peers of a fake gang hold 2 elements like rank 1, but rank 0 is to give 3");
}

TEST(FakeEngine, AReceiveGetsWhatTheSpanSends) {
  const GangPtr gang = fake(0, 4);
  float a = 1, b = 2, got[2] = {};
  Collective send;
  send.op = Op::send;
  send.count = 1;
  send.peer = 1;
  send.in = &a;
  Collective second = send;
  second.in = &b;
  Collective recv;
  recv.op = Op::recv;
  recv.count = 1;
  recv.peer = 3;
  recv.out = &got[0];
  Collective last = recv;
  last.out = &got[1];
  const Collective ring[] = {recv, send, last, second};
  gang->run(Channel::user, ring);
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[1], 2);
}

TEST(FakeEngine, RecordsEachCollectiveWithItsBytes) {
  const GangPtr gang = fake(1, 4, /*record=*/true);
  float in[16] = {}, out[32] = {};
  Collective c;
  c.in = in;
  c.out = out;
  c.count = 4;
  c.op = Op::all_gather;
  gang->run(Channel::fsdp_gather, c);
  c.op = Op::reduce_scatter;
  c.reduce = Reduce::sum;
  gang->run(Channel::fsdp_reduce, c);
  c.op = Op::all_reduce;
  c.count = 7;  // parts 2 2 2 1: 3 peers times 2, then 5 back
  gang->run(Channel::replicate, c);
  const std::vector<RecordedCollective> seen = recorded(gang->engine());
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].channel, Channel::fsdp_gather);
  EXPECT_EQ(seen[0].op, Op::all_gather);
  EXPECT_EQ(seen[0].bytes, 3u * 4 * 4);
  EXPECT_EQ(seen[1].bytes, 3u * 4 * 4);
  EXPECT_EQ(seen[1].reduce, Reduce::sum);
  EXPECT_EQ(seen[2].bytes, (3u * 2 + 5) * 4);
  EXPECT_EQ(seen[2].count, 7u);
  EXPECT_EQ(gang->traffic().bytes_moved, 48u + 48 + 44);
  EXPECT_TRUE(recorded(fake(0, 2)->engine()).empty());
}

TEST(FakeEngine, OnMetaNothingIsTouchedAndEverythingIsRecorded) {
  const GangPtr gang = fake(2, 8, /*record=*/true, "meta");
  Collective c;
  c.op = Op::all_gather;
  c.count = 1u << 30;
  gang->run_now(Channel::fsdp_gather, c);
  c.op = Op::broadcast;
  c.peer = 2;
  gang->run_now(Channel::user, c);
  EXPECT_EQ(recorded(gang->engine())[0].bytes, 7ull << 32);
  const SharedRegion region = gang->allocate_shared(uint64_t{1} << 40);
  EXPECT_EQ(region.writable->data(), nullptr);
  EXPECT_EQ(region.writable->bytes(), uint64_t{1} << 40);
  EXPECT_EQ(gang->agreement().all_sum(Channel::control, 1), 8);
  EXPECT_EQ(gang->create_gang(std::vector<int>{2, 4})->rank(), 0);
}

TEST(FakeEngine, PeersHaveWhatThisRankHas) {
  const GangPtr gang = fake(1, 3);
  EXPECT_EQ(gang->agreement().all_gather_bytes(Channel::user, "ab"),
            (std::vector<std::string>{"ab", "ab", "ab"}));
  EXPECT_EQ(gang->agreement().broadcast_bytes(Channel::user, "ab", 1), "ab");
  EXPECT_EQ(error_of([&] { gang->agreement().broadcast_bytes(Channel::user, "ab", 0); }).code(),
            Code::invalid_argument);
  const GangPtr all = gang->split(5, -1);
  EXPECT_EQ(all->size(), 3);
  EXPECT_EQ(all->rank(), 1);
  std::atomic<uint64_t> counter{0};
  gang->engine().shared_memory()->wait(counter, 9, 2, "gate");
}

}  // namespace
}  // namespace gangway
