// The lease of a run's folder: who may write, and how long another job waits.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/expect_error.h"
#include "base/log.h"
#include "checkpoint/file_calls.h"
#include "checkpoint/folders.h"
#include "checkpoint/run/run_folder.h"
#include "checkpoint/run/small_checkpoint.h"
#include "checkpoint/run/take_lease.h"

namespace gangway::test {
namespace {

using Names = std::vector<std::string>;

class RunLease : public ::testing::Test {
 protected:
  ~RunLease() override { set_before_call(nullptr); }

  Names names() const { return sorted_names(path_); }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/a/run";
};

// In a process of its own; its exit status.
template <typename Body>
int in_a_process(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(RunLease, ASecondJobIsRefusedAndToldTheFirst) {
  RunFolder run(path_);
  setenv("GANGWAY_RESTART_COUNT", "2", 1);
  take_lease(run, "job 17");
  unsetenv("GANGWAY_RESTART_COUNT");
  const std::string token = nlohmann::json::parse(read_all(path_ + "/.lease")).at("token");
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const std::string words =
      text("run: ", path_, " is in use by job \"job 17\" (attempt ", token.substr(0, 8),
           ", restart 2; process ", getpid(), " of host ", host, "), whose last sign is ");
  const auto refused = [&] {
    RunFolder other(path_);
    const Error error = error_of([&] { take_lease(other, "job 18"); });
    EXPECT_EQ(error.code(), Code::invalid_state);
    EXPECT_EQ(error.message().rfind(words, 0), 0u) << error.message();
  };
  refused();
  EXPECT_EQ(in_a_process(refused), 0);
  EXPECT_EQ(names(), Names{".lease"}) << "the refused jobs leave nothing";
  run.give_back_lease();
  EXPECT_TRUE(names().empty());
  take_lease(RunFolder(path_), "job 18");
  EXPECT_TRUE(names().empty()) << "the destructor gives the lease back";
}

TEST_F(RunLease, AForkedChildDoesNotGiveTheLeaseBack) {
  auto run = std::make_unique<RunFolder>(path_);
  take_lease(*run, "a");
  EXPECT_EQ(in_a_process([&] { run.reset(); }), 0);
  run->renew_lease();
}

TEST_F(RunLease, ALeaseThatIsNotRenewedIsTakenAndItsHolderIsTold) {
  RunFolder slow(path_), other(path_);
  take_lease(slow, "slow");
  const std::string writing = slow.begin(5);
  write_file(writing, kStateName, "x");
  EXPECT_EQ(error_of([&] { take_lease(other, "other", 60); }).code(), Code::invalid_state);
  const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (path_ + "/.lease").c_str(), long_ago, 0), 0);
  slow.renew_lease();
  EXPECT_EQ(error_of([&] { take_lease(other, "other", 60); }).code(), Code::invalid_state)
      << "it was renewed";
  ASSERT_EQ(utimensat(AT_FDCWD, (path_ + "/.lease").c_str(), long_ago, 0), 0);
  take_lease(other, "other", 60);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { slow.renew_lease(); }, [&] { slow.commit(5, writing); }, [&] { slow.begin(6); }}) {
    const Error error = error_of(call);
    EXPECT_EQ(error.code(), Code::invalid_state);
    EXPECT_EQ(error.message().rfind("run: job \"other\" (attempt ", 0), 0u) << error.message();
  }
  EXPECT_TRUE(other.steps().empty());
  slow.give_back_lease();  // which does not take away the other's
  other.renew_lease();
  EXPECT_EQ(names(), (Names{".lease", writing.substr(path_.size() + 1)}));
}

TEST_F(RunLease, TheLeaseOfAnEndedProcessOfThisHostIsVoidAtOnce) {
  const auto take_and_die = [&] {
    RunFolder run(path_);
    take_lease(run, "first");
    raise(SIGKILL);
  };
  EXPECT_TRUE(WIFSIGNALED(in_a_process(take_and_die)));
  EXPECT_EQ(names(), Names{".lease"});
  take_lease(RunFolder(path_), "second", 1e9);
  // A process that its parent has not waited for.
  const pid_t child = fork();
  if (child == 0) take_and_die();
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  take_lease(RunFolder(path_), "second", 1e9);
  waitpid(child, nullptr, 0);
}

TEST_F(RunLease, AHolderThatCannotBeSeenIsWaitedFor) {
  RunFolder run(path_);
  take_lease(run, "first");
  const nlohmann::json own = nlohmann::json::parse(read_all(path_ + "/.lease"));
  run.give_back_lease();
  enum class Answer { taken, refused, waits };
  const auto answer = [&](const std::string& lease) {
    write_all(path_ + "/.lease", lease);
    RunFolder other(path_);
    Answer found = Answer::refused;
    const Error error =
        error_of([&] { found = other.try_lease("second", 1e9) ? Answer::taken : Answer::waits; });
    EXPECT_EQ(error.code(), found == Answer::refused ? Code::invalid_state : Code::ok) << error.message();
    std::filesystem::remove(path_ + "/.lease");
    return found;
  };
  const auto changed = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json lease = own;
    lease[key] = value;
    return answer(lease.dump());
  };
  EXPECT_EQ(answer(own.dump()), Answer::refused) << "its process runs";
  EXPECT_EQ(changed("start", own["start"].get<int64_t>() - 1), Answer::taken) << "another process had the id";
  EXPECT_EQ(changed("process", 99'999'999), Answer::taken) << "no such process";
  EXPECT_EQ(changed("start", 0), Answer::waits) << "its start is not known";
  nlohmann::json remote = own;
  remote["process"] = 99'999'999;
  remote["boot"] = "0000000000000000";
  EXPECT_EQ(answer(remote.dump()), Answer::waits) << "processes of another host cannot be seen";
  remote = own;
  remote["process"] = 99'999'999;
  remote["processes"] = "1";
  EXPECT_EQ(answer(remote.dump()), Answer::waits) << "nor those of another container";
  for (const char* text : {"", "{", "{}", "[]", "\xff"}) EXPECT_EQ(answer(text), Answer::waits);
}

// What a container leaves that was killed as a whole: the next one has another space of process ids.
class RunOfAKilledContainer : public RunLease {
 protected:
  RunOfAKilledContainer() {
    RunFolder run(path_);
    take_lease(run, "first");
    nlohmann::json lease = nlohmann::json::parse(read_all(path_ + "/.lease"));
    run.give_back_lease();
    lease["processes"] = "1";
    write_all(path_ + "/.lease", lease.dump());
  }
  static std::vector<std::string> warnings_since(uint64_t first) {
    std::vector<std::string> all;
    for (const LogLine& line : log_lines(first))
      if (line.level == LogLevel::warning) all.push_back(line.message);
    return all;
  }
  static uint64_t next_log_line() {
    log(LogLevel::info, "from here on");
    return log_lines(0).back().number + 1;
  }
};

TEST_F(RunOfAKilledContainer, IsContinuedWhenTheLeaseHasEndedAndSaysThatItWaits) {
  const uint64_t first = next_log_line();
  RunFolder next(path_);
  take_lease(next, "second", 0.4);
  next.begin(5);
  const std::vector<std::string> said = warnings_since(first);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].rfind("run: " + path_ + " is in use by job \"first\" (attempt ", 0), 0u) << said[0];
  EXPECT_NE(said[0].find("; waiting up to 0."), std::string::npos) << said[0];
}

// The clock of a file system may be set back, and then the lease never has the age at which it is stale.
TEST_F(RunOfAKilledContainer, IsContinuedAlthoughTheLeaseIsFromTheFuture) {
  const timespec future[2] = {{4'000'000'000, 0}, {4'000'000'000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (path_ + "/.lease").c_str(), future, 0), 0);
  RunFolder next(path_);
  take_lease(next, "second", 0.3);
  next.begin(5);
}

TEST_F(RunOfAKilledContainer, IsContinuedAtOnceWhenTheLeaseIsGivenBack) {
  RunFolder next(path_);
  EXPECT_FALSE(next.try_lease("second"));
  std::filesystem::remove(path_ + "/.lease");
  EXPECT_TRUE(next.try_lease("second"));
}

TEST_F(RunOfAKilledContainer, IsRefusedAsSoonAsTheLeaseIsRenewedOrAnotherJobHasIt) {
  for (const bool renewed : {true, false}) {
    RunFolder next(path_);
    EXPECT_FALSE(next.try_lease("second"));
    EXPECT_FALSE(next.try_lease("second")) << "nothing has changed";
    if (renewed)
      ASSERT_EQ(utimensat(AT_FDCWD, (path_ + "/.lease").c_str(), nullptr, 0), 0);
    else
      write_all(path_ + "/.lease", "another job's");
    const Error error = error_of([&] { next.try_lease("second"); });
    EXPECT_EQ(error.code(), Code::invalid_state);
    EXPECT_NE(error.message().find("is in use by "), std::string::npos) << error.message();
  }
}

TEST_F(RunLease, OfManyJobsOneGetsAStaleLease) {
  std::filesystem::create_directories(path_);
  for (int trial = 0; trial < 20; ++trial) {
    write_all(path_ + "/.lease", "stale");
    const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, (path_ + "/.lease").c_str(), long_ago, 0), 0);
    std::vector<std::unique_ptr<RunFolder>> jobs;
    for (int i = 0; i < 4; ++i) jobs.push_back(std::make_unique<RunFolder>(path_));
    std::atomic<int> holders = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        if (error_of([&] { take_lease(*jobs[static_cast<size_t>(i)], std::to_string(i)); }).code() ==
            Code::ok)
          ++holders;
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(holders, 1);
    jobs.clear();
    EXPECT_TRUE(names().empty());
  }
}

TEST_F(RunLease, ALeaseNeedsNoHardLinks) {
  set_before_call([](const std::string& call, int64_t) { return call == "linkat" ? EPERM : 0; });
  RunFolder run(path_);
  take_lease(run, "first");
  run.renew_lease();
  RunFolder other(path_);
  const Error error = error_of([&] { take_lease(other, "second"); });
  EXPECT_NE(error.message().find("in use by job \"first\""), std::string::npos) << error.message();
  run.give_back_lease();
  take_lease(other, "second");
  EXPECT_EQ(names(), Names{".lease"});
}

TEST_F(RunLease, LeftoversOfKilledTakersAreRemovedWhenTheyAreOld) {
  RunFolder run(path_);
  write_all(path_ + "/.lease-old", "x");
  write_all(path_ + "/.lease-new", "x");
  const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (path_ + "/.lease-old").c_str(), long_ago, 0), 0);
  take_lease(run, "a");
  EXPECT_EQ(names(), (Names{".lease", ".lease-new"}));
}

}  // namespace
}  // namespace gangway::test
