// How connections between ranks open, or do not, and what a forked child keeps of them.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "gang/network/dial.h"
#include "gang/network/door.h"
#include "gang/network/sockets.h"
#include "gang/network/sockets_held.h"
#include "gang/processes.h"
#include "gang/rendezvous/resolve.h"
#include "gang/sum_of.h"
#include "gang/thread_ranks.h"

namespace gangway::test {
namespace {

using network::Contacts;
using network::Dial;
using network::Door;
using network::Listener;
using network::Opened;
using network::Purpose;

EngineOptions options_of(int rank) {
  EngineOptions options;
  options.rank = rank;
  options.size = 2;
  return options;
}

SocketAddress loopback(int port) { return resolve("127.0.0.1", port, false, Deadline::never()).at(0); }

// The two ends of a connection from rank 0 to rank 1, in one thread.
class Handshake : public testing::Test {
 protected:
  Handshake() {
    Listener listener = network::listen_at("127.0.0.1", "the test");
    const std::vector<Contacts::Peer> peers = {{1, "rank 0", std::nullopt},
                                               {2, "rank 1", loopback(listener.port)}};
    lower_ = std::make_shared<Contacts>(options_of(0), Secret{}, peers);
    higher_ = std::make_shared<Contacts>(options_of(1), Secret{}, peers);
    door_ = std::make_unique<Door>(higher_, std::move(listener));
    dial_ = std::make_unique<Dial>(*lower_, 1, Purpose::data, Deadline::after_ms(60'000));
  }
  // Goes on until the lower rank has sent its proof.
  void go_on_until_it_proves() {
    while (dial_->step() == Dial::State::connects || dial_->state() == Dial::State::greets) {
      EXPECT_TRUE(door_->serve().empty());
      usleep(100);
    }
    ASSERT_EQ(dial_->state(), Dial::State::proves);
  }

  std::shared_ptr<const Contacts> lower_, higher_;
  std::unique_ptr<Door> door_;
  std::unique_ptr<Dial> dial_;
};

TEST_F(Handshake, IsOpenForTheLowerRankOnlyWhenTheHigherOneHasSaidSo) {
  go_on_until_it_proves();
  for (int i = 0; i < 20; ++i, usleep(100)) ASSERT_EQ(dial_->step(), Dial::State::proves);
  std::vector<Opened> opened;
  while (opened.empty()) opened = door_->serve();
  while (dial_->step() == Dial::State::proves) usleep(100);
  ASSERT_EQ(dial_->state(), Dial::State::open);
  const Opened own = dial_->take();
  EXPECT_EQ(own.peer, 1);
  EXPECT_EQ(opened[0].peer, 0);
  EXPECT_EQ(own.to_higher, opened[0].to_higher);
  EXPECT_EQ(own.to_lower, opened[0].to_lower);
}

TEST_F(Handshake, OfARankThatGivesItUpIsOpenForNone) {
  go_on_until_it_proves();
  door_->close();
  while (dial_->step() == Dial::State::proves) usleep(100);
  EXPECT_EQ(dial_->state(), Dial::State::failed);
}

// The system drops requests to a listener whose queue is full.
TEST(Dials, AHostThatDoesNotAnswerIsGivenUpAfterTwoSeconds) {
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress any = loopback(0);
  ASSERT_EQ(bind(listener.get(), any.get(), any.size), 0);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  const SocketAddress full = loopback(local_port(listener.get()));
  std::vector<Descriptor> waiting;
  for (int i = 0, reason = 0; i < 3; ++i) waiting.push_back(network::begin_dial(full, reason));
  const Contacts contacts(options_of(0), Secret{}, {{1, "rank 0", std::nullopt}, {2, "rank 1", full}});
  const auto start = std::chrono::steady_clock::now();
  Dial dial(contacts, 1, Purpose::data, Deadline::after_ms(60'000));
  while (dial.step() == Dial::State::connects) usleep(1000);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(dial.state(), Dial::State::failed);
  EXPECT_EQ(dial.why(), "Connection timed out");
  EXPECT_FALSE(dial.is_refused());
  EXPECT_GE(took.count(), 1.9);
  EXPECT_LT(took.count(), 10);
}

void wait_for_sockets(int count) {
  for (int i = 0; i < 5000 && count_sockets() != count; ++i) usleep(1000);
  EXPECT_EQ(count_sockets(), count);
}
int listening_socket() {
  for (int fd = 0; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
        local_port(fd) != 0)
      return fd;
  }
  return -1;
}
int count_sockets_of_a_forked_child() {
  const pid_t child = fork();
  if (child == 0) _exit(count_sockets());
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

GangPtr make_gang(int rank, int size, const std::shared_ptr<Store>& store, int64_t timeout_ms = 60'000) {
  GangOptions options = thread_rank_options();
  options.engine = "network";
  options.rank = rank;
  options.size = size;
  options.store = store;
  options.timeout_ms = timeout_ms;
  return Gang::create(options);
}

float sum(Gang& gang, size_t count) {
  std::vector<float> x(count, 1);
  gang.run_now(Channel::user, sum_of(x));
  return x[0];
}

TEST(ForkedChildren, KeepNoConnectionThatHasProvedNothing) {
  Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report&) {
    const int before = count_sockets();
    const GangPtr root = make_gang(rank, 2, store);
    EXPECT_EQ(sum(*root, 1), 2);
    if (rank == 1) {
      const int connected = count_sockets();
      int reason = 0;
      const Descriptor stranger = network::begin_dial(loopback(local_port(listening_socket())), reason);
      wait_for_sockets(connected + 2);  // its two ends
      EXPECT_EQ(count_sockets_of_a_forked_child(), before + 1) << "the test's own end";
    }
    EXPECT_EQ(sum(*root, 1), 2);
    root->shutdown(60'000);
  });
  ranks.expect_all_well();
}

// Rank 0 opens the connection to rank 1, which is stopped.
TEST(ForkedChildren, KeepNoConnectionThatTheirParentOpens) {
  Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    const int before = count_sockets();
    const GangPtr root = make_gang(rank, 2, store), child = root->duplicate();
    std::vector<float> x(100'000, 1);
    WorkPtr work;
    if (rank == 1) work = child->run(Channel::user, sum_of(x));
    EXPECT_EQ(sum(*root, 1), 2);
    const int connected = count_sockets();
    report.stage = 1;
    while (report.turn == 0) usleep(1000);
    if (rank == 0) {
      work = child->run(Channel::user, sum_of(x));
      wait_for_sockets(connected + 1);
      EXPECT_EQ(count_sockets_of_a_forked_child(), before);
      report.stage = 2;
    }
    work->wait(Deadline::never());
    EXPECT_EQ(x[0], 2);
    root->shutdown(60'000);
  });
  for (const int r : {0, 1}) ranks.wait_for_stage(r, 1);
  ranks.kill(1, SIGSTOP);
  for (const int r : {0, 1}) ranks.report(r).turn = 1;
  ranks.wait_for_stage(0, 2);
  ranks.kill(1, SIGCONT);
  ranks.expect_all_well();
}

// Functions that atexit() has had before the first network run after the networks have ended.
TEST(ForkedChildren, MayComeAfterTheEndOfTheNetworks) {
  static Report* own = nullptr;
  Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    own = &report;
    std::atexit([] {
      const pid_t child = fork();
      if (child == 0) _exit(0);
      waitpid(child, nullptr, 0);
      own->stage = 1;
    });
    GangPtr root = make_gang(rank, 2, store);
    EXPECT_EQ(sum(*root, 1), 2);
    root->shutdown(60'000);
    root.reset();
    std::exit(0);
  });
  ranks.expect_all_well();
  for (const int r : {0, 1}) EXPECT_EQ(ranks.report(r).stage, 1);
}

// Rank 1 does not listen any more.
TEST(Connections, ACallThatEndsAtItsOwnDeadlineSaysWhyAPeerWasNotReached) {
  Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    const GangPtr root = make_gang(rank, 2, store);
    const int closed = rank == 1 ? shutdown(listening_socket(), SHUT_RDWR) : 0;
    EXPECT_EQ(closed, 0);
    EXPECT_EQ(sum(*root, 1), 2);
    std::vector<float> x(100'000, 1);
    const WorkPtr work = root->run(Channel::user, sum_of(x));
    try {
      work->wait(Deadline::after_ms(500));
    } catch (const Error& error) {
      report.code = static_cast<int64_t>(error.code());
      report.say(error.message());
    }
    report.stage = 1;
    while (report.turn == 0) usleep(1000);
  });
  for (const int r : {0, 1}) ranks.wait_for_stage(r, 1);
  for (const int r : {0, 1}) ranks.report(r).turn = 1;
  ranks.expect_all_well();
  const Report& lower = ranks.report(0);
  EXPECT_EQ(lower.code, static_cast<int64_t>(Code::not_ready)) << lower.text;
  EXPECT_NE(std::strstr(lower.text, "(not reached for data: Connection refused)"), nullptr) << lower.text;
}

}  // namespace
}  // namespace gangway::test
