// Saves that are killed, or fail, at each of their system calls: config and weights are together or not at all.
#include <sys/wait.h>

#include <atomic>
#include <csignal>

#include "checkpoint/file_calls.h"
#include "checkpoint/model_io.h"

namespace gangway::test {
namespace {

// Two models whose configs and weights differ; what each rank's save ends with.
template <typename Check>
void save(int which, const std::string& folder, int ranks, const BeforeCall& hook, Check&& check) {
  run_ranks(ranks, [&](Gang& root) {
    DecoderOptions config = small_llama();
    config.rope.theta += which;
    const auto model = llama(root, seeded(static_cast<uint64_t>(which)), config);
    root.barrier();
    if (root.rank() == 0) set_before_call(hook);
    root.barrier();
    const Error error = error_of([&] { save_model(*model, folder, {}); });
    root.barrier();
    if (root.rank() == 0) set_before_call(nullptr);
    check(error);
  });
}
void save(int which, const std::string& folder) {
  save(which, folder, 1, nullptr,
       [](const Error& error) { EXPECT_EQ(error.code(), Code::ok) << error.message(); });
}

// In a process of its own, so that this one has no gangs and may fork on. True: it was not killed.
template <typename Body>
bool in_a_process(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : status == 0) << status;
  return !WIFSIGNALED(status);
}

using Files =
    std::vector<std::string>;  // contents of config.json, model.safetensors and an index; "": it is missing

Files files_of(const std::string& folder) {
  Files files;
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json"})
    files.push_back(read_all(folder + "/" + name));
  return files;
}

bool changes_files(const std::string& call) { return call != "pread"; }

class KilledSave : public ::testing::Test {
 protected:
  KilledSave() {
    for (int which : {0, 1}) {
      const TemporaryFolder folder;
      in_a_process([&] { save(which, folder.path()); });
      saved_[which] = files_of(folder.path());
    }
    EXPECT_NE(saved_[0], saved_[1]);
  }

  // Saves model 1 over what `prepare` puts into a folder; `at_step` is done at its n-th system call, for each n.
  // `may_link`: whether the user may make hard links.
  template <typename Prepare>
  void at_each_step(int ranks, const Prepare& prepare, int (*at_step)(), bool may_link = true) {
    int steps = 0;
    for (bool ended = false; !ended; ++steps) {
      ASSERT_LT(steps, 200);
      const TemporaryFolder folder;
      prepare(folder.path());
      const Files before = files_of(folder.path());
      int told[2];
      ASSERT_EQ(pipe(told), 0);
      in_a_process([&] {
        std::atomic<int> calls = 0;
        const auto hook = [&](const std::string& call, int64_t) {
          if (call == "linkat" && !may_link) return EPERM;
          if (!changes_files(call) || calls++ != steps) return 0;
          EXPECT_EQ(::write(told[1], "x", 1), 1);
          return at_step();
        };
        save(1, folder.path(), ranks, hook, [&](const Error& error) {
          if (error.code() == Code::ok) {
            EXPECT_EQ(files_of(folder.path()), saved_[1]);
          } else {
            EXPECT_EQ(error.code(), Code::io) << error.message();
            EXPECT_EQ(error.system_error, EIO) << error.message();
          }
        });
      });
      close(told[1]);
      char x = 0;
      ended = ::read(told[0], &x, 1) != 1;
      close(told[0]);
      const Files after = files_of(folder.path());
      EXPECT_TRUE(after == before || after == saved_[1]) << "step " << steps;
      // The next save removes what is left.
      in_a_process([&] { save(0, folder.path()); });
      EXPECT_EQ(files_of(folder.path()), saved_[0]) << "step " << steps;
      EXPECT_EQ(folder.names(), (std::vector<std::string>{"config.json", "model.safetensors"}))
          << "step " << steps;
    }
    EXPECT_GT(steps, 10);
  }

  Files saved_[2];
};

void nothing(const std::string&) {}

void sharded(const std::string& folder) {
  std::ofstream(folder + "/config.json") << "{}";
  std::ofstream(folder + "/model.safetensors.index.json") << "{}";
  std::ofstream(folder + "/model-00001-of-00001.safetensors") << "x";
}

int be_killed() { return raise(SIGKILL); }
int fail_io() { return EIO; }

TEST_F(KilledSave, AtEachStepLeavesTheOldFilesOrTheNew) {
  const auto earlier = [&](const std::string& folder) {
    std::ofstream(folder + "/config.json") << saved_[0][0];
    std::ofstream(folder + "/model.safetensors", std::ios::binary) << saved_[0][1];
  };
  at_each_step(2, earlier, be_killed);
}
TEST_F(KilledSave, WithoutHardLinksLeavesTheOldFilesOrTheNew) {
  const auto earlier = [&](const std::string& folder) {
    std::ofstream(folder + "/config.json") << saved_[0][0];
    std::ofstream(folder + "/model.safetensors", std::ios::binary) << saved_[0][1];
  };
  at_each_step(1, earlier, be_killed, /*may_link=*/false);
}
// As in Hugging Face's cache: the names are links to files that other folders share.
TEST_F(KilledSave, OverLinksLeavesThemOrTheNewFilesAndNeverChangesWhatTheyPointAt) {
  const TemporaryFolder shared;
  std::ofstream(shared.path() + "/config.json") << saved_[0][0];
  std::ofstream(shared.path() + "/model.safetensors", std::ios::binary) << saved_[0][1];
  const std::string relative = "../" + shared.path().substr(shared.path().rfind('/') + 1);
  const auto links = [&](const std::string& folder) {
    std::filesystem::create_symlink(shared.path() + "/config.json", folder + "/config.json");
    std::filesystem::create_symlink(relative + "/model.safetensors", folder + "/model.safetensors");
  };
  at_each_step(1, links, be_killed, /*may_link=*/false);
  const Files before = files_of(shared.path());
  EXPECT_EQ(before[0], saved_[0][0]);
  EXPECT_EQ(before[1], saved_[0][1]);
  // A save that fails leaves the links as they were.
  const TemporaryFolder folder;
  links(folder.path());
  in_a_process([&] {
    std::atomic<int> renames = 0;
    const auto hook = [&](const std::string& call, int64_t) {
      return call == "renameat" && renames++ == 3 ? EIO
                                                  : 0;  // the commit: renames of 2 links and `current` before
    };
    save(1, folder.path(), 1, hook, [](const Error& error) { EXPECT_EQ(error.system_error, EIO); });
  });
  EXPECT_EQ(std::filesystem::read_symlink(folder.path() + "/config.json"), shared.path() + "/config.json");
  EXPECT_EQ(std::filesystem::read_symlink(folder.path() + "/model.safetensors"),
            relative + "/model.safetensors");
}
TEST_F(KilledSave, IntoAnEmptyFolderLeavesNothingOrTheNewFiles) { at_each_step(1, nothing, be_killed); }
TEST_F(KilledSave, OverAnIndexLeavesItOrTheNewFiles) { at_each_step(1, sharded, be_killed); }
TEST_F(KilledSave, AStepThatFailsIsReportedToAllRanksAndLeavesTheOldFilesOrTheNew) {
  at_each_step(3, sharded, fail_io);
}

}  // namespace
}  // namespace gangway::test
