// The folder of a run: what is complete, what is removed, and who may write.
#include "checkpoint/run/run_folder.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <thread>

#include "base/expect_error.h"
#include "checkpoint/file_calls.h"
#include "checkpoint/folders.h"
#include "checkpoint/run/small_checkpoint.h"
#include "checkpoint/run/take_lease.h"

namespace gangway::test {
namespace {

using Steps = std::vector<int64_t>;
using Names = std::vector<std::string>;

// Saves a checkpoint whose files say `text`.
void save(RunFolder& run, int64_t step, const std::string& text) {
  const std::string writing = run.begin(step);
  write_file(writing, "config.json", text);
  write_file(writing, "teacher/config.json", text);
  write_file(writing, kStateName, text);
  run.commit(step, writing);
}
std::string text_of(const RunFolder& run, int64_t step) {
  const std::string folder = run.path_of(step);
  const std::string text = read_all(folder + "/config.json");
  EXPECT_EQ(read_all(folder + "/teacher/config.json"), text);
  EXPECT_EQ(read_all(folder + "/state.json"), text);
  return text;
}

class Run : public ::testing::Test {
 protected:
  ~Run() override { set_before_call(nullptr); }

  Names names() const { return sorted_names(path_); }
  void put(const std::string& name) { std::filesystem::create_directories(path_ + "/" + name); }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/a/run";
};

TEST_F(Run, IsMadeWithItsParentsAndHasNoSteps) {
  const RunFolder run(path_ + "/");
  EXPECT_TRUE(run.steps().empty());
  EXPECT_EQ(run.path_of(500), path_ + "/step-00000500");
  EXPECT_EQ(run.path_of(0), path_ + "/step-00000000");
  EXPECT_EQ(run.path_of(1234567890123), path_ + "/step-1234567890123");
}

TEST_F(Run, StepsAreThoseOfCompleteCheckpoints) {
  for (const char* name : {"step-00000500", "step-00000000", "step-00000030", "step-123456789", "step-500",
                           "step-000000501", "step-00000x00", "step--0000500", "step-00000500-old",
                           ".writing-600-1a2b3c4d", "aside-20260101T000000Z-00000900", "step-", "logs"})
    put(name);
  write_all(path_ + "/step-00000077", "a file");
  EXPECT_EQ(RunFolder(path_).steps(), (Steps{0, 30, 500, 123456789}));
}

TEST_F(Run, ACommitMakesASaveVisible) {
  RunFolder run(path_);
  take_lease(run, "a");
  const std::string writing = run.begin(7);
  EXPECT_EQ(writing.rfind(path_ + "/.writing-7-", 0), 0u) << writing;
  write_file(writing, "config.json", "x");
  EXPECT_EQ(error_of([&] { run.commit(7, writing); }).code(), Code::invalid_state)
      << "there is no state.json";
  EXPECT_TRUE(run.steps().empty());
  write_file(writing, "teacher/config.json", "x");
  write_file(writing, kStateName, "x");
  run.commit(7, writing);
  EXPECT_EQ(run.steps(), Steps{7});
  EXPECT_EQ(text_of(run, 7), "x");
  EXPECT_EQ(names(), (Names{".lease", "step-00000007"}));
}

TEST_F(Run, ASaveRemovesWhatKilledSavesLeftAndNothingElse) {
  RunFolder run(path_);
  take_lease(run, "a");
  for (const char* name : {".writing-7-00000000/teacher", ".removed-5-00000001", "logs", ".writing-notes"})
    put(name);
  write_all(path_ + "/.writing-7-00000000/teacher/model.safetensors", "x");
  write_all(path_ + "/metrics.jsonl", "x");
  run.abandon(run.begin(8));
  EXPECT_EQ(names(), (Names{".lease", ".writing-notes", "logs", "metrics.jsonl"}));
}

TEST_F(Run, ACheckpointOfTheSameStepIsReplaced) {
  RunFolder run(path_);
  take_lease(run, "a");
  save(run, 5, "old");
  save(run, 5, "new");
  EXPECT_EQ(text_of(run, 5), "new");
  // A file system without an exchange of names.
  int exchanges = 0;
  set_before_call([&](const std::string& call, int64_t) {
    if (call != "renameat2") return 0;
    ++exchanges;
    return EINVAL;
  });
  save(run, 5, "newer");
  EXPECT_EQ(exchanges, 1);
  EXPECT_EQ(text_of(run, 5), "newer");
  EXPECT_EQ(names(), (Names{".lease", "step-00000005"}));
}

TEST_F(Run, OnlyTheNewestAreKept) {
  RunFolder run(path_);
  take_lease(run, "a");
  for (const int64_t step : {3, 100, 20}) save(run, step, "x");
  run.remove_old(0);
  run.remove_old(-1);
  run.remove_old(3);
  run.remove_old(4);
  EXPECT_EQ(run.steps(), (Steps{3, 20, 100}));
  run.remove_old(1);
  EXPECT_EQ(run.steps(), Steps{100});
  EXPECT_EQ(names(), (Names{".lease", "step-00000100"}));
}

// A checkpoint whose optimizer has made so many steps.
void save_after(RunFolder& run, int64_t step, int64_t optimizer_steps) {
  const std::string writing = run.begin(step);
  CheckpointState state;
  state.step = step;
  state.optimizers[""].kind = "adamw";
  state.optimizers[""].steps = optimizer_steps;
  write_file(writing, kStateName, to_json(state));
  run.commit(step, writing);
}

TEST_F(Run, CheckpointsWithoutAStepBetweenCountOnce) {
  RunFolder run(path_);
  take_lease(run, "a");
  save_after(run, 5, 5);
  save_after(run, 10, 10);
  for (const int64_t step : {15, 20, 25}) {
    save_after(run, step, 11);  // the steps from 12 on were skipped
    run.remove_old(2);
  }
  EXPECT_EQ(run.steps(), (Steps{10, 15, 25})) << "the oldest of those that are alike stays, too";
  save_after(run, 30, 12);
  run.remove_old(2);
  EXPECT_EQ(run.steps(), (Steps{15, 25, 30}));
}

TEST_F(Run, NewerCheckpointsAreMovedAside) {
  RunFolder run(path_);
  take_lease(run, "a");
  for (const int64_t step : {10, 20, 30}) save(run, step, std::to_string(step));
  EXPECT_TRUE(run.move_aside_newer_than(30).empty());
  const Names moved = run.move_aside_newer_than(10);
  EXPECT_EQ(run.steps(), Steps{10});
  ASSERT_EQ(moved.size(), 2u);
  EXPECT_EQ(moved[0].rfind(path_ + "/aside-2", 0), 0u);
  EXPECT_TRUE(moved[0].ends_with("Z-00000020")) << moved[0];
  EXPECT_EQ(read_all(moved[1] + "/config.json"), "30");
  // The same step once more in the same second.
  for (int again = 0; again < 3; ++again) {
    save(run, 20, "again");
    ASSERT_EQ(run.move_aside_newer_than(10).size(), 1u);
  }
  EXPECT_EQ(names().size(), 1 + 1 + 5u);
}

TEST_F(Run, WithoutALeaseNothingIsChanged) {
  RunFolder run(path_);
  const auto refuses = [&](auto&& call) {
    expect_error(Code::invalid_state, "run: " + path_ + ": take the lease first", call);
  };
  put("step-00000005");
  put(".writing-6-00000000");
  write_all(path_ + "/.writing-6-00000000/state.json", "x");
  refuses([&] { run.begin(6); });
  refuses([&] { run.commit(6, path_ + "/.writing-6-00000000"); });
  refuses([&] { run.remove_old(1); });
  refuses([&] { run.move_aside_newer_than(0); });
  refuses([&] { run.renew_lease(); });
  EXPECT_EQ(names(), (Names{".writing-6-00000000", "step-00000005"}));
}

void expect_io(const Error& error, int system_error, const std::string& path) {
  EXPECT_EQ(error.code(), Code::io) << error.message();
  EXPECT_EQ(error.system_error, system_error) << error.message();
  EXPECT_NE(error.message().find(path), std::string::npos) << error.message();
  EXPECT_EQ(error.path.rfind(path, 0), 0u) << error.path;
}

TEST_F(Run, AFolderThatVanishedIsIo) {
  RunFolder run(path_);
  take_lease(run, "a");
  save(run, 5, "x");
  const std::string writing = run.begin(6);
  write_file(writing, kStateName, "x");
  std::filesystem::rename(path_, path_ + "-moved");
  expect_io(error_of([&] { run.commit(6, writing); }), ENOENT, path_);
  expect_io(error_of([&] { run.begin(7); }), ENOENT, path_);
  expect_io(error_of([&] { run.steps(); }), ENOENT, path_);
  expect_io(error_of([&] { run.renew_lease(); }), ENOENT, path_);
  expect_io(error_of([&] { run.remove_old(1); }), ENOENT, path_);
  run.abandon(writing);
  EXPECT_FALSE(std::filesystem::exists(path_)) << "it is not made again";
  EXPECT_EQ(RunFolder(path_ + "-moved").steps(), Steps{5});
}

TEST_F(Run, AFileInThePlaceOfTheFolderIsIo) {
  std::filesystem::create_directories(folder_.path() + "/a");
  write_all(path_, "x");
  expect_io(error_of([&] { RunFolder run(path_); }), ENOTDIR, path_);
  expect_io(error_of([&] { RunFolder run(path_ + "/below"); }), ENOTDIR, path_);
}

// A file system of its own for a thread and those that it starts.
bool mount_small(const std::string& folder, const char* options) {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", folder.c_str(), "tmpfs", 0, options) == 0;
}

TEST_F(Run, AFullDiskIsIoAndTheOlderCheckpointStays) {
  bool mounted = false;
  std::thread([&] {
    std::filesystem::create_directories(path_);
    if (!(mounted = mount_small(path_, "size=64k"))) return;
    RunFolder run(path_);
    take_lease(run, "a");
    save(run, 1, "x");
    const std::string writing = run.begin(2);
    const TensorSetPlan plan("model", {{"w", DType::f32, {100, 256}}}, 0, {});
    expect_io(error_of([&] { create_files(plan, writing); }), ENOSPC, writing);
    expect_io(error_of([&] { write_file(writing, "large", std::string(100'000, 'x')); }), ENOSPC, writing);
    run.abandon(writing);
    EXPECT_EQ(run.steps(), Steps{1});
    EXPECT_EQ(text_of(run, 1), "x");
    save(run, 3, "y");
    EXPECT_EQ(run.steps(), (Steps{1, 3}));
  }).join();
  if (!mounted) GTEST_SKIP() << "this user may not mount a file system";
}

TEST_F(Run, AReadOnlyFolderIsIoAndTheOlderCheckpointStays) {
  bool mounted = false;
  std::thread([&] {
    std::filesystem::create_directories(path_);
    if (!(mounted = mount_small(path_, "size=64k"))) return;
    RunFolder run(path_);
    take_lease(run, "a");
    save(run, 1, "x");
    const std::string writing = run.begin(2);
    write_file(writing, kStateName, "x");
    ASSERT_EQ(mount("none", path_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
    expect_io(error_of([&] { run.commit(2, writing); }), EROFS, path_);
    expect_io(error_of([&] { run.begin(3); }), EROFS, path_);
    expect_io(error_of([&] { write_file(writing, "more", "x"); }), EROFS, path_);
    expect_io(error_of([&] { run.renew_lease(); }), EROFS, path_);
    RunFolder other(path_);
    expect_io(error_of([&] { take_lease(other, "b"); }), EROFS, path_);
    EXPECT_EQ(other.steps(), Steps{1});
    EXPECT_EQ(text_of(other, 1), "x");
  }).join();
  if (!mounted) GTEST_SKIP() << "this user may not mount a file system";
}

// SIGXFSZ is as it was at start: it would end the process.
TEST_F(Run, AFileOverTheLimitOfFileSizesIsIo) {
  const TensorSetPlan plan("model", {{"w", DType::f32, {100, 256}}}, 0, {});
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{1000, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Error error = error_of([&] { create_files(plan, path_); });
  setrlimit(RLIMIT_FSIZE, &old);
  expect_io(error, EFBIG, path_);
  EXPECT_EQ(error.message().rfind("save: reserving ", 0), 0u) << error.message();
}

}  // namespace
}  // namespace gangway::test
