// Start-up of processes: strangers at the socket where the arena is handed over, and ranks of several hosts.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "base/error_of.h"
#include "base/library_build.h"
#include "base/sanitized.h"
#include "gang/descriptor.h"
#include "gang/host/memory/arena.h"
#include "gang/host/presence/handover_socket.h"
#include "gang/host/started.h"
#include "gang/host/threads.h"
#include "gang/processes.h"

namespace gangway::test {
namespace {

constexpr size_t kErrno = 0;  // place in Report::values

EngineOptions options_of(int rank, int size) {
  EngineOptions options = small_arena();
  options.rank = rank;
  options.size = size;
  return options;
}

// Makes the engine and sums over it.
void meet(int r, int size, const std::shared_ptr<Store>& store) {
  const auto rank = new_rank();
  expect_to_work(rank, *make_engine(engine_row("host"), rank, options_of(r, size), store), size);
}

// Rank 0 waits for the other processes: who starts after it put its entry takes that for one of an earlier run.
void await_processes(int r, int size, const std::shared_ptr<Store>& store) {
  if (r != 0) store->put(text("test/here/", r), "");
  for (int other = 1; r == 0 && other < size; ++other)
    store->wait(text("test/here/", other), Deadline::after_ms(60'000));
}

// The name of rank 0's socket, which any process of this host can read in /proc/net/unix.
std::string socket_name(Store& store) {
  constexpr size_t kToken = 32;
  const std::string place = store.wait("host/arena", Deadline::after_ms(60'000));
  return place.substr(0, place.size() - kToken);
}

Descriptor connect_to(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  while (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno != EAGAIN) return {};  // EAGAIN: its queue is full, as a rank would find it
    usleep(1000);
  }
  return fd;
}

TEST(Handover, UnknownClientsDoNotKeepRanksFromMeeting) {
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    while (r != 0 && report.stage == 0) usleep(500);
    meet(r, 3, store);
  });
  const std::string name = socket_name(ranks.store());
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 200; ++i) {  // more than are kept, and than the queue holds
    strangers.push_back(connect_to(name));
    ASSERT_TRUE(strangers.back()) << i;
    const std::string bytes(static_cast<size_t>(i % 4 == 0 ? 0 : i % 4 == 1 ? 31 : 32), 'x');
    (void)send(strangers.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (i % 4 == 3) strangers.back().reset();
  }
  for (const int r : {1, 2}) ranks.report(r).stage = 1;
  ranks.expect_all_well();
}

TEST(Handover, UnknownClientsGetNothingAndTheDeadlineHolds) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    if (r == 1) {
      while (report.stage == 0) usleep(500);
      return;
    }
    EngineOptions options = options_of(0, 2);
    options.timeout_ms = 1500;
    try {
      make_engine(engine_row("host"), new_rank(), options, store);
    } catch (const Error& error) {
      report.code = static_cast<int64_t>(error.code());
      report.say(error.message());
    }
  });
  const std::string name = socket_name(ranks.store());
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 10; ++i) strangers.push_back(connect_to(name));
  for (size_t i = 0; i < strangers.size(); i += 2) {
    const std::string bytes(32, 'x');
    (void)send(strangers[i].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  while (ranks.runs(0)) usleep(1000);
  for (const Descriptor& fd : strangers) {
    char byte;
    EXPECT_LE(recv(fd.get(), &byte, 1, 0), 0) << "neither bytes nor a descriptor";
  }
  ranks.report(1).stage = 1;
  ranks.expect_all_well();
  EXPECT_EQ(ranks.report(0).code, static_cast<int64_t>(Code::timeout));
  EXPECT_STREQ(ranks.report(0).text, "host engine: 1 of 2 ranks did not come for the shared memory");
}

// Network namespaces count as hosts.
TEST(Handover, RanksOfSeveralHostsAreRefusedOnEachWithAText) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    if (r == 1 && unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
      report.values[kErrno] = errno;
    try {
      meet(r, 2, store);
    } catch (const Error& error) {
      report.code = static_cast<int64_t>(error.code());
      report.say(error.message());
    }
  });
  ranks.expect_all_well();
  if (ranks.report(1).values[kErrno] != 0)
    GTEST_SKIP() << "no network namespace can be made here: "
                 << std::strerror(static_cast<int>(ranks.report(1).values[kErrno]));
  for (const int r : {0, 1}) {
    EXPECT_EQ(ranks.report(r).code, static_cast<int64_t>(Code::not_supported));
    EXPECT_NE(std::strstr(ranks.report(r).text,
                          "the ranks are on several hosts (or network namespaces), which share "
                          "no memory; choose the engine auto"),
              nullptr)
        << ranks.report(r).text;
  }
}

// Says in the store when its rank waits for rank 0's address.
class WaitingStore final : public Store {
 public:
  explicit WaitingStore(std::shared_ptr<Store> inner) : inner_(std::move(inner)) {}
  void put(const std::string& key, const std::string& value) override { inner_->put(key, value); }
  std::optional<std::string> get(const std::string& key) override { return inner_->get(key); }
  void remove(const std::string& key) override { inner_->remove(key); }
  std::string wait(const std::string& key, Deadline deadline) override {
    inner_->put("test/waits", "");
    return inner_->wait(key, deadline);
  }

 private:
  const std::shared_ptr<Store> inner_;
};

TEST(Handover, EntriesOfAnEarlierGangArePassedOver) {
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report&) {
    if (r == 1) {
      const std::string name = "gangway-" + std::string(32, 'a');
      store->put("host/arena", name + std::string(32, 't'));
      store->put("host/refused", name);
      store->put("host/failed", name + " 1 0 -1 it was full");
      store->put("test/begin", "");
    }
    if (r != 1) store->wait("test/begin", Deadline::after_ms(60'000));
    for (int i = 0; i < 3; ++i) meet(r, 3, store);  // and gang after gang
    if (r == 0)
      for (const char* const key : {"host/arena", "host/refused", "host/failed"})
        if (store->get(key)) fail(Code::internal, key, " was left in the store");
  });
  ranks.expect_all_well();
}

TEST(Handover, ARankThatGivesUpTellsTheOthersWhy) {
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    try {
      if (r != 2) store->wait("test/waits", Deadline::after_ms(60'000));
      make_engine(engine_row("host"), new_rank(), options_of(r, r == 1 ? 4 : 3),
                  r == 2 ? std::make_shared<WaitingStore>(store) : store);
    } catch (const Error& error) {
      report.code = static_cast<int64_t>(error.code());
      report.peer = error.peer;
      report.say(error.message());
    }
  });
  ranks.expect_all_well();
  const std::string why = "host engine: rank 1 says 4 ranks, rank 0 says 3";
  EXPECT_EQ(ranks.report(1).text, why);
  for (const int r : {0, 2}) {
    EXPECT_EQ(ranks.report(r).code, static_cast<int64_t>(Code::aborted));
    EXPECT_EQ(ranks.report(r).peer, 1);
    EXPECT_EQ(ranks.report(r).text, "host engine: rank 1 gave up while the gang was made: " + why);
  }
}

// The process ends when its rank comes to the operation `at` on `key`.
class EndingStore final : public Store {
 public:
  EndingStore(std::shared_ptr<Store> inner, std::string at) : inner_(std::move(inner)), at_(std::move(at)) {}
  void put(const std::string& key, const std::string& value) override {
    inner_->put(key, value);
    end_at("put " + key);
  }
  std::optional<std::string> get(const std::string& key) override {
    end_at("get " + key);
    return inner_->get(key);
  }
  void remove(const std::string& key) override { inner_->remove(key); }
  std::string wait(const std::string& key, Deadline deadline) override { return inner_->wait(key, deadline); }

 private:
  void end_at(const std::string& here) const {
    if (here == at_) raise(SIGKILL);
  }
  const std::shared_ptr<Store> inner_;
  const std::string at_;
};

TEST(Handover, ARankThatIsKilledBeforeItHasTheMemoryIsNamedAtOnce) {
  const std::string ends[] = {"get host/failed", "", "put host/process/2"};  // rank 0 serves, rank 2 asks
  for (const int victim : {0, 2}) {
    Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      await_processes(r, 3, store);
      std::shared_ptr<Store> own = store;
      if (r == victim) own = std::make_shared<EndingStore>(store, ends[r]);
      try {
        make_engine(engine_row("host"), new_rank(), options_of(r, 3), own);
      } catch (const Error& error) {
        report.code = static_cast<int64_t>(error.code());
        report.peer = error.peer;
        report.say(error.message());
      }
    });
    ranks.join();
    for (int r = 0; r < 3; ++r) {
      if (r == victim) continue;
      EXPECT_TRUE(ranks.ended_well(r));
      EXPECT_EQ(ranks.report(r).code, static_cast<int64_t>(Code::peer_lost));
      EXPECT_EQ(ranks.report(r).peer, victim);
      EXPECT_EQ(ranks.report(r).text, text("host engine: rank ", victim, " (pid ", ranks.pid(victim),
                                           ") died while the gang was made"));
    }
  }
}

TEST(Handover, AnotherLivenessLimitThanRankZeroHasIsRefusedOnEveryRank) {
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    await_processes(r, 3, store);
    EngineOptions options = options_of(r, 3);
    options.liveness_ms = r == 1 ? 200 : 300;
    try {
      make_engine(engine_row("host"), new_rank(), options, store);
    } catch (const Error& error) {
      report.say(error.message());
    }
  });
  ranks.expect_all_well();
  const std::string why = "host engine: rank 1 says liveness_ms 200, rank 0 says 300";
  EXPECT_EQ(ranks.report(1).text, why);
  for (const int r : {0, 2})
    EXPECT_EQ(ranks.report(r).text, "host engine: rank 1 gave up while the gang was made: " + why);
}

TEST(Handover, ARankThatComesAfterAllHaveGivenUpGetsTheReason) {
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    EngineOptions options = options_of(r, 3);
    options.liveness_ms = r == 1 ? 200 : 300;
    await_processes(r, 3, store);
    if (r == 0) store->put("test/rank0", std::to_string(getpid()));
    if (r == 2) {
      const int pid = std::stoi(store->wait("test/rank0", Deadline::after_ms(60'000)));
      const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
      pollfd gone{fd, POLLIN, 0};
      if (fd >= 0) poll(&gone, 1, 60'000);
    }
    try {
      make_engine(engine_row("host"), new_rank(), options, store);
    } catch (const Error& error) {
      report.say(error.message());
    }
  });
  ranks.expect_all_well();
  const std::string why = "host engine: rank 1 says liveness_ms 200, rank 0 says 300";
  EXPECT_EQ(ranks.report(2).text, "host engine: rank 1 gave up while the gang was made: " + why);
}

// Refuses one put.
class RefusingStore final : public Store {
 public:
  RefusingStore(std::shared_ptr<Store> inner, std::string key)
      : inner_(std::move(inner)), key_(std::move(key)) {}
  void put(const std::string& key, const std::string& value) override {
    if (key == key_) fail(Code::io, "the disk is full");
    inner_->put(key, value);
  }
  std::optional<std::string> get(const std::string& key) override { return inner_->get(key); }
  void remove(const std::string& key) override { inner_->remove(key); }
  std::string wait(const std::string& key, Deadline deadline) override { return inner_->wait(key, deadline); }

 private:
  const std::shared_ptr<Store> inner_;
  const std::string key_;
};

// The other ranks began with rank 0, but come to the store after it has failed, and before it has ended or
// after.
TEST(Handover, RankZeroThatFailsBeforeItAnnouncesItselfIsReportedAtOnceToRanksThatComeLater) {
  for (const bool after_its_end : {false, true}) {
    Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      std::shared_ptr<Store> own = store;
      if (r == 0) own = std::make_shared<RefusingStore>(store, "host/process/0");
      if (r != 0 && !after_its_end) store->wait("host/arena", Deadline::after_ms(60'000));
      while (r != 0 && after_its_end && report.turn == 0) usleep(500);
      report.say(
          error_of([&] { make_engine(engine_row("host"), new_rank(), options_of(r, 3), own); }).message());
      while (r == 0 && !after_its_end && report.turn == 0) usleep(500);
    });
    const auto start = std::chrono::steady_clock::now();
    if (after_its_end) {
      while (ranks.runs(0)) usleep(500);
      for (const int r : {1, 2}) ranks.report(r).turn = 1;
    }
    while (ranks.runs(1) || ranks.runs(2)) usleep(500);
    ranks.report(0).turn = 1;
    ranks.expect_all_well();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "not at the deadline";
    EXPECT_STREQ(ranks.report(0).text, "the disk is full");
    for (const int r : {1, 2})
      EXPECT_STREQ(ranks.report(r).text,
                   "host engine: rank 0 gave up while the gang was made: the disk is full");
  }
}

// A clock of its own says nothing about which rank of which run it is.
TEST(Handover, ARankOfAnotherTimeNamespaceJoins) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    if (r == 0) return meet(r, 2, store);
    const bool apart = unshare(CLONE_NEWTIME) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWTIME) == 0;
    FILE* const offsets = apart ? std::fopen("/proc/self/timens_offsets", "w") : nullptr;
    const bool moved = offsets != nullptr && std::fputs("boottime 1000 0\n", offsets) >= 0;
    if (offsets != nullptr && std::fclose(offsets) == 0 && moved) report.values[0] = 1;
    const pid_t child = fork();  // a time namespace is of the children
    if (child == 0) {
      try {
        meet(r, 2, store);
        _exit(0);
      } catch (const Error& error) {
        report.say(error.message());
        _exit(1);
      }
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) fail(Code::internal, std::string(report.text));
  });
  ranks.expect_all_well();
  if (ranks.report(1).values[0] == 0) GTEST_SKIP() << "no time namespace can be made here";
}

TEST(Handover, RankZeroOfAnotherBuildOfTheLibraryIsRefusedWithBothIds) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    if (r == 0) {  // acts as a rank 0 of a build that has everything in the same places
      const auto arena = host::Arena::create(2, /*threads=*/false, {uint64_t{1} << 30, 0, 0});
      std::memset(arena->header().build, 0, sizeof arena->header().build);
      std::memcpy(arena->header().build, "another", 7);
      const std::string name = "gangway-" + std::string(32, 'b'), token(host::kToken, 't');
      const Descriptor listener = host::listen_at(name);
      store->put("host/arena", name + token);
      std::vector<host::Pending> pending;
      for (int served = 0; served == 0; usleep(500)) {
        host::take_in(listener, pending);
        std::erase_if(pending, [&](host::Pending& p) { return host::serve(p, token, arena->fd(), served); });
      }
      report.say(store->wait("host/failed", Deadline::after_ms(60'000)));
      return;
    }
    const Error error =
        error_of([&] { make_engine(engine_row("host"), new_rank(), options_of(1, 2), store); });
    report.code = static_cast<int64_t>(error.code());
    report.say(error.message());
  });
  ranks.expect_all_well();
  EXPECT_EQ(ranks.report(1).code, static_cast<int64_t>(Code::invalid_state));
  const std::string why =
      text("rank 1 runs build ", library_build(), " of the library, rank 0 build another");
  EXPECT_NE(std::string(ranks.report(1).text).find(why), std::string::npos) << ranks.report(1).text;
  EXPECT_NE(std::string(ranks.report(0).text).find(why), std::string::npos) << "rank 0 is told as well";
}

TEST(Handover, RankZeroThatCannotListenTellsTheOthersWhy) {
#ifdef GANGWAY_TEST_SANITIZED
  GTEST_SKIP() << "a sanitizer needs the descriptors that this test takes away";
#endif
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    EngineOptions options = options_of(r, 2);
    if (r == 0) {
      store->wait("test/waits", Deadline::after_ms(60'000));
      const rlimit none{3, 3};  // descriptors
      setrlimit(RLIMIT_NOFILE, &none);
    }
    try {
      make_engine(engine_row("host"), new_rank(), options, std::make_shared<WaitingStore>(store));
    } catch (const Error& error) {
      report.code = static_cast<int64_t>(error.code());
      report.say(error.message());
    }
  });
  ranks.expect_all_well();
  EXPECT_NE(ranks.report(0).code, 0);
  EXPECT_EQ(ranks.report(1).code, static_cast<int64_t>(Code::aborted));
  EXPECT_EQ(ranks.report(1).text,
            text("host engine: rank 0 gave up while the gang was made: ", ranks.report(0).text));
}

}  // namespace
}  // namespace gangway::test
