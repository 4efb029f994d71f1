// Runs out of memory at every allocation: each call is repeated with its first, second, third ... allocation
// failing, until no allocation fails. The call returns OUT_OF_MEMORY, never crashes, and leaves its arguments
// usable.
#include <gangway/gangway.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <climits>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/out_of_memory.h"
#include "small.h"

namespace {

using gangway::test::allocations_left;
using gangway::test::one_fails;

std::string message() { return last_error().message; }

// Runs `call` until all its allocations succeed. Returns how many allocations failed before that.
long fail_each_allocation(const char* name, const std::function<gw_status()>& call) {
  for (long n = 0; n < 20000; ++n) {
    one_fails = true;
    allocations_left = n;
    const gw_status status = call();
    const bool failed = allocations_left < 0;
    allocations_left = -1;
    if (!failed) {
      EXPECT_EQ(status, GW_OK) << name << ": " << message();
      return n;
    }
    // A call that can do without the memory may succeed.
    if (status != GW_OK) {
      EXPECT_EQ(status, GW_E_OUT_OF_MEMORY) << name << ", allocation " << n << ": " << message();
      EXPECT_NE(message(), "") << name << ", allocation " << n;
    }
  }
  ADD_FAILURE() << name << " never succeeds";
  return 0;
}

TEST(Memory, CreatingAGangSurvivesEveryFailedAllocation) {
  EXPECT_GT(fail_each_allocation("gw_gang_create",
                                 [] {
                                   gw_gang* gang = nullptr;
                                   const gw_status status = gw_gang_create(nullptr, &gang);
                                   EXPECT_EQ(gang == nullptr, status != GW_OK);
                                   gw_gang_release(gang);
                                   return status;
                                 }),
            0);
}

// One of two ranks that meet by their own all-gather.
struct RankState {
  std::barrier<>& both;
  std::array<std::vector<char>, 2>& records;
  int32_t rank;
  int calls = 0;
  bool wanted = false;  // whether memory ran out before the all-gather
  gw_status status = GW_OK;
  std::string text = "";

  static gw_status gather(void* user, const void* input, size_t size, void* output) {
    RankState& state = *static_cast<RankState*>(user);
    ++state.calls;
    state.wanted = std::exchange(allocations_left, -1) <= 0;
    const char* const bytes = static_cast<const char*>(input);
    state.records[static_cast<size_t>(state.rank)].assign(bytes, bytes + size);
    state.both.arrive_and_wait();
    for (size_t r = 0; r < 2; ++r)
      std::copy(state.records[r].begin(), state.records[r].end(), static_cast<char*>(output) + r * size);
    state.both.arrive_and_wait();
    return GW_OK;
  }

  void create_gang(long allocations, bool no_more) {
    gw_gang_options o;
    gw_gang_options_init(&o, sizeof o);
    o.rank = rank;
    o.size = 2;
    o.timeout_ms = 60'000;
    o.threads = 1;
    o.arena_bytes = uint64_t{1} << 30;
    o.all_gather = gather;
    o.user = this;
    gw_gang* gang = nullptr;
    one_fails = !no_more;
    allocations_left = allocations;
    status = gw_gang_create(&o, &gang);
    allocations_left = -1;
    text = message();
    both.arrive_and_wait();  // the peer would take an earlier release for a lost rank
    gw_gang_release(gang);
  }
};

// Both ranks make a gang. Rank `poor` can make `allocations` allocations until it is in the all-gather.
// Returns whether that was enough.
bool gang_is_made(int32_t poor, long allocations, bool no_more) {
  std::barrier<> both(2);
  std::array<std::vector<char>, 2> records;
  RankState states[2] = {{both, records, 0}, {both, records, 1}};
  std::thread other([&] { states[1 - poor].create_gang(-1, false); });
  states[poor].create_gang(allocations, no_more);
  other.join();
  EXPECT_EQ(states[0].calls, 1) << "rank " << poor << ", allocation " << allocations;
  EXPECT_EQ(states[1].calls, 1) << "rank " << poor << ", allocation " << allocations;
  EXPECT_EQ(states[0].status, states[1].status) << "rank " << poor << ", allocation " << allocations << ": "
                                                << states[0].text << "; " << states[1].text;
  EXPECT_EQ(states[0].text, states[1].text);
  EXPECT_TRUE(states[0].status == GW_OK || states[0].status == GW_E_OUT_OF_MEMORY) << states[0].text;
  return !states[poor].wanted;
}

TEST(Memory, ARankWithoutMemoryStillTakesPartInTheCallersAllGather) {
  for (const int32_t poor : {0, 1})
    for (const bool no_more : {false, true}) {
      long n = 0;
      while (n < 2000 && !gang_is_made(poor, n, no_more)) ++n;
      EXPECT_GT(n, 1) << "a gang wants memory";
      EXPECT_LT(n, 2000);
    }
}

TEST(Memory, DescribingAModelSurvivesEveryFailedAllocation) {
  const gw_decoder_options o = small_llama();
  EXPECT_GT(fail_each_allocation("gw_decoder_create",
                                 [&] {
                                   gw_module* model = nullptr;
                                   const gw_status status = gw_decoder_create(&o, &model);
                                   EXPECT_EQ(model == nullptr, status != GW_OK);
                                   gw_module_release(model);
                                   return status;
                                 }),
            0);
}

TEST(Memory, ADatasetMayFailAnywhere) {
  const std::string path = "/tmp/gangway-memory-test-" + std::to_string(getpid()) + ".u8";
  std::ofstream(path) << "one.two.three.four.";
  gw_data_source source = with(gw_data_source_init);
  gw_dataset_options o = with(gw_dataset_options_init);
  source.path = path.c_str();
  o.sources = &source;
  o.source_count = 1;
  o.sequence = 4;
  gw_dataset* dataset = nullptr;
  for (const gw_packing packing : {GW_PACKING_STREAM, GW_PACKING_DOCUMENTS}) {
    o.packing = packing;
    o.document_end = packing == GW_PACKING_STREAM ? -1 : '.';
    for (o.read_ahead = 0; o.read_ahead < 2; ++o.read_ahead) {
      EXPECT_GT(fail_each_allocation("gw_dataset_create",
                                     [&] {
                                       gw_dataset_release(std::exchange(dataset, nullptr));
                                       return gw_dataset_create(&o, &dataset);
                                     }),
                0);
      gw_data_batch batch = with(gw_data_batch_init);
      int64_t taken = 0;  // a call that does without the memory succeeds, too
      EXPECT_GT(fail_each_allocation("gw_dataset_next",
                                     [&] {
                                       const gw_status status = gw_dataset_next(dataset, nullptr, 3, &batch);
                                       taken += status == GW_OK ? 3 : 0;
                                       return status;
                                     }),
                0);
      char text[1000];
      size_t size = 0;
      const auto position = [&] { return gw_dataset_position(dataset, text, sizeof text, &size); };
      EXPECT_GT(fail_each_allocation("gw_dataset_position", position), 0);
      EXPECT_GT(
          fail_each_allocation("gw_dataset_restore", [&] { return gw_dataset_restore(dataset, text, 0); }),
          0);
      int64_t rows = 0;
      EXPECT_EQ(gw_dataset_rows_taken(dataset, &rows), GW_OK);
      EXPECT_EQ(rows, taken);
    }
  }
  gw_dataset_release(dataset);
  for (const char* ending : {"", ".rows4-end46"}) std::filesystem::remove(path + ending);
}

TEST(Memory, CallsOnAGangSurviveEveryFailedAllocation) {
  gw_gang* gang = nullptr;
  gw_bytes* bytes = nullptr;
  gw_gang* other = nullptr;
  gw_work* work = nullptr;
  size_t size = 0;
  double sum = 0;
  float x[4] = {1, 2, 3, 4}, y[4] = {};
  // A failure in the middle of a call breaks the gang, so each try has a new gang.
  const auto call = [&](const char* name, const std::function<gw_status()>& body) {
    return fail_each_allocation(name, [&] {
      const long left = allocations_left;
      allocations_left = -1;
      EXPECT_EQ(gw_gang_create(nullptr, &gang), GW_OK);
      allocations_left = left;
      const gw_status status = body();
      if (allocations_left >= 0) allocations_left = LONG_MAX;
      gw_bytes_release(bytes);
      gw_gang_release(other);
      gw_work_release(work);
      gw_gang_release(gang);
      bytes = nullptr, other = nullptr, work = nullptr;
      return status;
    });
  };
  EXPECT_GT(call("gw_gang_split", [&] { return gw_gang_split(gang, 0, 0, &other); }), 0);
  EXPECT_GT(call("gw_gang_duplicate", [&] { return gw_gang_duplicate(gang, &other); }), 0);
  EXPECT_GT(call("gw_gang_all_gather_bytes",
                 [&] { return gw_gang_all_gather_bytes(gang, "abc", 3, &size, &bytes); }),
            0);
  EXPECT_GT(
      call("gw_gang_broadcast_bytes", [&] { return gw_gang_broadcast_bytes(gang, "abc", 3, 0, &bytes); }), 0);
  // These may need no memory.
  call("gw_gang_all_sum", [&] { return gw_gang_all_sum(gang, 1, &sum); });
  call("gw_gang_all_reduce", [&] { return gw_gang_all_reduce(gang, x, y, 4, GW_F32, GW_SUM, nullptr); });
  call("gw_gang_all_reduce_async", [&] {
    const gw_status status = gw_gang_all_reduce_async(gang, x, y, 4, GW_F32, GW_SUM, nullptr, &work);
    return status != GW_OK ? status : gw_work_wait(work, -1);
  });
  call("gw_gang_flight_record", [&] { return gw_gang_flight_record(gang, nullptr, 0, &size); });
}

struct Training {
  gw_gangs* gangs = nullptr;
  gw_module* model = nullptr;
  gw_optimizer* opt = nullptr;
  small_batch small;
  const gw_batch& batch = small.batch;
  gw_step_result result = with(gw_step_result_init);

  explicit Training(bool whole) {
    const gw_decoder_options o = small_llama();
    EXPECT_EQ(gw_gangs_create(nullptr, nullptr, &gangs), GW_OK);
    EXPECT_EQ(gw_decoder_create(&o, &model), GW_OK);
    if (!whole) return;
    EXPECT_EQ(gw_parallelize(model, gangs, nullptr), GW_OK);
    EXPECT_EQ(gw_adamw_create(model, nullptr, &opt), GW_OK);
    fill_batch(&small, 2, 0);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  ~Training() {
    gw_optimizer_release(opt);
    gw_module_release(model);
    gw_gangs_release(gangs);
  }
};

// Likewise for a call that may break its gang: each try has new objects.
long fail_each_allocation_anew(const char* name, bool whole,
                               const std::function<gw_status(Training&)>& call) {
  return fail_each_allocation(name, [&] {
    const long left = allocations_left;
    allocations_left = -1;
    Training training(whole);
    allocations_left = left;
    const gw_status status = call(training);
    if (allocations_left >= 0)
      // No allocation has failed, and none may fail while `training` is destroyed.
      allocations_left = LONG_MAX;
    return status;
  });
}

TEST(Memory, TrainingStepsSurviveEveryFailedAllocation) {
  EXPECT_GT(fail_each_allocation_anew("gw_parallelize", false,
                                      [](Training& t) { return gw_parallelize(t.model, t.gangs, nullptr); }),
            0);
  EXPECT_GT(fail_each_allocation_anew(
                "gw_eval_step", true,
                [](Training& t) { return gw_eval_step(t.model, &t.batch, nullptr, nullptr, &t.result); }),
            0);
  EXPECT_GT(
      fail_each_allocation_anew(
          "gw_train_step", true,
          [](Training& t) { return gw_train_step(t.model, t.opt, &t.batch, nullptr, nullptr, &t.result); }),
      0);
}

gw_status forward_and_backward(Training& t) {
  const gw_view inputs[2] = {t.small.input, t.small.input};
  gw_frame* frame = nullptr;
  gw_tensor* out[2] = {};
  size_t count = 0;
  gw_status status = gw_frame_create(t.model, nullptr, &frame);
  if (status == GW_OK) status = gw_module_forward(t.model, inputs, 2, frame, nullptr, out, 2, &count);
  if (status == GW_OK) {
    gw_tensor* none[2] = {};
    status = gw_module_backward(t.model, nullptr, 0, frame, nullptr, none, 2, &count);
    for (gw_tensor* tensor : none) gw_tensor_release(tensor);
  }
  for (gw_tensor* tensor : out) gw_tensor_release(tensor);
  gw_frame_release(frame);
  return status;
}

gw_status use_shard_group(Training& t) {
  gw_parameter_options p;
  gw_parameter_options_init(&p, sizeof p);
  p.name = "w";
  p.ndim = 1;
  p.dims[0] = 3;
  const float ones[3] = {1, 1, 1};
  const int64_t shape[1] = {3};
  gw_view gradient, view;
  gw_view_set(&gradient, const_cast<float*>(ones), shape, 1, GW_F32);
  gw_shard_group* group = nullptr;
  gw_tensor* tensor = nullptr;
  gw_status status = gw_shard_group_create(t.gangs, "g", &p, 1, nullptr, 1, &group);
  if (status == GW_OK) status = gw_shard_group_unshard(group, nullptr, nullptr);
  if (status == GW_OK) status = gw_shard_group_view(group, 0, GW_PART_FULL_VALUE, &view);
  if (status == GW_OK) status = gw_shard_group_tensor(group, 0, GW_PART_FULL_VALUE, &tensor);
  if (status == GW_OK) status = gw_shard_group_add_gradient(group, 0, &gradient, nullptr);
  if (status == GW_OK) status = gw_shard_group_reshard(group, nullptr);
  if (status == GW_OK) status = gw_shard_group_reduce(group, nullptr);
  gw_tensor_release(tensor);
  gw_shard_group_release(group);
  return status;
}

TEST(Memory, ManualComputeSurvivesEveryFailedAllocation) {
  EXPECT_GT(fail_each_allocation_anew("forward and backward", true, forward_and_backward), 0);
  EXPECT_GT(fail_each_allocation_anew("shard group", false, use_shard_group), 0);
}

TEST(Memory, SavingAndLoadingSurviveEveryFailedAllocation) {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("gangway-memory-" + std::to_string(getpid()));
  // A failure in the middle of a save breaks the gang, because peers wait for this rank.
  EXPECT_GT(fail_each_allocation_anew(
                "gw_module_save", true,
                [&](Training& t) { return gw_module_save(t.model, folder.c_str(), nullptr); }),
            0);
  Training t(true);
  ASSERT_EQ(gw_module_save(t.model, folder.c_str(), nullptr), GW_OK) << message();
  EXPECT_GT(fail_each_allocation("gw_module_load",
                                 [&] { return gw_module_load(t.model, folder.c_str(), nullptr); }),
            0);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(gw_train_step(t.model, t.opt, &t.batch, nullptr, nullptr, &t.result), GW_OK) << message();
}

}  // namespace
