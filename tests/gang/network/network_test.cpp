// The engine between hosts, with ranks as processes of one host: its results and connections.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <time.h>

#include "gang/gang_matrix.h"
#include "gang/network/network_ranks.h"
#include "gang/network/sockets_held.h"
#include "gang/rendezvous/resolve.h"
#include "gang/works_in_flight.h"

namespace gangway::test {
namespace {

class NetworkMatrix : public testing::TestWithParam<int> {};

TEST_P(NetworkMatrix, EveryOperationEqualsTheSerialFold) { run_processes(GetParam(), matrix); }

INSTANTIATE_TEST_SUITE_P(Ranks, NetworkMatrix, testing::Values(2, 3));

TEST(Network, WorksThatShareMemoryRunInTheOrderOfTheCalls) {
  run_processes(3, [](Gang& root) { dependent_works(root); });
}

TEST(Network, LongCallsAreRightOverSeveralChunks) { run_processes(3, several_chunks); }

// Bytes that tell where they stand in the message of `rank`.
std::vector<uint8_t> message_of(int rank, size_t bytes) {
  std::vector<uint8_t> all(bytes);
  for (size_t i = 0; i < bytes; ++i) all[i] = static_cast<uint8_t>(i % 251 + static_cast<size_t>(rank) * 3);
  return all;
}

// Longer than the memory that the two ranks share, which both directions fill at the same time.
TEST(Network, LongMessagesOfOneHostArriveWhole) {
  run_processes(2, [](Gang& root) {
    const int peer = 1 - root.rank();
    for (const size_t bytes :
         {size_t{0}, size_t{1}, size_t{4097}, size_t{256} << 10, size_t{1} << 20, (size_t{5} << 20) + 3}) {
      const std::vector<uint8_t> out = message_of(root.rank(), bytes);
      std::vector<uint8_t> in(bytes);
      Collective send, receive;
      send.op = CollectiveOp::send;
      send.in = out.data();
      receive.op = CollectiveOp::recv;
      receive.out = in.data();
      send.peer = receive.peer = peer;
      send.count = receive.count = bytes;
      send.dtype = receive.dtype = DType::u8;
      const WorkPtr sent = root.run(Channel::user, send);
      root.run_now(Channel::user, receive);
      sent->wait(Deadline::never());
      EXPECT_TRUE(in == message_of(peer, bytes)) << bytes;
    }
  });
}

TEST(Network, ADataConnectionOpensWhenTwoRanksFirstNeedIt) {
  run_processes(4, [](Gang& root) {
    std::vector<float> x(100'000, 1);
    sum(root, 1);
    const int before = count_sockets();
    const int pair[] = {0, 3};
    const GangPtr some = root.create_gang(pair);
    EXPECT_EQ(count_sockets(), before) << "short calls ride in notes";
    if (some != nullptr) some->run_now(Channel::user, sum_of(x));
    EXPECT_EQ(count_sockets(), before + (some != nullptr ? 1 : 0));
    root.barrier();
    if (some != nullptr) some->run_now(Channel::user, sum_of(x));
    EXPECT_EQ(count_sockets(), before + (some != nullptr ? 1 : 0)) << "once";
  });
}

// Rank 1 asks for the data connection. Its end may reach rank 0 before the answer that opens that connection.
TEST(Network, AMessageArrivesThoughItsSenderLeavesAtOnce) {
  for (int i = 0; i < 5; ++i) {
    Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report&) {
      const GangPtr root = make_gang(rank, 2, store);
      std::vector<uint8_t> message = message_of(1, 100'000), in(message.size());
      Collective c;
      c.op = rank == 1 ? CollectiveOp::send : CollectiveOp::recv;
      c.in = message.data();
      c.out = in.data();
      c.peer = 1 - rank;
      c.count = message.size();
      c.dtype = DType::u8;
      root->run_now(Channel::user, c);
      EXPECT_TRUE(rank == 1 || in == message);
    });
    ranks.expect_all_well();
  }
}

// It has begun its part of a long call, and is stopped until the other's deadline has passed.
TEST(Network, ARankThatIsStoppedWhileItsDataConnectionOpensIsNotLost) {
  Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    GangOptions options = network_options(rank, 2, store);
    options.timeout_ms = 3000;
    const GangPtr root = Gang::create(options), child = root->duplicate();
    std::vector<float> x(100'000, 1);
    WorkPtr work;
    if (rank == 1) work = child->run(Channel::user, sum_of(x));
    sum(*root, 1);
    report.stage = 1;
    while (report.turn == 0) usleep(1000);
    if (rank == 0) {
      report_failure(report, *child, [&] { child->run_now(Channel::user, sum_of(x)); });
      usleep(300'000);
      report.stage = 2;
    }
    EXPECT_EQ(sum(*root, 1), 2);
  });
  for (const int r : {0, 1}) ranks.wait_for_stage(r, 1);
  ranks.kill(1, SIGSTOP);
  for (const int r : {0, 1}) ranks.report(r).turn = 1;
  ranks.wait_for_stage(0, 2);
  ranks.kill(1, SIGCONT);
  ranks.expect_all_well();
  EXPECT_EQ(code_of(ranks.report(0)), Code::timeout) << ranks.report(0).text;
}

int listening_port() {
  for (int fd = 0; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    if (const int port = local_port(fd); port != 0) return port;
  }
  return 0;
}

int64_t processor_us() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000 + t.tv_nsec / 1000;
}

// The connection stays in the queue of the socket at which the rank listens.
TEST(Network, AStrangerKeepsNoProcessorBusyWhereDescriptorsHaveRunOut) {
  run_processes(2, [](Gang& root) {
    sum(root, 1);
    if (root.rank() == 1) {
      const int stranger = socket(AF_INET, SOCK_STREAM, 0), next = dup(0);
      close(next);
      rlimit before{};
      getrlimit(RLIMIT_NOFILE, &before);
      rlimit none_left = before;
      none_left.rlim_cur = static_cast<rlim_t>(next);
      setrlimit(RLIMIT_NOFILE, &none_left);
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(static_cast<uint16_t>(listening_port()));
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      EXPECT_EQ(connect(stranger, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
      const int64_t start = processor_us();
      usleep(500'000);
      EXPECT_LT(processor_us() - start, 10'000);
      setrlimit(RLIMIT_NOFILE, &before);
      close(stranger);
    }
    EXPECT_EQ(sum(root, 1), 2);
  });
}

TEST(Network, ARankThatMayOpenTooFewConnectionsSaysSoAtTheStart) {
  Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    if (rank == 1) {
      const int next = dup(0);
      close(next);
      const rlimit few{static_cast<rlim_t>(next) + 12, static_cast<rlim_t>(next) + 12};
      setrlimit(RLIMIT_NOFILE, &few);
    }
    try {
      make_gang(rank, 2, store);
    } catch (const Error& error) {
      report.code = static_cast<int>(error.code());
      std::snprintf(report.text, sizeof report.text, "%s", error.what());
    }
  });
  ranks.expect_all_well();
  EXPECT_EQ(code_of(ranks.report(1)), Code::io);
  EXPECT_EQ(code_of(ranks.report(0)), Code::gang);
  for (const int r : {0, 1})
    EXPECT_NE(
        std::string(ranks.report(r).text).find("the connections to 1 rank need 1 more: raise the limit to "),
        std::string::npos)
        << ranks.report(r).text;
}

TEST(Network, AHostWithoutSharedMemoryForALongCallSaysSo) {
  Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    GangOptions options = network_options(rank, 2, store);
    options.memory_limit = 100'000;
    const GangPtr root = Gang::create(options);
    EXPECT_EQ(sum(*root, 1), 2) << "a short call needs none";
    std::vector<float> x(1 << 20, 1);
    report_failure(report, *root, [&] { root->run_now(Channel::user, sum_of(x)); });
  });
  for (const int r : {0, 1}) {
    EXPECT_TRUE(ranks.ended_well(r)) << ranks.report(r).text;
    EXPECT_EQ(code_of(ranks.report(r)), Code::out_of_memory) << ranks.report(r).text;
    EXPECT_NE(std::string(ranks.report(r).text).find("of 100000 bytes"), std::string::npos)
        << ranks.report(r).text;
  }
}

TEST(Network, ChildGangsCountTheirOwnCalls) {
  run_processes(4, [](Gang& root) {
    const GangPtr pair = root.split(root.rank() % 2, -root.rank());  // in the opposite order
    EXPECT_EQ(pair->size(), 2);
    EXPECT_EQ(pair->rank(), root.rank() < 2 ? 1 : 0);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(sum(*pair, 1), 2) << i;
    EXPECT_EQ(sum(root, 1), 4);
    const int first[] = {0, 3};
    const GangPtr some = root.create_gang(first);
    EXPECT_EQ(some != nullptr, root.rank() % 3 == 0);
    if (some != nullptr) small_matrix(*some);
  });
}

TEST(Network, CallsOfTwoChannelsMayCross) {
  run_processes(2, [](Gang& root) {
    std::vector<float> a(100'000, 1), b(100'000, 2);
    const bool first = root.rank() == 0;
    const WorkPtr one = root.run(first ? Channel::user : Channel::tp, sum_of(first ? a : b));
    const WorkPtr two = root.run(first ? Channel::tp : Channel::user, sum_of(first ? b : a));
    two->wait(Deadline::never());
    one->wait(Deadline::never());
    EXPECT_EQ(a.back(), 2);
    EXPECT_EQ(b.front(), 4);
  });
}

TEST(Network, AProbeSeesTheNextMessageOnly) {
  run_processes(2, [](Gang& root) {
    std::vector<float> x(3000, 5);
    Collective c;
    c.peer = 1 - root.rank();
    c.count = x.size();
    if (root.rank() == 0) {
      c.op = CollectiveOp::send;
      c.in = x.data();
      root.run_now(Channel::user, c);
      return;
    }
    std::optional<Message> message;
    while (!(message = root.probe(Channel::user, 0))) usleep(100);
    EXPECT_EQ(message->count, 3000U);
    x.assign(x.size(), 0);
    c.op = CollectiveOp::recv;
    c.out = x.data();
    root.run_now(Channel::user, c);
    EXPECT_EQ(x.back(), 5);
    EXPECT_FALSE(root.probe(Channel::user, 0));
  });
}

}  // namespace
}  // namespace gangway::test
