// Memory that gangs register with NCCL: it moves the same data, ranks end registrations together, and the
// memory outlives every use. The emulated NCCL makes a fault of what corrupts memory, hangs or leaks in NCCL
// (nccl_memory.cpp).
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>

#include "base/dtype.h"
#include "base/log.h"
#include "gang/agreement.h"
#include "gang/host/joined.h"
#include "gpu_emulation/emulator.h"
#include "gpu_emulation/ranks.h"

#include <nccl.h>

namespace gangway::test {
namespace {

constexpr int kRanks = 3;

using Buffers = std::vector<std::shared_ptr<Buffer>>;

Buffers allocate(const std::shared_ptr<Allocator>& from, std::initializer_list<size_t> sizes) {
  Buffers buffers;
  for (const size_t bytes : sizes) buffers.push_back(Buffer::allocate(from, bytes));
  return buffers;
}

template <typename T>
void write(Device& device, const std::shared_ptr<Buffer>& to, const std::vector<T>& values) {
  device.copy(to->data(), values.data(), values.size() * sizeof(T), device.stream());
  device.stream().synchronize();
}
template <typename T>
std::vector<T> read(Device& device, const std::shared_ptr<Buffer>& from) {
  std::vector<T> values(from->bytes() / sizeof(T));
  device.copy(values.data(), from->data(), values.size() * sizeof(T), device.stream());
  device.stream().synchronize();
  return values;
}

void run(Gang& gang, Channel channel, CollectiveOp op, const Buffers& buffers, DType dtype,
         bool accumulate = false) {
  Collective c;
  c.op = op;
  c.in = buffers[0]->data();
  c.out = buffers[1]->data();
  c.dtype = dtype;
  c.count = std::min(buffers[0]->bytes(), buffers[1]->bytes()) / item_bytes(dtype);
  if (op == CollectiveOp::reduce_scatter) c.reduce = Reduce::sum;
  c.accumulate = accumulate;
  gang.run(channel, c, &gang.device().stream())->order(gang.device().stream());
}

// Gathers and reduces in registered memory, and compares with the sums that the ranks compute by themselves.
void expect_right_results(Gang& gang) {
  Device& device = gang.device();
  const auto size = static_cast<size_t>(gang.size());
  const auto rank = static_cast<float>(gang.rank());
  const Buffers gather = allocate(gang.registrable(), {4096, size * 4096});
  const Buffers reduce = allocate(gang.registrable(), {size * 4096, 4096});
  gang.register_memory(Channel::fsdp_gather, gather, 0);
  gang.register_memory(Channel::fsdp_reduce, reduce, 4096);
  write(device, gather[0], std::vector<float>(1024, rank));
  std::vector<float> mine;
  for (size_t i = 0; i < size * 1024; ++i) mine.push_back(static_cast<float>(i) + rank);
  write(device, reduce[0], mine);
  run(gang, Channel::fsdp_gather, CollectiveOp::all_gather, gather, DType::f32);
  run(gang, Channel::fsdp_reduce, CollectiveOp::reduce_scatter, reduce, DType::f32);
  run(gang, Channel::fsdp_reduce, CollectiveOp::reduce_scatter, reduce, DType::f32, /*accumulate=*/true);
  const std::vector<float> all = read<float>(device, gather[1]), sums = read<float>(device, reduce[1]);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<float>(i / 1024)) << i;
  const float others = static_cast<float>(size * (size - 1) / 2);
  for (size_t i = 0; i < 1024; ++i)
    ASSERT_EQ(sums[i], 2 * (static_cast<float>(size) * static_cast<float>(1024 * gang.rank() + i) + others));
}

void expect_no_faults() {
  EXPECT_EQ(gpu_emulation::report(), "");
  EXPECT_EQ(gpu_emulation::living(), 0);
}

std::string logged() {
  std::string all;
  for (const LogLine& line : log_lines(0)) all += line.message + "\n";
  return all;
}

struct Way {
  const char* name;
  int version;
  bool windows;
  int64_t window_calls, buffer_calls;  // of each rank, for five buffers
  const char* log;
};

TEST(NcclRegistrations, DataIsRightInTheWayThatThisNcclHas) {
  for (const Way& way : {Way{"windows", 22900, true, 5, 0, "in symmetric windows"},
                         Way{"windows of a version that does not say what they are", 22800, true, 5, 0,
                             "in windows, which are symmetric if every GPU reaches"},
                         Way{"links without windows", 22900, false, 5, 5, "without windows"},
                         Way{"an older NCCL", 22601, true, 0, 5, "without windows"}}) {
    Processes ranks(kRanks, [&](int r, const std::shared_ptr<Store>& store, Report&) {
      gpu_emulation::Settings settings = gpu_emulation::settings();
      settings.nccl = way.version;
      settings.nccl_windows = way.windows;
      gpu_emulation::set(settings);
      {
        const GangPtr root = cuda_root(r, kRanks, store);
        expect_right_results(*root);
        root->shutdown(60'000);
      }
      EXPECT_EQ(gpu_emulation::calls("ncclCommWindowRegister"), way.window_calls) << way.name;
      EXPECT_EQ(gpu_emulation::calls("ncclCommRegister"), way.buffer_calls) << way.name;
      EXPECT_NE(logged().find(way.log), std::string::npos) << logged();
      expect_no_faults();
    });
    ranks.expect_all_well();
  }
}

struct Failure {
  const char* name;
  int version;
  const char* call;  // of the emulated NCCL, that fails
  int nth;
  bool on_all;  // ranks, or on rank 1 alone
  const char* log;
};

// Rank 1 and its peers see a failure in different places: the peers wait in NCCL for a window that rank 1
// does not make.
TEST(NcclRegistrations, AGangGoesOnWhereNcclFailsToRegister) {
  constexpr const char* kWindows = "ncclCommWindowRegister";
  constexpr const char* kOnRank1 = "in windows on rank 1 of 3: unhandled system error; the gang goes on";
  for (const Failure& failure :
       {Failure{"all ranks, at once", 22900, kWindows, 1, true,
                "in windows on rank 0 of 3: unhandled system"},
        Failure{"one rank, at once", 22900, kWindows, 1, false, kOnRank1},
        Failure{"one rank, its second buffer", 22900, kWindows, 2, false, kOnRank1},
        Failure{"one rank, in a second batch", 22900, kWindows, 4, false, kOnRank1},
        Failure{"one rank, the sums of a batch that is made", 22900, kWindows, 5, false, kOnRank1},
        Failure{"all ranks, in a thread", 22900, "a window", 2, true,
                "in windows on rank 0 of 3: unhandled cuda error; the gang goes on without windows"},
        Failure{"one rank, in a thread", 22900, "a window", 1, false,
                "in windows on rank 1 of 3: unhandled cuda"},
        Failure{"an older NCCL, all ranks", 22601, "ncclCommRegister", 1, true,
                "without windows on rank 0 of 3"},
        Failure{
            "an older NCCL, one rank", 22601, "ncclCommRegister", 2, false,
            "without windows on rank 1 of 3: unhandled system error; the gang goes on with memory that is "
            "not registered"}}) {
    Processes ranks(kRanks, [&](int r, const std::shared_ptr<Store>& store, Report&) {
      gpu_emulation::Settings settings = gpu_emulation::settings();
      settings.nccl = failure.version;
      gpu_emulation::set(settings);
      if (failure.on_all || r == 1) gpu_emulation::fail_call(failure.call, failure.nth, cudaErrorUnknown);
      {
        const GangPtr root = cuda_root(r, kRanks, store);
        expect_right_results(*root);
        const Buffers last = allocate(root->device().allocator(), {size_t{1} << 20, size_t{3} << 20});
        run(*root, Channel::fsdp_gather, CollectiveOp::all_gather, last, DType::f32);
        expect_right_results(*root);
        root->shutdown(60'000);
      }
      EXPECT_NE(logged().find(failure.log), std::string::npos) << failure.name << ": " << logged();
      EXPECT_LE(gpu_emulation::calls(kWindows), 5) << failure.name << ": no window is tried again";
      expect_no_faults();
    });
    ranks.expect_all_well();
  }
}

// An abort ends the kernels of its communicator, done or not.
TEST(NcclRegistrations, ACollectiveInFlightEndsBeforeAFailureReplacesItsCommunicator) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report&) {
    if (r == 1) gpu_emulation::fail_call("ncclCommWindowRegister", 3, cudaErrorUnknown);
    {
      const GangPtr root = cuda_root(r, 2, store);
      constexpr size_t kCount = size_t{8} << 20;
      const Buffers buffers = allocate(root->registrable(), {4 * kCount, 8 * kCount});
      root->register_memory(Channel::fsdp_gather, buffers, 0);
      write(root->device(), buffers[0], std::vector<float>(kCount, static_cast<float>(r + 1)));
      run(*root, Channel::fsdp_gather, CollectiveOp::all_gather, buffers, DType::f32);
      const Buffers later = allocate(root->registrable(), {4096});
      root->register_memory(Channel::fsdp_gather, later, 0);
      const std::vector<float> all = read<float>(root->device(), buffers[1]);
      EXPECT_EQ(std::count(all.begin(), all.end(), 1), kCount);
      EXPECT_EQ(std::count(all.begin(), all.end(), 2), kCount);
      root->shutdown(60'000);
    }
    expect_no_faults();
  });
  ranks.expect_all_well();
}

TEST(NcclRegistrations, AGangGoesOnWhereNothingCanBeRegistered) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report&) {
    gpu_emulation::fail_call(r == 0 ? "ncclCommWindowRegister" : "ncclCommRegister", 1, cudaErrorUnknown);
    {
      const GangPtr root = cuda_root(r, 2, store);
      const Buffers buffers = allocate(root->registrable(), {4096, 8192});
      root->register_memory(Channel::fsdp_gather, buffers, 0);
      for (const auto& buffer : buffers) EXPECT_FALSE(root->is_registered(buffer->data()));
      run(*root, Channel::fsdp_gather, CollectiveOp::all_gather, buffers, DType::f32);
      root->device().stream().synchronize();
      root->shutdown(60'000);
    }
    for (const char* const log :
         {"in windows on rank 0 of 2", "without windows on rank 1 of 2", "registers no"})
      EXPECT_NE(logged().find(log), std::string::npos) << logged();
    expect_no_faults();
  });
  ranks.expect_all_well();
}

// The emulated NCCL calls windows that differ a remote error.
TEST(NcclRegistrations, AnErrorOfAPeerStillBreaksTheGang) {
  Processes ranks(2, [](int r, const std::shared_ptr<Store>& store, Report& report) {
    const GangPtr root = cuda_root(r, 2, store);
    until_failure(report, [&] {
      const Buffers buffers = allocate(root->registrable(), {r == 0 ? size_t{4096} : size_t{8192}});
      root->register_memory(Channel::fsdp_gather, buffers, 0);
    });
    EXPECT_TRUE(root->error().has_value());
  });
  ranks.expect_all_well();
  for (const int r : {0, 1})
    EXPECT_NE(std::strstr(ranks.report(r).text, "a registration: remote process"), nullptr)
        << ranks.report(r).text;
}

TEST(NcclRegistrations, NoneAreMadeIfTheEnvironmentSaysSo) {
  Processes ranks(2, [](int r, const std::shared_ptr<Store>& store, Report&) {
    setenv("GANGWAY_NCCL_REGISTER", "0", 1);
    const GangPtr root = cuda_root(r, 2, store);
    EXPECT_EQ(root->registrable(), nullptr);
    EXPECT_NE(logged().find("registers no buffers"), std::string::npos) << logged();
  });
  ranks.expect_all_well();
}

TEST(NcclRegistrations, SmallBlocksArePlainAndNotRegistered) {
  Processes ranks(2, [](int r, const std::shared_ptr<Store>& store, Report&) {
    setenv("GANGWAY_NCCL_REGISTER", "8192", 1);
    {
      const GangPtr root = cuda_root(r, 2, store);
      const Buffers buffers = allocate(root->registrable(), {0, 1, 8191, 8192, 100'001});
      root->register_memory(Channel::fsdp_gather, buffers, 0);
      for (size_t i = 0; i < buffers.size(); ++i)
        EXPECT_EQ(root->is_registered(buffers[i]->data()), i >= 3) << i;
      root->shutdown(60'000);
    }
    EXPECT_EQ(gpu_emulation::calls("ncclMemAlloc"), 2);
    expect_no_faults();
  });
  ranks.expect_all_well();
}

TEST(NcclRegistrations, RanksWithDifferentSettingsAreRefusedOnAllRanks) {
  Processes ranks(2, [](int r, const std::shared_ptr<Store>& store, Report& report) {
    setenv("GANGWAY_NCCL_REGISTER", r == 0 ? "1" : "8192", 1);
    const GangPtr root = cuda_root(r, 2, store);
    until_failure(report, [&] {
      root->register_memory(Channel::fsdp_gather, allocate(root->registrable(), {8192}), 0);
    });
  });
  ranks.expect_all_well();
  for (const int r : {0, 1}) {
    EXPECT_EQ(ranks.report(r).code, static_cast<int64_t>(Code::invalid_state)) << ranks.report(r).text;
    EXPECT_NE(std::strstr(ranks.report(r).text, "GANGWAY_NCCL_REGISTER stands for 1 on rank 0 and for 8192"),
              nullptr)
        << ranks.report(r).text;
  }
}

// Rank 1 frees its buffers later. Until both have, neither deregisters.
TEST(NcclRegistrations, RegistrationsEndTogether) {
  Processes ranks(2, [](int r, const std::shared_ptr<Store>& store, Report&) {
    {
      const GangPtr root = cuda_root(r, 2, store);
      Buffers first = allocate(root->registrable(), {4096, 8192}), second;
      root->register_memory(Channel::fsdp_gather, first, 0);
      run(*root, Channel::fsdp_gather, CollectiveOp::all_gather, first, DType::f32);
      if (r == 0) first.clear();
      root->release_memory();
      EXPECT_EQ(gpu_emulation::calls("ncclMemFree"), 0);
      second = allocate(root->registrable(), {4096, 8192});
      root->register_memory(Channel::fsdp_gather, second, 0);
      first.clear();
      root->release_memory();
      EXPECT_EQ(gpu_emulation::calls("ncclMemFree"), 2);
      run(*root, Channel::fsdp_gather, CollectiveOp::all_gather, second, DType::f32);
      root->device().stream().synchronize();
      root->shutdown(60'000);
    }
    expect_no_faults();
  });
  ranks.expect_all_well();
}

TEST(NcclRegistrations, ABufferThatIsHeldKeepsNoOtherOfItsBatch) {
  Processes ranks(2, [](int r, const std::shared_ptr<Store>& store, Report&) {
    {
      const GangPtr root = cuda_root(r, 2, store);
      Buffers buffers = allocate(root->registrable(), {4096, 8192, 4096});
      root->register_memory(Channel::fsdp_gather, buffers, 0);
      const std::shared_ptr<Buffer> held = r == 0 ? buffers[2] : nullptr;
      run(*root, Channel::fsdp_gather, CollectiveOp::all_gather, buffers, DType::f32);
      buffers.clear();
      root->release_memory();
      EXPECT_EQ(gpu_emulation::calls("ncclMemFree"), 2);
      root->shutdown(60'000);
    }
    expect_no_faults();
  });
  ranks.expect_all_well();
}

// NCCL 2.27 never uses the addresses of a window again. A communicator has as many as the device has memory.
TEST(NcclRegistrations, AnOldNcclThatRunsOutOfAddressesForWindowsRegistersWithoutThem) {
  Processes ranks(2, [](int r, const std::shared_ptr<Store>& store, Report&) {
    gpu_emulation::Settings settings = gpu_emulation::settings();
    settings.nccl = 22703;
    settings.memory = size_t{600} << 20;
    gpu_emulation::set(settings);
    {
      const GangPtr root = cuda_root(r, 2, store);
      for (int round = 0; round < 16; ++round) {
        Buffers buffers = allocate(root->registrable(), {4096, 8192});
        for (int i = 0; i < 20; ++i) buffers.push_back(Buffer::allocate(root->registrable(), 4096));
        root->register_memory(Channel::fsdp_gather, buffers, 0);
        EXPECT_TRUE(root->is_registered(buffers[0]->data())) << round;
        run(*root, Channel::fsdp_gather, CollectiveOp::all_gather, buffers, DType::f32);
        buffers.clear();
        root->release_memory();
      }
      root->shutdown(60'000);
    }
    EXPECT_EQ(gpu_emulation::calls("ncclCommWindowRegister"), 2 * 22);
    EXPECT_EQ(gpu_emulation::calls("ncclCommRegister"), 14 * 22);
    expect_no_faults();
  });
  ranks.expect_all_well();
}

// Buffers may outlive the gang, and the gang may end without a shutdown.
TEST(NcclRegistrations, BuffersOutliveTheirGang) {
  Processes ranks(2, [](int r, const std::shared_ptr<Store>& store, Report&) {
    {
      Buffers buffers;
      {
        const GangPtr root = cuda_root(r, 2, store);
        buffers = allocate(root->registrable(), {4096, 8192});
        root->register_memory(Channel::fsdp_gather, buffers, 0);
        run(*root, Channel::fsdp_gather, CollectiveOp::all_gather, buffers, DType::f32);
      }
      EXPECT_EQ(gpu_emulation::calls("ncclCommWindowRegister"), 2);
    }
    expect_no_faults();
  });
  ranks.expect_all_well();
}

// The kernel of rank 0 still uses registered memory when its peer dies. NCCL ends the registrations with the
// abort, and the memory is given back after it.
TEST(NcclRegistrations, MemoryIsGivenBackAfterAnAbort) {
  Processes ranks(2, [](int r, const std::shared_ptr<Store>& store, Report& report) {
    {
      const GangPtr root = cuda_root(r, 2, store);
      Buffers buffers = allocate(root->registrable(), {4096, 8192});
      root->register_memory(Channel::fsdp_gather, buffers, 0);
      run(*root, Channel::fsdp_gather, CollectiveOp::all_gather, buffers, DType::f32);
      root->device().stream().synchronize();
      report.stage = 1;
      if (r == 1)
        for (;;) pause();
      until_failure(report, [&] {
        run(*root, Channel::fsdp_gather, CollectiveOp::all_gather, buffers, DType::f32);
        root->device().stream().synchronize();
      });
    }
    expect_no_faults();
  });
  for (const int r : {0, 1}) ranks.wait_for_stage(r, 1);
  ranks.kill(1, SIGKILL);
  ASSERT_TRUE(ranks.ended_well(0)) << ranks.report(0).text;
  EXPECT_EQ(ranks.report(0).code, static_cast<int64_t>(Code::peer_lost)) << ranks.report(0).text;
}

// The largest relative error of a bf16 reduce-scatter against a sum in f64.
double error_of_bf16_sums(Gang& gang) {
  constexpr size_t kOwn = 2048;
  const auto size = static_cast<size_t>(gang.size());
  const Buffers buffers = allocate(gang.registrable(), {size * kOwn * 2, kOwn * 2});
  gang.register_memory(Channel::fsdp_reduce, buffers, 0);
  const auto input = [&](size_t rank, size_t i) {
    return to_bf16(static_cast<float>(std::sin(static_cast<double>(1 + i * 31 + rank * 7))) + 0.25f);
  };
  std::vector<bf16_t> mine;
  for (size_t i = 0; i < size * kOwn; ++i) mine.push_back(input(static_cast<size_t>(gang.rank()), i));
  write(gang.device(), buffers[0], mine);
  run(gang, Channel::fsdp_reduce, CollectiveOp::reduce_scatter, buffers, DType::bf16);
  const std::vector<bf16_t> sums = read<bf16_t>(gang.device(), buffers[1]);
  double worst = 0;
  for (size_t i = 0; i < kOwn; ++i) {
    double sum = 0;
    for (size_t r = 0; r < size; ++r)
      sum += static_cast<double>(to_f32(input(r, static_cast<size_t>(gang.rank()) * kOwn + i)));
    worst = std::max(worst, std::abs(static_cast<double>(to_f32(sums[i])) - sum) / std::abs(sum));
  }
  return worst;
}

// Between symmetric windows a sum is rounded once: its error is half a unit in the last place, 2^-9 of the
// next power of two and so at most 2^-8 of the sum. A ring also rounds at each hop before, and cancellation
// makes that large beside the sum.
TEST(NcclRegistrations, SumsOfBf16AreRoundedOnceInSymmetricWindows) {
  for (const bool windows : {true, false}) {
    Processes ranks(kRanks, [windows](int r, const std::shared_ptr<Store>& store, Report&) {
      gpu_emulation::Settings settings = gpu_emulation::settings();
      settings.nccl_windows = windows;
      settings.ring = true;
      gpu_emulation::set(settings);
      const GangPtr root = cuda_root(r, kRanks, store);
      const double error = error_of_bf16_sums(*root), once = std::ldexp(1.0, -8);
      EXPECT_EQ(error <= once * 1.001, windows) << error;
    });
    ranks.expect_all_well();
  }
}

struct Policy {
  const char* name;  // null: not set
  int version, expected;
  const char* log;  // null: none
};

TEST(NcclRegistrations, TheCtaPolicyIsWhatTheEnvironmentSaysAndThisNcclKnows) {
  for (const Policy& policy :
       {Policy{nullptr, 22800, NCCL_CTA_POLICY_EFFICIENCY, nullptr},
        Policy{"default", 22800, NCCL_CTA_POLICY_DEFAULT, nullptr},
        Policy{"zero", 22800, NCCL_CTA_POLICY_ZERO, nullptr},
        Policy{"zero", 22703, NCCL_CTA_POLICY_EFFICIENCY, "has no CTA policy zero"},
        Policy{nullptr, 22601, NCCL_CONFIG_UNDEF_INT, "GANGWAY_NCCL_CTA_POLICY = efficiency changes nothing"},
        Policy{"default", 22601, NCCL_CONFIG_UNDEF_INT, nullptr}}) {
    Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report&) {
      if (policy.name != nullptr) setenv("GANGWAY_NCCL_CTA_POLICY", policy.name, 1);
      gpu_emulation::Settings settings = gpu_emulation::settings();
      settings.nccl = policy.version;
      gpu_emulation::set(settings);
      const GangPtr root = cuda_root(r, 2, store);
      root->open(Channel::user);
      const auto of = reinterpret_cast<decltype(&gpu_emulation_cta_policy)>(
          dlsym(dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD), "gpu_emulation_cta_policy"));
      EXPECT_EQ(of(static_cast<ncclComm_t>(root->engine().native_handle())), policy.expected);
      const bool told = logged().find(policy.log == nullptr ? "CTA policy" : policy.log) != std::string::npos;
      EXPECT_EQ(told, policy.log != nullptr) << logged();
    });
    ranks.expect_all_well();
  }
}

}  // namespace
}  // namespace gangway::test
