// A save that fails is told to all ranks, and breaks nothing but itself.
#include <cerrno>
#include <set>

#include "checkpoint/file_calls.h"
#include "checkpoint/run/run_testing.h"

namespace gangway::test {
namespace {

RunCase on_ranks(int ranks) {
  RunCase c;
  c.mesh.shards = ranks;
  return c;
}

// While it exists, the writes of a save fail from the n-th on.
class FullDisk {
 public:
  FullDisk(Gang& root, int writes) : root_(root) {
    root.barrier();
    if (root.rank() == 0)
      set_before_call([left = std::make_shared<std::atomic<int>>(writes)](const std::string& call, int64_t) {
        return call == "pwrite" && (*left)-- <= 0 ? ENOSPC : 0;
      });
    root.barrier();
  }
  ~FullDisk() {
    root_.barrier();
    if (root_.rank() == 0) set_before_call(nullptr);
    root_.barrier();
  }

 private:
  Gang& root_;
};

TEST(FailedSave, IsToldByWaitAndByTheNextSaveOnAllRanks) {
  const TemporaryFolder folder;
  std::mutex mutex;
  std::set<std::string> texts;
  run_ranks(3, [&](Gang& root) {
    const TrainingRun run(root, on_ranks(3));
    Checkpoints checkpoints(run.gangs(), in_folder(folder.path()));
    const auto expect_failure = [&](const Error& error) {
      EXPECT_EQ(error.code(), Code::io) << error.message();
      EXPECT_EQ(error.system_error, ENOSPC);
      EXPECT_NE(error.message().find("No space left"), std::string::npos) << error.message();
      const std::lock_guard lock(mutex);
      texts.insert(error.message());
    };
    checkpoints.save({run.part()}, at_step(1));
    checkpoints.wait();
    {
      const FullDisk full(root, 5);
      checkpoints.save({run.part()}, at_step(2));
      run.step(0);  // training goes on
      expect_failure(error_of([&] { checkpoints.wait(); }));
    }
    if (root.rank() == 0) {
      EXPECT_EQ(texts.size(), 1u);
    }
    checkpoints.wait();  // the error was told
    EXPECT_EQ(complete(folder.path()), (std::vector<std::string>{"step-00000001"}));
    for (const std::string& name : folder.names())
      EXPECT_EQ(name.find(".writing"), std::string::npos) << name;
    {
      const FullDisk full(root, 0);
      checkpoints.save({run.part()}, at_step(3));
      expect_failure(error_of([&] { checkpoints.save({run.part()}, at_step(4)); }));
    }
    run.step(1);
    checkpoints.save({run.part()}, at_step(5));
    checkpoints.wait();
    EXPECT_FALSE(root.error().has_value());
  });
  EXPECT_EQ(complete(folder.path()), (std::vector<std::string>{"step-00000001", "step-00000005"}));
  for (const std::string& name : folder.names()) EXPECT_EQ(name.find(".writing"), std::string::npos);
}

TEST(FailedSave, ThatIsSynchronousThrowsItself) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Gang& root) {
    const TrainingRun run(root, on_ranks(2));
    CheckpointsOptions options = in_folder(folder.path());
    options.synchronous = true;
    Checkpoints checkpoints(run.gangs(), options);
    {
      const FullDisk full(root, 4);
      EXPECT_EQ(error_of([&] { checkpoints.save({run.part()}, at_step(1)); }).system_error, ENOSPC);
    }
    EXPECT_EQ(checkpoints.buffer_bytes(), 0u);
    EXPECT_FALSE(root.error().has_value());
    checkpoints.save({run.part()}, at_step(2));
  });
  EXPECT_EQ(complete(folder.path()), (std::vector<std::string>{"step-00000002"}));
}

TEST(FailedSave, RefusesOnAllRanksWhatOneRankGivesWrong) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Gang& root) {
    const TrainingRun run(root, on_ranks(2)), other(root, on_ranks(2));
    Checkpoints checkpoints(run.gangs(), in_folder(folder.path()));
    const bool bad = root.rank() == 1;
    const auto refuse = [&](Code code, const char* words, const std::vector<CheckpointPart>& parts,
                            int64_t step) {
      const Error error = error_of([&] { checkpoints.save(parts, at_step(step)); });
      EXPECT_EQ(name(error.code()), std::string(name(code))) << error.message();
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
      EXPECT_FALSE(root.error().has_value());
    };
    using Parts = std::vector<CheckpointPart>;
    const CheckpointPart part = run.part();
    refuse(Code::invalid_argument, "there is no part", bad ? Parts{} : Parts{part}, 1);
    refuse(Code::invalid_argument, "step = -1 is below 0", {part}, bad ? -1 : 1);
    refuse(Code::invalid_argument, "part \"\" has no model", {bad ? CheckpointPart{} : part}, 1);
    refuse(Code::invalid_argument, "a part's name is \"../x\"", {run.part(bad ? "../x" : "x")}, 1);
    refuse(Code::invalid_argument, "two parts have the name \"x\"",
           {run.part("x"), run.part(bad ? "x" : "y")}, 1);
    refuse(Code::invalid_argument, "was made for the parameters of another model",
           {{"", run.model.get(), (bad ? other : run).optimizer.get()}}, 1);
    refuse(Code::mismatch, "rank 0 has step 1, rank 1 has step 2", {part}, bad ? 2 : 1);
    const auto awaits = bad ? run.model->run().await_backward() : nullptr;
    refuse(Code::invalid_state, "a forward awaits its backward", {part}, 1);
  });
  EXPECT_TRUE(complete(folder.path()).empty());
}

TEST(FailedSave, OptionsOutOfTheirRangesAreRefused) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Gang& root) {
    const auto gangs = make_gangs(root, PipelineCase{.pp = 1, .shards = 2});
    const auto refuse = [&](const char* words, const CheckpointsOptions& options) {
      const Error error = error_of([&] { Checkpoints(gangs, options); });
      EXPECT_EQ(error.code(), Code::invalid_argument) << error.message();
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
    };
    CheckpointsOptions options = in_folder(folder.path() + "/run");
    options.keep = -1;
    refuse("keep = -1 is below 0", options);
    options = in_folder(folder.path() + "/run");
    options.every = -5;
    refuse("every = -5 is below 0", options);
    options = in_folder(folder.path() + "/run");
    options.model_dtype = DType::i32;
    refuse("model_dtype = i32 is not floating", options);
    refuse("the folder's name is empty", in_folder(""));
  });
  EXPECT_TRUE(folder.names().empty());
}

TEST(FailedSave, ASecondRunInTheFolderIsRefused) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Gang& root) {
    const auto gangs = make_gangs(root, PipelineCase{.pp = 1, .shards = 2});
    const Checkpoints first(gangs, in_folder(folder.path()));
    EXPECT_EQ(error_of([&] { Checkpoints(gangs, in_folder(folder.path())); }).code(), Code::invalid_state);
  });
}

}  // namespace
}  // namespace gangway::test
