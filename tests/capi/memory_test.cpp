// Want of memory at any place: each call is repeated with its first, second, third ... allocation failing,
// until none is left to fail. It says OUT_OF_MEMORY, crashes nowhere, and what it was given works on.
#include <gangway/gangway.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <string>

namespace {

// The thread's allocations that still succeed before one fails; below 0: all do.
thread_local int64_t succeed = -1;

void* allocate(size_t size, size_t alignment) {
  if (succeed >= 0 && succeed-- == 0) throw std::bad_alloc();
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, size) != 0)
    throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new[](size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(size_t size, std::align_val_t a) { return allocate(size, static_cast<size_t>(a)); }
void* operator new[](size_t size, std::align_val_t a) { return allocate(size, static_cast<size_t>(a)); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return allocate(size, alignof(std::max_align_t));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

std::string message() {
  gw_error_info info;
  gw_error_info_init(&info, sizeof info);
  gw_last_error(&info);
  return info.message;
}

// Runs `call` until all its allocations succeed; returns how many failed one after the other.
int64_t starve(const char* name, const std::function<gw_status()>& call) {
  for (int64_t n = 0; n < 20000; ++n) {
    succeed = n;
    const gw_status status = call();
    const bool failed = succeed < 0;
    succeed = -1;
    if (!failed) {
      EXPECT_EQ(status, GW_OK) << name << ": " << message();
      return n;
    }
    // A place that can do without memory goes on.
    if (status != GW_OK) {
      EXPECT_EQ(status, GW_E_OUT_OF_MEMORY) << name << ", allocation " << n << ": " << message();
      EXPECT_NE(message(), "") << name << ", allocation " << n;
    }
  }
  ADD_FAILURE() << name << " never succeeds";
  return 0;
}

gw_llama_options small() {
  gw_llama_options o;
  gw_llama_options_init(&o, sizeof o);
  o.vocab = 11;
  o.dim = 8;
  o.layers = 1;
  o.heads = 2;
  o.ffn = 16;
  o.max_positions = 16;
  return o;
}

TEST(Memory, MakingAGangMayFailAnywhere) {
  EXPECT_GT(starve("gw_gang_create",
                   [] {
                     gw_gang* gang = nullptr;
                     const gw_status status = gw_gang_create(nullptr, &gang);
                     EXPECT_EQ(gang == nullptr, status != GW_OK);
                     gw_gang_release(gang);
                     return status;
                   }),
            0);
}

TEST(Memory, DescribingAModelMayFailAnywhere) {
  const gw_llama_options o = small();
  EXPECT_GT(starve("gw_llama_create",
                   [&] {
                     gw_module* model = nullptr;
                     const gw_status status = gw_llama_create(&o, &model);
                     EXPECT_EQ(model == nullptr, status != GW_OK);
                     gw_module_release(model);
                     return status;
                   }),
            0);
}

struct Training {
  gw_gangs* gangs = nullptr;
  gw_module* model = nullptr;
  gw_optimizer* opt = nullptr;
  int64_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8}, shape[2] = {2, 4};
  gw_view view;
  gw_batch batch;
  gw_step_result result;

  explicit Training(bool whole) {
    const gw_llama_options o = small();
    EXPECT_EQ(gw_gangs_create(nullptr, nullptr, &gangs), GW_OK);
    EXPECT_EQ(gw_llama_create(&o, &model), GW_OK);
    if (!whole) return;
    EXPECT_EQ(gw_parallelize(model, gangs, nullptr), GW_OK);
    EXPECT_EQ(gw_adamw_create(model, nullptr, &opt), GW_OK);
    gw_view_set(&view, tokens, shape, 2, GW_I64);
    gw_batch_init(&batch, sizeof batch);
    batch.inputs = batch.targets = &view;
    batch.input_count = batch.target_count = 1;
    gw_step_result_init(&result, sizeof result);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  ~Training() {
    gw_optimizer_release(opt);
    gw_module_release(model);
    gw_gangs_release(gangs);
  }
};

// A call that may break the gang has one of its own each time.
int64_t starve_anew(const char* name, bool whole, const std::function<gw_status(Training&)>& call) {
  return starve(name, [&] {
    const int64_t left = succeed;
    succeed = -1;
    Training training(whole);
    succeed = left;
    const gw_status status = call(training);
    if (succeed >= 0) succeed = INT64_MAX;  // none has failed: none shall while the training goes
    return status;
  });
}

TEST(Memory, TheStepsOfATrainingMayFailAnywhere) {
  EXPECT_GT(starve_anew("gw_parallelize", false,
                        [](Training& t) { return gw_parallelize(t.model, t.gangs, nullptr); }),
            0);
  EXPECT_GT(
      starve_anew("gw_eval_step", true,
                  [](Training& t) { return gw_eval_step(t.model, &t.batch, nullptr, nullptr, &t.result); }),
      0);
  EXPECT_GT(starve_anew("gw_train_step", true,
                        [](Training& t) {
                          return gw_train_step(t.model, t.opt, &t.batch, nullptr, nullptr, &t.result);
                        }),
            0);
}

TEST(Memory, FilesMayFailAnywhere) {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("gangway-memory-" + std::to_string(getpid()));
  // In the middle of a save the gang breaks, as peers wait for this rank.
  EXPECT_GT(starve_anew("gw_module_save", true,
                        [&](Training& t) { return gw_module_save(t.model, folder.c_str(), nullptr); }),
            0);
  Training t(true);
  ASSERT_EQ(gw_module_save(t.model, folder.c_str(), nullptr), GW_OK) << message();
  EXPECT_GT(starve("gw_module_load", [&] { return gw_module_load(t.model, folder.c_str(), nullptr); }), 0);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(gw_train_step(t.model, t.opt, &t.batch, nullptr, nullptr, &t.result), GW_OK) << message();
}

}  // namespace
