// A start over a store that a run left behind which was killed while it made its gang.
#include <sys/syscall.h>
#include <time.h>

#include <chrono>
#include <filesystem>

#include "base/expect_error.h"
#include "base/process.h"
#include "gang/host/presence/member.h"
#include "gang/host/started.h"
#include "gang/host/threads.h"
#include "gang/processes.h"
#include "support/scratch.h"

namespace {
int64_t clock_step_s = 0;  // of the wall clock, as this program sees it
}

extern "C" int clock_gettime(clockid_t clock, timespec* t) noexcept {
  const long answer = syscall(SYS_clock_gettime, clock, t);
  if (clock == CLOCK_REALTIME) t->tv_sec += clock_step_s;
  return static_cast<int>(answer);
}

namespace gangway::test {
namespace {

std::shared_ptr<Engine> engine_of(const std::shared_ptr<Rank>& rank, int r,
                                  const std::shared_ptr<Store>& store, int64_t timeout_ms = 60'000,
                                  int size = 3) {
  EngineOptions options = small_arena();
  options.rank = r;
  options.size = size;
  options.timeout_ms = timeout_ms;
  return make_engine(engine_row("host"), rank, options, store);
}

// Ranks 0 and 1 of 3 come and are killed: their entries stay. A rank that gave up may have left its word, too.
void leave_behind(const std::string& folder, bool with_failure) {
  const auto store = make_file_store(folder);
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>&, Report&) { engine_of(new_rank(), r, store); });
  const std::string place = store->wait("host/arena", Deadline::after_ms(60'000));
  for (const char* const key : {"host/process/0", "host/process/1"})
    store->wait(key, Deadline::after_ms(60'000));
  for (const int signal : {SIGSTOP, SIGKILL})  // neither sees the other's end
    for (const int r : {0, 1}) ranks.kill(r, signal);
  ranks.join();
  const std::string name = place.substr(0, place.size() - 32);
  if (with_failure) store->put("host/failed", name + " 5 1 2 1 1 host engine: rank 2 died");
}

TEST(Restart, ARunKilledAtItsStartRestartsOverTheSameStore) {
  for (const bool with_failure : {false, true}) {
    const Scratch scratch;
    const std::string folder = scratch.path() + "/store";
    leave_behind(folder, with_failure);
    Processes ranks(3, [&](int r, const std::shared_ptr<Store>&, Report&) {
      const auto store = make_file_store(folder);
      if (r == 0)
        store->wait("host/refused", Deadline::after_ms(60'000));  // another found the dead one's entry
      const auto rank = new_rank();
      expect_to_work(rank, *engine_of(rank, r, store), 3);
    });
    ranks.expect_all_well();
  }
}

// What is left says when it was written by a clock that nobody sets; the files' own times say nothing.
TEST(Restart, ARunThatWasKilledCanBeStartedAgainAfterAStepOfTheClock) {
  const struct Back {
    ~Back() { clock_step_s = 0; }
  } back;
  for (const int64_t step : {-3600, 3600, -1, 1})
    for (const bool before : {true, false}) {
      const Scratch scratch;
      const std::string folder = scratch.path() + "/store";
      clock_step_s = before ? step : 0;
      leave_behind(folder, false);
      clock_step_s = before ? 0 : step;
      for (const auto& file : std::filesystem::directory_iterator(folder))
        std::filesystem::last_write_time(file, file.last_write_time() + std::chrono::seconds(step));
      Processes ranks(3, [&](int r, const std::shared_ptr<Store>&, Report&) {
        const auto store = make_file_store(folder);
        if (r == 0) store->wait("host/refused", Deadline::after_ms(60'000));
        const auto rank = new_rank();
        expect_to_work(rank, *engine_of(rank, r, store), 3);
      });
      ranks.expect_all_well();
    }
}

// The kernel's time of a process's begin counts in ticks of 10 ms: a process that begins in the tick in which
// the old rank 0 put its entry seems to have begun before it.
TEST(Restart, ARunThatBeginsInTheTickOfTheOldOneDoesNotTakeTheOldRankZeroForItsOwn) {
  for (int lap = 0; lap < 5; ++lap) {
    const Scratch scratch;
    const auto store = make_file_store(scratch.path() + "/store");
    pid_t dead = fork();
    if (dead == 0) _exit(0);
    waitpid(dead, nullptr, 0);
    const int64_t tick_ns = 1'000'000'000 / sysconf(_SC_CLK_TCK);
    while (boot_time().ns % tick_ns > tick_ns / 10) usleep(100);  // early in a tick
    const std::string name = "gangway-" + std::string(32, static_cast<char>('a' + lap));
    const BootTime now = boot_time();
    store->put("host/process/0", text(name, " ", dead, " ", host::pid_space(), " ", now.boot, " ", now.ns));
    store->put("host/failed", text(name, " 5 0 2 ", now.boot, " ", now.ns, " host engine: rank 2 died"));
    store->put("host/arena", name + std::string(32, 't'));
    Processes ranks(3, [&](int r, const std::shared_ptr<Store>&, Report&) {
      if (r == 0)
        store->wait("host/refused", Deadline::after_ms(60'000));  // another found the dead one's entry
      const auto rank = new_rank();
      expect_to_work(rank, *engine_of(rank, r, store), 3);
    });
    ranks.expect_all_well();
  }
}

TEST(Restart, AReusedProcessIdDoesNotReviveADeadProcess) {
  const Scratch scratch;
  const std::string folder = scratch.path() + "/store";
  leave_behind(folder, false);
  const auto store = make_file_store(folder);
  const std::string place = store->wait("host/arena", Deadline::after_ms(60'000));
  const BootTime now = boot_time();
  // This process's number.
  store->put("host/process/0", text(place.substr(0, place.size() - 32), " ", getpid(), " ", host::pid_space(),
                                    " ", now.boot, " ", now.ns - 60'000'000'000));
  Processes ranks(1, [&](int, const std::shared_ptr<Store>&, Report& report) {
    const Error error = error_of([&] { engine_of(new_rank(), 1, make_file_store(folder), 300); });
    report.say(error.message());
  });
  ranks.expect_all_well();
  for (const char* const part : {"nobody listens at the one there", "start all ranks again"})
    EXPECT_NE(std::string(ranks.report(0).text).find(part), std::string::npos) << ranks.report(0).text;
}

// Reaches stage 2 once its rank knows the address that rank 0 has, or had, put there.
class Watched final : public Store {
 public:
  Watched(std::shared_ptr<Store> inner, Report& report) : inner_(std::move(inner)), report_(report) {}
  void put(const std::string& key, const std::string& value) override {
    inner_->put(key, value);
    if (key == "host/arena") report_.stage = 2;
  }
  std::optional<std::string> get(const std::string& key) override { return inner_->get(key); }
  void remove(const std::string& key) override { inner_->remove(key); }
  std::string wait(const std::string& key, Deadline deadline) override {
    const std::string value = inner_->wait(key, deadline);
    if (key == "host/arena") report_.stage = 2;
    return value;
  }

 private:
  const std::shared_ptr<Store> inner_;
  Report& report_;
};

TEST(Restart, SurvivorsOfAFailedStartCanStartAgainOverTheSameStore) {
  for (const int lost : {0, 2}) {
    const Scratch scratch;
    const auto store = make_file_store(scratch.path() + "/store");
    // A fourth rank never comes.
    const auto start_that_fails = [&](int r) { engine_of(new_rank(), r, store, 60'000, 4); };
    Processes stayed(2, [&](int i, const std::shared_ptr<Store>&, Report& report) {
      const int r = lost == 0 ? 1 + i : i;
      const Error error = error_of([&] { start_that_fails(r); });
      if (error.code() != Code::peer_lost) throw error;
      report.stage = 1;
      const auto rank = new_rank();
      expect_to_work(rank, *engine_of(rank, r, std::make_shared<Watched>(store, report)), 3);
    });
    Processes first(1, [&](int, const std::shared_ptr<Store>&, Report&) { start_that_fails(lost); });
    for (const char* const key : {"host/process/0", "host/process/1", "host/process/2"})
      store->wait(key, Deadline::after_ms(60'000));
    first.kill(0, SIGKILL);
    first.join();
    const Deadline deadline = Deadline::after_ms(60'000);
    while ((stayed.report(0).stage < 2 || stayed.report(1).stage < 2) && !deadline.passed()) usleep(1000);
    Processes again(1, [&](int, const std::shared_ptr<Store>&, Report&) {
      const auto rank = new_rank();
      expect_to_work(rank, *engine_of(rank, lost, store), 3);
    });
    again.expect_all_well();
    stayed.expect_all_well();
  }
}

// The error of a rank 1 that comes alone, the last time that it tries.
std::pair<Code, std::string> alone_after(bool with_failure, int tries = 1) {
  const Scratch scratch;
  const std::string folder = scratch.path() + "/store";
  leave_behind(folder, with_failure);
  Processes ranks(1, [&](int, const std::shared_ptr<Store>&, Report& report) {
    for (int i = 0; i < tries; ++i) {
      const Error error = error_of([&] { engine_of(new_rank(), 1, make_file_store(folder), 300); });
      report.code = static_cast<int64_t>(error.code());
      report.say(error.message());
    }
  });
  ranks.expect_all_well();
  return {static_cast<Code>(ranks.report(0).code.load()), ranks.report(0).text};
}

TEST(Restart, WithoutANewRankZeroTheTextNamesTheDeadProcessAndSaysWhatToDo) {
  const auto [code, said] = alone_after(false);
  EXPECT_EQ(code, Code::timeout);
  EXPECT_NE(said.find("nobody listens at the one there, which is of process "), std::string::npos) << said;
  EXPECT_NE(said.find(", which has ended"), std::string::npos) << said;
  EXPECT_NE(said.find("start all ranks again"), std::string::npos) << said;
}

TEST(Restart, WithoutANewRankZeroTheLastFailureIsReportedWithWhatToDo) {
  const auto [code, said] = alone_after(true);
  EXPECT_EQ(code, Code::peer_lost);
  EXPECT_NE(said.find("rank 2 died"), std::string::npos) << said;
  EXPECT_NE(said.find("start all ranks again"), std::string::npos) << said;
}

TEST(Restart, WithoutANewRankZeroASecondTryIsATimeout) {
  const auto [code, said] = alone_after(true, 2);
  EXPECT_EQ(code, Code::timeout);
  EXPECT_NE(said.find("rank 0 put no address"), std::string::npos) << said;
}

}  // namespace
}  // namespace gangway::test
