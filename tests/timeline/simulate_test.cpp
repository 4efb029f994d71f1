// When things run, of logs so short that times follow by hand: kernels take seconds of whole bytes, nothing else takes time.
#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "timeline/kernel_rates.h"
#include "timeline/simulate.h"

namespace gangway::timeline {
namespace {

using gpu_emulation::Entry;
using gpu_emulation::Work;
using Logs = std::vector<std::vector<Entry>>;

Rates plain() {
  Rates rates;
  rates.memory = rates.link = rates.peak = 1;
  rates.product_share = rates.attention_share = 1;
  rates.collective_s = rates.kernel_s = rates.launch_s = rates.collective_launch_s = rates.event_s = 0;
  rates.host_wait_s = 0;
  return rates;
}

TEST(Simulate, AKernelWithARateOfItsOwnIsTimedByIt) {
  Rates rates = plain();
  rates.kernels["own"] = {4, 2};
  Entry e;
  e.name = "own";
  e.flops = 8, e.bytes = 1;
  EXPECT_DOUBLE_EQ(seconds_of(e, rates), 2);
  e.bytes = 10;
  EXPECT_DOUBLE_EQ(seconds_of(e, rates), 5);
  e.name = "another";
  EXPECT_DOUBLE_EQ(seconds_of(e, rates), 10);
  rates.kernels["own"] = {0, 0};  // bound by nothing
  e.name = "own";
  EXPECT_DOUBLE_EQ(seconds_of(e, rates), 0);
}

TEST(KernelRates, FewerWarpsHideLessOfTheInstructionsBesideTheProducts) {
  Rates rates;
  rates.peak = 8192;  // flops a second, of 2 cycles a product
  const Multiprocessors gpu{1, 1, 1, 0.5};
  const auto cycles = [&](double instructions, double threads, Overlap overlap) {
    return 4 * 4096 / rate_of({instructions, 0, threads}, rates, gpu, overlap).flops;
  };
  EXPECT_DOUBLE_EQ(cycles(3, 128, Overlap::by_warps), 4 + 2) << "one warp at a scheduler";
  EXPECT_DOUBLE_EQ(cycles(3, 256, Overlap::by_warps), 4 + 1);
  EXPECT_DOUBLE_EQ(cycles(3, 256, Overlap::all), 4);
  EXPECT_DOUBLE_EQ(cycles(3, 256, Overlap::none), 6);
  EXPECT_DOUBLE_EQ(cycles(9, 256, Overlap::by_warps), 8 + 2) << "bound by the instructions";
}

TEST(KernelRates, BytesInFlightBoundAKernelUntilTheMemoryDoes) {
  Rates rates;
  rates.memory = 1000;
  const Multiprocessors gpu{2, 1, 4, 1};
  EXPECT_DOUBLE_EQ(rate_of({0, 16, 100}, rates, gpu, Overlap::by_warps).bytes, 2 * 100 * 16 / 4.0);
  EXPECT_DOUBLE_EQ(rate_of({0, 32, 100}, rates, gpu, Overlap::by_warps).bytes, 1000);
}

TEST(KernelRates, ARecordWithoutAKernelIsRefused) {
  const Error error = test::error_of([] { kernel_rates("/dev/null", Rates()); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_EQ(error.message().find("/dev/null: "), 0u) << error.message();
}

Entry entry(Work work, uint64_t stream, double bytes = 0) {
  Entry e;
  e.work = work;
  e.stream = stream;
  e.bytes = bytes;
  return e;
}
Entry kernel(uint64_t stream, double seconds) { return entry(Work::kernel, stream, seconds); }
Entry record(uint64_t stream, uint64_t event) {
  Entry e = entry(Work::record, stream);
  e.event = event;
  return e;
}
Entry wait(uint64_t stream, uint64_t event) {
  Entry e = entry(Work::wait, stream);
  e.event = event;
  return e;
}
// Of two ranks; a broadcast moves its bytes once.
Entry collective(uint64_t stream, uint64_t communicator, uint64_t launch, double bytes) {
  Entry e = entry(Work::collective, stream, bytes);
  e.name = "broadcast";
  e.communicator = communicator;
  e.launch = launch;
  e.ranks = 2;
  return e;
}

TEST(Simulate, AStreamRunsItsKernelsInOrderAndADeviceOneAtATime) {
  const StepTimes times = simulate({{kernel(1, 2), kernel(2, 3), kernel(1, 1)}}, plain());
  EXPECT_DOUBLE_EQ(times.length, 6);
  EXPECT_DOUBLE_EQ(times.ranks[0].spans[0].end, 2);
  EXPECT_GE(times.ranks[0].spans[2].start, 2);
  EXPECT_DOUBLE_EQ(times.ranks[0].compute, 6);
  EXPECT_DOUBLE_EQ(times.ranks[0].exposed, 0);
}

TEST(Simulate, AStreamThatWaitsForAnEventComesAfterIt) {
  const StepTimes times = simulate({{kernel(1, 2), record(1, 7), wait(2, 7), kernel(2, 1)}}, plain());
  EXPECT_DOUBLE_EQ(times.ranks[0].spans[3].start, 2);
}

TEST(Simulate, AnEventFromBeforeTheLogIsOver) {
  EXPECT_DOUBLE_EQ(simulate({{wait(1, 7), kernel(1, 1)}}, plain()).length, 1);
}

TEST(Simulate, ACollectiveBeginsWhenTheLastRankComesAndWaitingForItIsExposed) {
  const Logs logs = {{collective(1, 1, 0, 3)}, {kernel(1, 2), collective(1, 1, 0, 3)}};
  const StepTimes times = simulate(logs, plain());
  EXPECT_DOUBLE_EQ(times.length, 5);
  EXPECT_DOUBLE_EQ(times.ranks[0].exposed, 5);
  EXPECT_DOUBLE_EQ(times.ranks[1].exposed, 3);
  EXPECT_DOUBLE_EQ(times.ranks[1].compute, 2);
}

TEST(Simulate, ACollectiveBehindComputeIsHidden) {
  const std::vector<Entry> rank = {collective(1, 1, 0, 3), kernel(2, 4)};
  const StepTimes times = simulate({rank, rank}, plain());
  EXPECT_DOUBLE_EQ(times.length, 4);
  EXPECT_DOUBLE_EQ(times.ranks[0].exposed, 0);
}

TEST(Simulate, TwoCollectivesShareTheLink) {
  const std::vector<Entry> rank = {collective(1, 1, 0, 3), collective(2, 2, 0, 1)};
  const StepTimes times = simulate({rank, rank}, plain());
  EXPECT_DOUBLE_EQ(times.ranks[0].spans[1].end, 2);  // half of the link for 1 byte
  EXPECT_DOUBLE_EQ(times.length, 4);
}

TEST(Simulate, TheHostLaunchesNothingWhileItWaits) {
  Rates rates = plain();
  rates.host_wait_s = 10;
  const StepTimes times = simulate({{kernel(1, 2), entry(Work::host_wait, 1), kernel(1, 1)}}, rates);
  EXPECT_DOUBLE_EQ(times.ranks[0].spans[2].start, 12);
  EXPECT_DOUBLE_EQ(times.ranks[0].idle, 10);
}

TEST(Simulate, ALaunchTakesTheHostsTime) {
  Rates rates = plain();
  rates.launch_s = 5;
  EXPECT_DOUBLE_EQ(simulate({{kernel(1, 1), kernel(1, 1)}}, rates).length, 11);
}

TEST(Simulate, AKernelTakesAsLongAsItsFlopsOrItsBytes) {
  Entry e = kernel(1, 3);
  e.flops = 8;
  EXPECT_DOUBLE_EQ(simulate({{e}}, plain()).length, 8);
}

TEST(Simulate, RanksThatNeverMeetAreRefused) {
  const Logs logs = {{collective(1, 1, 0, 3)}, {kernel(1, 2)}};
  EXPECT_EQ(test::error_of([&] { simulate(logs, plain()); }).code(), Code::invalid_state);
}

}  // namespace
}  // namespace gangway::timeline
