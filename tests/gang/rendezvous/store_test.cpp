#include "gang/rendezvous/store.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/expect_error.h"
#include "base/interrupt.h"
#include "gang/descriptor.h"
#include "gang/rendezvous/hmac.h"
#include "gang/rendezvous/tcp_store.h"
#include "support/scratch.h"

namespace gangway {
namespace {

using Clock = std::chrono::steady_clock;

TcpStoreOptions options_for(int rank, int size, const std::string& job) {
  TcpStoreOptions options;
  options.secret.fill(7);
  options.job = job + "." + std::to_string(getpid());
  options.rank = rank;
  options.size = size;
  options.timeout_ms = 20'000;
  return options;
}

int free_port() {
  const Descriptor fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin_port);
}

// A caller's store: a map, and counts of what was called.
struct Theirs {
  std::mutex mutex;
  std::map<std::string, std::string> values;
  int answer = 0;
  std::atomic<int> released{0};

  static int put(void* user, const char* key, const void* value, size_t size) {
    Theirs& self = *static_cast<Theirs*>(user);
    const std::lock_guard lock(self.mutex);
    self.values[key].assign(static_cast<const char*>(value), size);
    return self.answer;
  }
  static int get(void* user, const char* key, void* out, size_t capacity, int64_t* out_size) {
    Theirs& self = *static_cast<Theirs*>(user);
    const std::lock_guard lock(self.mutex);
    const auto found = self.values.find(key);
    *out_size = found == self.values.end() ? -1 : static_cast<int64_t>(found->second.size());
    if (*out_size >= 0) memcpy(out, found->second.data(), std::min(capacity, found->second.size()));
    return self.answer;
  }
  static int remove(void* user, const char* key) {
    Theirs& self = *static_cast<Theirs*>(user);
    const std::lock_guard lock(self.mutex);
    self.values.erase(key);
    return self.answer;
  }
  static void release(void* user) { ++static_cast<Theirs*>(user)->released; }

  StoreCallbacks callbacks() { return {put, get, remove, this, release}; }
};

class AnyStore : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "memory") store_ = make_memory_store();
    if (GetParam() == "file") store_ = make_file_store(scratch_.path() + "/store");
    if (GetParam() == "callback") store_ = make_callback_store(theirs_.callbacks());
    if (GetParam() == "prefix") store_ = make_prefix_store(make_memory_store(), "7/");
    if (GetParam() == "local") store_ = make_tcp_store(options_for(0, 1, "any"));
    if (GetParam() == "tcp") {
      TcpStoreOptions options = options_for(0, 1, "any");
      options.host = "127.0.0.1";
      options.port = free_port();
      store_ = make_tcp_store(options);
    }
  }

  Scratch scratch_;
  Theirs theirs_;
  std::shared_ptr<Store> store_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, AnyStore,
                         testing::Values("memory", "file", "callback", "prefix", "local", "tcp"),
                         [](const auto& info) { return info.param; });

using test::error_of;

TEST_P(AnyStore, GivesBackWhatWasPutAndReplacesIt) {
  EXPECT_EQ(store_->get("key"), std::nullopt);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{333}, kStoreValueLimit}) {
    std::string value(size, '\0');
    for (size_t i = 0; i < size; ++i) value[i] = static_cast<char>(i * 7 + size);
    store_->put("key", value);
    EXPECT_TRUE(store_->get("key") == value) << size;
  }
  store_->remove("key");
  EXPECT_EQ(store_->get("key"), std::nullopt);
  store_->remove("key");  // nothing to remove is no error
}

TEST_P(AnyStore, KeysOfAnyBytesStayApart) {
  const std::string longest(kStoreKeyLimit - 2, 'k');  // the prefix takes two
  const std::array<std::string, 9> keys = {"a/b",   "../a",           ".", "..", "%61", "a", "A",
                                           longest, longest.substr(1)};
  for (const std::string& key : keys) store_->put(key, "value of " + key);
  for (const std::string& key : keys) EXPECT_EQ(store_->get(key), "value of " + key);
}

TEST_P(AnyStore, RefusesKeysAndValuesOverTheLimits) {
  EXPECT_EQ(error_of([&] { store_->put("", "x"); }).code(), Code::invalid_argument);
  EXPECT_EQ(error_of([&] { store_->put(std::string(kStoreKeyLimit + 1, 'k'), "x"); }).code(),
            Code::invalid_argument);
  EXPECT_EQ(error_of([&] { store_->get(std::string("a\0b", 3)); }).code(), Code::invalid_argument);
  const Error error = error_of([&] { store_->put("key", std::string(kStoreValueLimit + 1, 'x')); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_NE(error.message().find("1048577"), std::string::npos) << error.message();
  store_->put("key", "still alive");
  EXPECT_EQ(store_->get("key"), "still alive");
}

TEST_P(AnyStore, WaitEndsWhenAnotherThreadPuts) {
  std::thread putter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    store_->put("late", "here");
  });
  EXPECT_EQ(store_->wait("late", Deadline::after_ms(20'000)), "here");
  putter.join();
  EXPECT_EQ(store_->wait("late", Deadline::after_ms(0)), "here") << "what is there needs no time";
}

TEST_P(AnyStore, WaitTimesOutAndNamesTheKey) {
  const auto begin = Clock::now();
  const Error error = error_of([&] { store_->wait("never", Deadline::after_ms(80)); });
  EXPECT_EQ(error.code(), Code::timeout);
  EXPECT_NE(error.message().find("never\""), std::string::npos) << error.message();
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(78));
}

TEST_P(AnyStore, WaitAsksTheInterruptHookAndTheStoreWorksOn) {
  static std::atomic<int> asked;
  asked = 0;
  set_interrupt([](void*) { return ++asked >= 3 ? 1 : 0; }, nullptr, nullptr);
  const Error error = error_of([&] { store_->wait("never", Deadline::never()); });
  set_interrupt(nullptr, nullptr, nullptr);
  EXPECT_EQ(error.code(), Code::caller);
  EXPECT_EQ(asked, 3);
  store_->put("key", "1");
  EXPECT_EQ(store_->get("key"), "1");
}

TEST_P(AnyStore, EightThreadsMeet) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int rank = 0; rank < 8; ++rank)
    threads.emplace_back([&, rank] {
      store_->put("rank" + std::to_string(rank), std::to_string(rank * rank));
      for (int peer = 0; peer < 8; ++peer)
        wrong += store_->wait("rank" + std::to_string(peer), Deadline::after_ms(20'000)) !=
                 std::to_string(peer * peer);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(PrefixStore, KeepsGangsOfOneStoreApart) {
  const auto inner = make_memory_store();
  const auto a = make_prefix_store(inner, "a/"), b = make_prefix_store(inner, "b/");
  a->put("key", "of a");
  EXPECT_EQ(b->get("key"), std::nullopt);
  EXPECT_EQ(inner->get("a/key"), "of a");
}

TEST(FileStore, MakesItsFolderForThisUserOnly) {
  const Scratch scratch;
  const std::string folder = scratch.path() + "/new";
  const auto store = make_file_store(folder);
  struct stat facts {};
  ASSERT_EQ(stat(folder.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700U);
  store->put("key", "value");
  EXPECT_EQ(make_file_store(folder)->get("key"), "value") << "seen by another store of the folder";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1) << "no temporary file stays";
}

TEST(FileStore, RefusesAFolderThatOthersMayWrite) {
  const Scratch scratch;
  for (const auto& [mode, word] :
       {std::pair(0777, "0777"), std::pair(0770, "0770"), std::pair(0702, "0702")}) {
    ASSERT_EQ(chmod(scratch.path().c_str(), static_cast<mode_t>(mode)), 0);
    const Error error = error_of([&] { make_file_store(scratch.path()); });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_EQ(error.message(), text("store: ", scratch.path(), " has mode ", word, " and owner ", geteuid(),
                                    "; only this user (", geteuid(), ") may be able to write into it"));
  }
  ASSERT_EQ(chmod(scratch.path().c_str(), 0755), 0);
  EXPECT_NO_THROW(make_file_store(scratch.path())) << "others may look";
  EXPECT_EQ(error_of([&] { make_file_store(scratch.path() + "/a/b"); }).code(), Code::io);
}

TEST(FileStore, RefusesAFolderOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a folder of another user";
  const Scratch scratch;
  ASSERT_EQ(chown(scratch.path().c_str(), 12345, 0), 0);
  const Error error = error_of([&] { make_file_store(scratch.path()); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_NE(error.message().find("has mode 0700 and owner 12345"), std::string::npos) << error.message();
}

TEST(CallbackStore, ReleasesOnceAlsoWhenRefused) {
  Theirs theirs;
  make_callback_store(theirs.callbacks());
  EXPECT_EQ(theirs.released, 1);
  StoreCallbacks callbacks = theirs.callbacks();
  callbacks.get = nullptr;
  EXPECT_EQ(error_of([&] { make_callback_store(callbacks); }).code(), Code::invalid_argument);
  EXPECT_EQ(theirs.released, 2);
}

TEST(CallbackStore, AFailingCallbackIsTheCallersError) {
  Theirs theirs;
  const auto store = make_callback_store(theirs.callbacks());
  theirs.answer = 5;
  for (const Error& error : {error_of([&] { store->put("key", "x"); }), error_of([&] { store->get("key"); }),
                             error_of([&] { store->remove("key"); })}) {
    EXPECT_EQ(error.code(), Code::caller);
    EXPECT_NE(error.message().find("returned 5"), std::string::npos) << error.message();
  }
  theirs.answer = 0;
  theirs.values["key"].assign(kStoreValueLimit + 1, 'x');
  EXPECT_EQ(error_of([&] { store->get("key"); }).code(), Code::caller);
}

TEST(TcpStore, RanksMeetWhicheverComesFirst) {
  for (const bool local : {true, false}) {
    TcpStoreOptions shared = options_for(0, 8, "meet");
    if (!local) {
      shared.host = "127.0.0.1";
      shared.port = free_port();
    }
    std::atomic<int> wrong{0};
    std::vector<std::thread> ranks;
    for (int rank = 7; rank >= 0; --rank) {
      ranks.emplace_back([&, rank] {
        TcpStoreOptions options = shared;
        options.rank = rank;
        const auto store = make_tcp_store(options);
        store->put("rank" + std::to_string(rank), std::string(1000 + static_cast<size_t>(rank), 'v'));
        for (int peer = 0; peer < 8; ++peer)
          wrong += store->wait("rank" + std::to_string(peer), Deadline::after_ms(20'000)).size() !=
                   1000 + static_cast<size_t>(peer);
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    for (std::thread& rank : ranks) rank.join();
    EXPECT_EQ(wrong, 0);
  }
}

TEST(TcpStore, TheServerServesPeersAfterRankZeroLetGo) {
  auto zero = make_tcp_store(options_for(0, 3, "linger"));
  zero->put("go", "now");
  zero.reset();  // waits for nobody: the peers come after it
  const auto one = make_tcp_store(options_for(1, 3, "linger"));
  EXPECT_EQ(one->wait("go", Deadline::after_ms(5000)), "now");
  const auto two = make_tcp_store(options_for(2, 3, "linger"));  // comes late
  EXPECT_EQ(two->wait("go", Deadline::after_ms(5000)), "now");
}

TEST(TcpStore, TheServerEndsWhenEverybodyLeft) {
  for (int round = 0; round < 3; ++round) {
    auto zero = make_tcp_store(options_for(0, 2, "end"));
    auto one = make_tcp_store(options_for(1, 2, "end"));
    EXPECT_EQ(one->get("key"), std::nullopt) << "a new server knows nothing of the former";
    one->put("key", "value");
    zero.reset();
    one.reset();
    TcpStoreOptions options = options_for(1, 2, "end");
    options.timeout_ms = 100;
    for (int i = 0; i < 100; ++i) {
      if (error_of([&] { make_tcp_store(options); }).code() == Code::timeout) break;
      ASSERT_LT(i, 99) << "the server does not end";
    }
  }
}

TEST(TcpStore, ASecondStoreOfOneJobSharesTheServer) {
  const auto zero = make_tcp_store(options_for(0, 2, "second"));
  const auto one = make_tcp_store(options_for(1, 2, "second"));
  const auto again_one = make_tcp_store(options_for(1, 2, "second"));
  const auto again_zero = make_tcp_store(options_for(0, 2, "second"));
  again_one->put("key", "value");
  EXPECT_EQ(again_zero->get("key"), "value");
}

TEST(TcpStore, NoServerIsATimeoutThatNamesTheRank) {
  TcpStoreOptions options = options_for(3, 4, "nobody");
  options.timeout_ms = 120;
  const Error error = error_of([&] { make_tcp_store(options); });
  EXPECT_EQ(error.code(), Code::timeout);
  EXPECT_NE(error.message().find("rank 3"), std::string::npos) << error.message();
}

TEST(TcpStore, AnotherSizeIsRefusedWithBothNumbers) {
  const auto zero = make_tcp_store(options_for(0, 4, "size"));
  const Error error = error_of([&] { make_tcp_store(options_for(1, 8, "size")); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_NE(error.message().find("one of 8 ranks, rank 0 as one of 4"), std::string::npos) << error.message();
}

TEST(TcpStore, BadOptionsAreRefused) {
  EXPECT_EQ(error_of([&] { make_tcp_store(options_for(4, 4, "bad")); }).code(), Code::invalid_argument);
  EXPECT_EQ(error_of([&] { make_tcp_store(options_for(-1, 4, "bad")); }).code(), Code::invalid_argument);
  TcpStoreOptions options = options_for(0, 4, "bad");
  options.host = "127.0.0.1";
  EXPECT_EQ(error_of([&] { make_tcp_store(options); }).code(), Code::invalid_argument) << "no port";
}

}  // namespace
}  // namespace gangway
