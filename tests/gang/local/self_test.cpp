#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "base/expect_error.h"
#include "gang/agreement.h"
#include "gang/gang.h"

namespace gangway {
namespace {

using test::error_of;

GangPtr self(int64_t timeout_ms = 60'000) {
  GangOptions options;
  options.threads = 1;
  options.timeout_ms = timeout_ms;
  return Gang::create_threads(1, options)[0];
}

Collective record(CollectiveOp op, const void* in, void* out, size_t count, Reduce reduce = Reduce::none) {
  Collective c;
  c.op = op;
  c.in = in;
  c.out = out;
  c.count = count;
  c.reduce = reduce;
  c.peer = 0;
  return c;
}

TEST(SelfEngine, EveryCollectiveCopies) {
  const GangPtr gang = self();
  using Op = CollectiveOp;
  for (const Op op : {Op::all_reduce, Op::reduce, Op::reduce_scatter, Op::all_gather, Op::gather, Op::scatter,
                      Op::broadcast, Op::all_to_all}) {
    const bool reduces = op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter;
    for (int r = reduces ? 1 : 0; r <= (reduces ? 5 : 0); ++r) {
      const float in[3] = {1.5f, -2, 1e30f};
      float out[3] = {9, 9, 9};
      gang->run_now(Channel::user, record(op, in, out, 3, static_cast<Reduce>(r)));
      EXPECT_EQ(std::memcmp(in, out, sizeof in), 0) << name(op) << " " << r;
    }
  }
}

TEST(SelfEngine, AccumulateAddsToTheOutput) {
  const GangPtr gang = self();
  const float in[2] = {1, 2};
  float out[2] = {10, 20};
  Collective c = record(CollectiveOp::reduce_scatter, in, out, 2, Reduce::sum);
  c.accumulate = true;
  gang->run_now(Channel::user, c);
  EXPECT_EQ(out[0], 11);
  EXPECT_EQ(out[1], 22);
}

TEST(SelfEngine, ASendMeetsTheReceiveOfItsBatchAndOfALaterOne) {
  const GangPtr gang = self();
  float a[2] = {1, 2}, b[2] = {}, c[2] = {};
  const Collective batch[] = {record(CollectiveOp::recv, nullptr, b, 2),
                              record(CollectiveOp::send, a, nullptr, 2)};
  gang->run(Channel::user, batch)->wait(Deadline::after_ms(0));
  EXPECT_EQ(b[1], 2);

  const WorkPtr sent = gang->run(Channel::user, record(CollectiveOp::send, a, nullptr, 2));
  EXPECT_FALSE(sent->poll());
  EXPECT_EQ(error_of([&] { sent->wait(Deadline::after_ms(1)); }).code(), Code::not_ready);
  gang->run_now(Channel::tp, Collective{});  // another channel is not in the way
  gang->run(Channel::user, record(CollectiveOp::recv, nullptr, c, 2))->wait(Deadline::never());
  EXPECT_TRUE(sent->poll());
  EXPECT_FALSE(sent->error().has_value());
  EXPECT_EQ(c[0], 1);
}

TEST(SelfEngine, ASendWithoutAReceiveEndsByTheDeadlineAndBreaksTheGang) {
  const GangPtr gang = self(/*timeout_ms=*/20);
  float a = 1;
  const WorkPtr sent = gang->run(Channel::user, record(CollectiveOp::send, &a, nullptr, 1));
  const Error error = error_of([&] { sent->wait(Deadline::never()); });
  EXPECT_EQ(error.code(), Code::timeout);
  EXPECT_EQ(
      error.message(),
      "gang.send of a gang of one met no counterpart in 20 ms; a rank that sends to itself must receive from "
      "itself");
  EXPECT_EQ(error_of([&] { gang->barrier(); }).code(), Code::timeout);
}

TEST(SelfEngine, ACallThatWouldWaitForItsOwnCounterpartIsRefusedAtOnce) {
  const GangPtr gang = self();  // its deadline is far away
  float a[2] = {1, 2}, b[2] = {};
  const Collective send = record(CollectiveOp::send, a, nullptr, 2),
                   recv = record(CollectiveOp::recv, nullptr, b, 2);
  for (const Collective& alone : {recv, send}) {
    const Error error = error_of([&] { gang->run_now(Channel::user, alone); });
    EXPECT_EQ(error.code(), Code::invalid_state);
    EXPECT_NE(error.message().find("in a gang of one the rank"), std::string::npos) << error.message();
  }
  const WorkPtr sent = gang->run(Channel::user, send);  // the gang works on
  gang->run_now(Channel::user, recv);
  EXPECT_EQ(b[1], 2);
  EXPECT_TRUE(sent->poll());
}

TEST(SelfEngine, ASendAndAReceiveOfDifferentCountsAreAMismatch) {
  const GangPtr gang = self();
  float a[3] = {}, b[2] = {};
  const Collective batch[] = {record(CollectiveOp::send, a, nullptr, 3),
                              record(CollectiveOp::recv, nullptr, b, 2)};
  const Error error = error_of([&] { gang->run(Channel::user, batch); });
  EXPECT_EQ(error.code(), Code::mismatch);
  EXPECT_EQ(error.message(), "gang.recv of 2 f32 meets send of 3 f32 on rank 0 of a gang of one");
}

TEST(SelfEngine, AnAbortWakesAWaiter) {
  const GangPtr gang = self();
  float a = 1;
  const WorkPtr sent = gang->run(Channel::user, record(CollectiveOp::send, &a, nullptr, 1));
  std::thread other([&] { gang->abort("stop"); });
  EXPECT_EQ(error_of([&] { sent->wait(Deadline::never()); }).code(), Code::aborted);
  other.join();
}

TEST(SelfEngine, BytesAndAgreementsComeBack) {
  const GangPtr gang = self();
  EXPECT_EQ(gang->agreement().all_gather_bytes(Channel::user, "abc"), std::vector<std::string>{"abc"});
  EXPECT_EQ(gang->agreement().all_gather_bytes(Channel::user, ""), std::vector<std::string>{""});
  EXPECT_EQ(gang->agreement().broadcast_bytes(Channel::user, "abc", 0), "abc");
  EXPECT_EQ(error_of([&] { gang->agreement().broadcast_bytes(Channel::user, "abc", 1); }).code(),
            Code::invalid_argument);
  EXPECT_EQ(gang->agreement().all_sum(Channel::user, 2.5), 2.5);
  EXPECT_EQ(gang->split(-1, 0), nullptr);
  EXPECT_EQ(gang->split(7, 3)->size(), 1);
}

TEST(SelfEngine, ASharedRegionIsZeroAndReadOnlyOnItsOtherSide) {
  GangPtr gang = self();
  const SharedRegion region = gang->allocate_shared(100);
  gang.reset();
  EXPECT_EQ(region.writable->data(), region.readable->data());
  EXPECT_FALSE(region.writable->read_only());
  EXPECT_TRUE(region.readable->read_only());
  const std::vector<char> zero(100, 0);
  EXPECT_EQ(std::memcmp(region.readable->data(), zero.data(), 100), 0);
}

TEST(SelfEngine, CountersPassWhenTheyArePublished) {
  const GangPtr gang = self(/*timeout_ms=*/30);
  std::atomic<uint64_t> counter{0};
  gang->engine().shared_memory()->publish(counter, 3);
  gang->engine().shared_memory()->wait(counter, 3, 0, "gate");
  const Error error = error_of([&] { gang->engine().shared_memory()->wait(counter, 4, 0, "gate"); });
  EXPECT_EQ(error.code(), Code::timeout);
  EXPECT_EQ(error.message(), "gate: counter is 3, not 4, after 30 ms");
}

TEST(SelfEngine, NothingIsMovedAndEveryCallIsRecorded) {
  const GangPtr gang = self();
  float x[4] = {};
  gang->run_now(Channel::tp, record(CollectiveOp::all_reduce, x, x, 4, Reduce::sum));
  gang->run_now(Channel::tp, record(CollectiveOp::all_reduce, x, x, 4, Reduce::sum));
  EXPECT_EQ(gang->traffic().calls, 2u);
  EXPECT_EQ(gang->traffic().bytes_moved, 0u);
  const std::vector<FlightEntry> flight = gang->flight_record();
  ASSERT_EQ(flight.size(), 2u);
  EXPECT_EQ(flight[1].sequence, 1u);
  EXPECT_EQ(flight[1].bytes, 16u);
  EXPECT_EQ(flight[1].state, "done");
}

}  // namespace
}  // namespace gangway
