// Host names of a store: a name service that is silent, or fails for a while, and IPv6 addresses.
#include "gang/rendezvous/resolve.h"

#include <dlfcn.h>
#include <netdb.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>

#include "base/expect_error.h"
#include "gang/rendezvous/tcp_store.h"

namespace {
std::atomic<int> silent_calls{0};   // questions that the silent name service still holds
std::atomic<int> failures_left{0};  // how often the name service fails for a while
std::atomic<bool> silence_ends{false};
}  // namespace

// Stands in for libc's: "silent.test" gets no answer, "later.test" at first a temporary failure.
extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints, addrinfo** found) {
  const std::string name = host;
  const bool number = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (!number && name == "silent.test") {
    ++silent_calls;
    while (!silence_ends) usleep(1000);
    --silent_calls;
    return EAI_FAIL;
  }
  if (!number && name == "later.test") {
    if (failures_left.fetch_sub(1) > 0) return EAI_AGAIN;
    host = "127.0.0.1";
  }
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return next(host, port, hints, found);
}

namespace gangway::test {
namespace {

int64_t ms_of(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start)
      .count();
}

TcpStoreOptions options_of(const std::string& host, int port, int rank, int64_t timeout_ms) {
  TcpStoreOptions options;
  options.job = "resolve";
  options.rank = rank;
  options.size = 2;
  options.host = host;
  options.port = port;
  options.timeout_ms = timeout_ms;
  return options;
}

TEST(Resolve, ASilentNameServiceKeepsTheDeadlineOfEveryRank) {
  silence_ends = false;
  for (const int rank : {0, 1}) {
    Error error(Code::ok, "");
    const int64_t took = ms_of(
        [&] { error = error_of([&] { make_tcp_store(options_of("silent.test", 29999, rank, 200)); }); });
    EXPECT_EQ(error.code(), Code::timeout) << error.message();
    EXPECT_NE(error.message().find("\"silent.test\" was not found in time: the name service did not answer"),
              std::string::npos)
        << error.message();
    EXPECT_LT(took, 5000) << "rank " << rank;
  }
  silence_ends = true;
  while (silent_calls != 0) usleep(1000);
}

TEST(Resolve, ATemporaryFailureIsTriedAgain) {
  failures_left = 3;
  const auto found = resolve("later.test", 80, false, Deadline::after_ms(10'000));
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].bytes.ss_family, AF_INET);
}

TEST(Resolve, ATemporaryFailureThatLastsIsATimeoutThatSaysSo) {
  failures_left = 1 << 20;
  const Error error = error_of([] { resolve("later.test", 80, false, Deadline::after_ms(100)); });
  EXPECT_EQ(error.code(), Code::timeout);
  EXPECT_NE(error.message().find(gai_strerror(EAI_AGAIN)), std::string::npos) << error.message();
}

TEST(Resolve, BracketsOfAnIpv6AddressAreUnderstood) {
  EXPECT_EQ(without_brackets("[::1]"), "::1");
  EXPECT_EQ(without_brackets("::1"), "::1");
  EXPECT_EQ(without_brackets("node-1"), "node-1");
  EXPECT_EQ(without_brackets("[]"), "[]");
  EXPECT_EQ(without_brackets(""), "");
  EXPECT_EQ(host_and_port("[::1]", 5), "[::1]:5");
  EXPECT_EQ(host_and_port("::1", 5), "[::1]:5");
  EXPECT_EQ(host_and_port("10.0.0.1", 5), "10.0.0.1:5");
  for (const char* const host : {"[::1]", "::1"}) {
    const auto found = resolve(host, 5, true, Deadline::after_ms(1000));
    ASSERT_EQ(found.size(), 1U) << host;
    EXPECT_EQ(found[0].bytes.ss_family, AF_INET6) << host;
  }
}

}  // namespace
}  // namespace gangway::test
