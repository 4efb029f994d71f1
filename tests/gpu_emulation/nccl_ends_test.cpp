// How communicators of NCCL end: aborts of several gangs, links that fail while all ranks live, and ranks
// that release their gangs at different times. The emulated NCCL waits in the same places as NCCL, and a wait
// that does not end is a fault.
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "gang/agreement.h"
#include "gang/host/joined.h"
#include "gpu_emulation/emulator.h"
#include "gpu_emulation/ranks.h"

#include <nccl.h>

namespace gangway::test {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

// Returns a function that only the emulated NCCL has.
template <typename Function>
Function emulated(const char* name) {
  return reinterpret_cast<Function>(dlsym(dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD), name));
}
ncclComm_t comm_of(Gang& gang) { return static_cast<ncclComm_t>(gang.engine().native_handle()); }

// A number on the device, and its all_reduce.
struct Number {
  explicit Number(Gang& gang)
      : gang(gang), tensor(Tensor::allocate(gang.device().allocator(), DType::f32, {1})) {}
  WorkPtr all_reduce() {
    Collective c;
    c.op = CollectiveOp::all_reduce;
    c.reduce = Reduce::sum;
    c.in = c.out = tensor.raw();
    c.count = 1;
    return gang.run(Channel::user, c, &gang.device().stream());
  }
  void wait() { all_reduce()->wait(Deadline::after_ms(60'000)); }

  Gang& gang;
  Tensor tensor;
};

// Rank 0 waits in both gangs for rank 1, which dies. If rank 0 aborted one gang after the other, the first
// abort would wait for the kernel of the second gang.
TEST(NcclEnds, TheKernelsOfTwoGangsEndWhenTheirPeerDies) {
  Processes ranks(2, [](int r, const std::shared_ptr<Store>& store, Report& report) {
    const GangPtr root = cuda_root(r, 2, store), second = root->duplicate("second");
    Number a(*root), b(*second);
    a.wait();
    b.wait();
    report.stage = 1;
    if (r == 1)
      for (;;) pause();
    until_failure(report, [&] {
      a.all_reduce()->order(root->device().stream());
      b.all_reduce()->order(root->device().stream());
      root->device().stream().synchronize();
    });
    EXPECT_EQ(gpu_emulation::report(), "");
  });
  ranks.wait_for_stage(0, 1);
  ranks.wait_for_stage(1, 1);
  ranks.kill(1, SIGKILL);
  ASSERT_TRUE(ranks.ended_well(0)) << ranks.report(0).text;
  EXPECT_EQ(ranks.report(0).code, static_cast<int64_t>(Code::peer_lost)) << ranks.report(0).text;
}

// All ranks live, but the kernel of one never ends. NCCL reports it, or does not.
TEST(NcclEnds, ABrokenLinkEndsTheWaitBySomeErrorWithinTheDeadline) {
  for (const bool told : {true, false}) {
    Processes ranks(2, [told](int r, const std::shared_ptr<Store>& store, Report& report) {
      const GangPtr root = cuda_root(r, 2, store, 3000);
      Number number(*root);
      number.wait();
      root->agreement().broadcast_bytes(Channel::control, "done", 1);  // rank 1 has its sum, too
      if (r == 0) {
        emulated<decltype(&gpu_emulation_stop_link)>("gpu_emulation_stop_link")(comm_of(*root), told ? 1 : 0);
      }
      const Clock::time_point start = Clock::now();
      until_failure(report, [&] {
        number.all_reduce()->order(root->device().stream());
        root->device().stream().synchronize();
      });
      report.values[0] = static_cast<int64_t>(1000 * seconds_since(start));
    });
    ranks.expect_all_well();
    for (const int r : {0, 1}) EXPECT_LT(ranks.report(r).values[0], 30'000);
    const Report& report = ranks.report(0);
    EXPECT_EQ(report.code, static_cast<int64_t>(told ? Code::gang : Code::timeout)) << report.text;
    EXPECT_NE(std::strstr(report.text, told ? "unhandled system error" : "did not end within 3000 ms"),
              nullptr)
        << report.text;
  }
}

// The wait of rank 0 passes the deadline by 50 ms, within the half second after which it would give up. Its
// next wait takes longer than that half second, while no collective is late.
TEST(NcclEnds, ALateCollectiveThatEndedDoesNotEndTheNextWait) {
  constexpr std::chrono::milliseconds kTimeout{1000}, kLate{1050}, kNext{700};
  Processes ranks(2, [=](int r, const std::shared_ptr<Store>& store, Report& report) {
    const GangPtr root = cuda_root(r, 2, store, kTimeout.count());
    Number number(*root);
    number.wait();
    root->agreement().broadcast_bytes(Channel::control, "done", 1);
    const ncclComm_t comm = comm_of(*root);
    if (r == 0) emulated<decltype(&gpu_emulation_stop_link)>("gpu_emulation_stop_link")(comm, 0);
    const WorkPtr late = number.all_reduce();
    std::thread mends([r, comm, kLate] {
      std::this_thread::sleep_for(kLate);
      if (r == 0) emulated<decltype(&gpu_emulation_mend_link)>("gpu_emulation_mend_link")(comm);
    });
    late->order(root->device().stream());
    root->device().stream().synchronize();
    mends.join();
    if (r == 1) std::this_thread::sleep_for(kNext);
    number.all_reduce()->order(root->device().stream());
    root->device().stream().synchronize();
    report.stage = 1;
  });
  ranks.expect_all_well();
  for (const int r : {0, 1}) EXPECT_EQ(ranks.report(r).stage, 1) << r;
}

// No rank waits for a peer that releases its gang later, with a shutdown or without one.
TEST(NcclEnds, RanksReleaseTheirGangsAtDifferentTimes) {
  for (const bool shutdown : {true, false}) {
    Processes ranks(2, [shutdown](int r, const std::shared_ptr<Store>& store, Report& report) {
      Clock::time_point start;
      {
        const GangPtr root = cuda_root(r, 2, store);
        Number(*root).wait();
        if (shutdown) root->shutdown(60'000);
        if (r == 1) std::this_thread::sleep_for(std::chrono::seconds(shutdown ? 3 : 7));
        start = Clock::now();
      }
      report.values[0] = static_cast<int64_t>(1000 * seconds_since(start));
      EXPECT_EQ(gpu_emulation::report(), "");
    });
    ranks.expect_all_well();
    for (const int r : {0, 1}) EXPECT_LT(ranks.report(r).values[0], shutdown ? 2000 : 9000) << "rank " << r;
  }
}

}  // namespace
}  // namespace gangway::test
