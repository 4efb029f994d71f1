// 10,000 rounds of making and releasing each type of handle leave as many allocations as before, and call the
// caller's free function exactly once per round.
#include "lifetime.hpp"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>

using namespace lifetime;

namespace {

void* allocate(size_t size, size_t alignment) {
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), size) != 0) throw std::bad_alloc();
  ++live;
  return memory;
}
void give_back(void* memory) {
  live -= memory != nullptr;
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new[](size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(size_t size, std::align_val_t a) { return allocate(size, static_cast<size_t>(a)); }
void* operator new[](size_t size, std::align_val_t a) { return allocate(size, static_cast<size_t>(a)); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, alignof(std::max_align_t));
}
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { give_back(memory); }

namespace {

constexpr int kRounds = 10000, kWarm = 100;

// The number of open descriptors of this process.
ptrdiff_t descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}
// The bytes that malloc has given out; 0 if a sanitizer replaces malloc.
size_t heap() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// `frees`: the number of free functions that a round calls.
void rounds(const char* type, int frees, const std::function<void()>& round, int count = kRounds) {
  for (int i = 0; i < kWarm; ++i) round();
  freed = 0;
  const ptrdiff_t opened = descriptors();
  const int64_t before = live;
  const size_t heap_before = heap();
  for (int i = 0; i < count; ++i) round();
  EXPECT_LT(live, before + 5) << type;               // a queue may have one more block
  EXPECT_LE(heap(), heap_before + kRounds) << type;  // one byte per round
  EXPECT_EQ(descriptors(), opened) << type;
  EXPECT_EQ(freed, frees * count) << type;
}

TEST(Lifetime, TenThousandRoundsOfEveryHandleLeaveNoAllocation) {
  const int64_t none = live;
  gw_gang* gang = make_gang();
  ASSERT_GT(live, none) << "the library's allocations are not counted";
  gw_gangs* gangs = make_gangs(gang);
  gw_module* model = make_model(gangs);
  gw_parameter* parameter = make_parameter(model);
  rounds("gw_error", 0, [] {
    gw_gang_barrier(nullptr, nullptr);
    gw_error* error = gw_error_take();
    gw_error_release(gw_error_retain(error));
    gw_error_release(error);
  });
  rounds("gw_store", 1, [] { gw_store_release(make_store()); });
  rounds("gw_gang", 0, [] { gw_gang_release(make_gang()); });
  rounds("gw_gang, fake", 0, [] {
    gw_gang* fake = nullptr;
    ok(gw_gang_create_fake(1, 4, nullptr, &fake));
    gw_gang_release(fake);
  });
  rounds(
      "gw_gang, of threads", 0,
      [] {
        gw_gang* ranks[2] = {};
        gw_gang_options o = with(gw_gang_options_init);
        o.threads = 1;
        o.arena_bytes = uint64_t{1} << 30;
        ok(gw_gang_create_threads(2, &o, ranks));
        for (gw_gang* rank : ranks) gw_gang_release(rank);
      },
      200);  // few rounds, because each makes an arena
  rounds("gw_gang, duplicate", 0, [&] {
    gw_gang* other = nullptr;
    ok(gw_gang_duplicate(gang, &other));
    gw_gang_release(other);
  });
  rounds("gw_work", 1, [&] { gw_work_release(make_work(gang)); });
  rounds("gw_bytes", 0, [&] { gw_bytes_release(make_bytes(gang)); });
  rounds("gw_gangs", 0, [&] { gw_gangs_release(make_gangs(gang)); });
  rounds("gw_module, described", 2, [] { gw_module_release(make_custom()); });
  rounds("gw_module, in memory", 2, [&] { gw_module_release(make_model(gangs)); });
  rounds("gw_optimizer", 0, [&] { gw_optimizer_release(make_optimizer(model)); });
  rounds("gw_frame", 1, [&] { gw_frame_release(make_frame(model)); });
  rounds("gw_parameter", 0, [&] { gw_parameter_release(make_parameter(model)); });
  rounds("gw_shard_group", 1, [&] { gw_shard_group_release(make_group(gangs)); });
  std::ofstream("/tmp/gangway-life-test.u8") << "tokens";
  rounds("gw_dataset", 0, [] { gw_dataset_release(make_dataset("/tmp/gangway-life-test.u8", false)); });
  rounds(
      "gw_dataset, with its thread", 0,
      [] { gw_dataset_release(make_dataset("/tmp/gangway-life-test.u8", true)); }, 500);
  std::filesystem::remove("/tmp/gangway-life-test.u8");
  rounds("gw_tensor, a part", 0, [&] { gw_tensor_release(make_value(parameter)); });
  rounds("gw_tensor, taken", 1, [] { gw_tensor_release(take_tensor()); });
  char folder[] = "/tmp/gangway-life-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  // Few rounds, because each starts a thread.
  rounds(
      "gw_checkpoints", 0, [&] { gw_checkpoints_release(make_checkpoints(gangs, folder)); }, 200);
  std::filesystem::remove_all(folder);
  rounds("a gang's memory", 0, [&] {
    void* memory = nullptr;
    ok(gw_gang_alloc(gang, 4096, &memory));
    gw_gang_free(nullptr, memory);
  });
  gw_parameter_release(parameter);
  gw_module_release(model);
  gw_gangs_release(gangs);
  gw_gang_release(gang);
}

}  // namespace
