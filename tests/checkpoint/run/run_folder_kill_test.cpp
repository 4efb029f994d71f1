// Saves of a run that are killed, or fail, at each of their system calls: the folder has the old list of
// complete checkpoints or the new one, and each of them is whole.
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <new>

#include "base/error_of.h"
#include "checkpoint/file_calls.h"
#include "checkpoint/folders.h"
#include "checkpoint/run/run_folder.h"
#include "checkpoint/run/small_checkpoint.h"
#include "checkpoint/run/take_lease.h"

namespace gangway::test {
namespace {

using Steps = std::vector<int64_t>;

constexpr int kOld = 1, kNew = 2;  // seeds of values

void save(RunFolder& run, int64_t step, int seed) {
  const std::string writing = run.begin(step);
  try {
    CheckpointState state;
    state.step = step;
    state.tokens = seed;
    state.files = write_set(writing, "model", {{"w", DType::f32, {5, 3}}}, 0, seed, 2);
    state.files.insert(state.files.begin(), write_file(writing, "config.json", std::to_string(seed)));
    write_file(writing, kStateName, to_json(state));
    run.commit(step, writing);
  } catch (...) {
    run.abandon(writing);
    throw;
  }
}

// Returns the seed that all of a checkpoint was written with.
int64_t seed_of(const std::string& folder) {
  verify_all(folder, 1);
  const int64_t seed = read_state(folder).tokens;
  EXPECT_EQ(read_all(folder + "/config.json"), std::to_string(seed));
  return seed;
}

// What the process that saves tells the test.
struct Report {
  std::atomic<int> calls;
  std::atomic<int> code;
  std::atomic<int> system_error;
};

class Interrupted : public ::testing::Test {
 protected:
  Interrupted()
      : report_(new (mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                    Report) {}
  ~Interrupted() override { munmap(report_, sizeof(Report)); }

  // In a process of its own: saves `step`, keeps two checkpoints, and does `at_call` at its n-th system call
  // that changes a file. Returns whether it had so many.
  bool save_until(const std::string& path, int64_t step, int n, bool exchange, int (*at_call)()) {
    report_->calls = 0;
    report_->code = -1;
    const pid_t child = fork();
    if (child == 0) {
      set_before_call([&](const std::string& call, int64_t) {
        if (call == "pread") return 0;
        if (report_->calls++ == n) return at_call();
        return call == "renameat2" && !exchange ? EINVAL : 0;
      });
      const Error error = error_of([&] {
        RunFolder run(path);
        take_lease(run, "child");
        save(run, step, kNew);
        run.remove_old(2);
        run.give_back_lease();
      });
      report_->code = static_cast<int>(error.code());
      report_->system_error = error.system_error;
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : status == 0) << status;
    return report_->calls > n;
  }

  void at_each_call(int64_t step, bool exchange, int (*at_call)(), bool readers_see_all) {
    int n = 0;
    for (bool more = true; more; ++n) {
      ASSERT_LT(n, 200);
      const TemporaryFolder folder;
      {
        RunFolder run(folder.path());
        take_lease(run, "test");
        for (const int64_t old : {400, 500}) save(run, old, kOld);
      }
      more = save_until(folder.path(), step, n, exchange, at_call);
      if (report_->code > 0) {
        EXPECT_EQ(report_->code, static_cast<int>(Code::io));
        EXPECT_EQ(report_->system_error, EIO);
      }
      if (readers_see_all) expect_old_or_new(folder.path(), step, n);
      RunFolder next(folder.path());
      take_lease(next, "next", 1e9);  // the holder has ended
      expect_old_or_new(folder.path(), step, n);
      save(next, 700, kOld);
      next.remove_old(1);
      next.give_back_lease();
      std::vector<std::string> names = sorted_names(folder.path());
      // What a process leaves that is killed while it takes the lease goes when it is old.
      std::erase_if(names, [](const std::string& name) { return name.starts_with(".lease-"); });
      EXPECT_EQ(names, std::vector<std::string>{"step-00000700"}) << "call " << n;
    }
    EXPECT_GT(n, 20);
  }

  static void expect_old_or_new(const std::string& path, int64_t step, int n) {
    const RunFolder run(path);
    const Steps steps = run.steps();
    const Steps old = {400, 500}, added = {400, 500, 600}, kept = {500, 600};
    EXPECT_TRUE(steps == old || (step == 600 && (steps == added || steps == kept))) << "call " << n;
    for (const int64_t found : steps) {
      const int64_t seed = seed_of(run.path_of(found));
      EXPECT_TRUE(seed == kOld || (seed == kNew && found == step)) << "step " << found << ", call " << n;
    }
  }

  Report* const report_;
};

int be_killed() { return raise(SIGKILL); }
int fail_io() { return EIO; }

TEST_F(Interrupted, AKilledSaveLeavesTheOldListOrTheNew) { at_each_call(600, true, be_killed, true); }
TEST_F(Interrupted, AKilledSaveOfTheSameStepLeavesTheOldCheckpointOrTheNew) {
  at_each_call(500, true, be_killed, true);
}
// Without an exchange of names, the next holder of the lease puts the old checkpoint back.
TEST_F(Interrupted, WithoutAnExchangeTheNextLeaseFindsTheOldCheckpointOrTheNew) {
  at_each_call(500, false, be_killed, false);
}
TEST_F(Interrupted, ACallThatFailsIsIoAndLeavesTheOldListOrTheNew) { at_each_call(600, true, fail_io, true); }
TEST_F(Interrupted, ACallThatFailsInAReplacementLeavesTheOldCheckpointOrTheNew) {
  at_each_call(500, false, fail_io, true);
}

}  // namespace
}  // namespace gangway::test
