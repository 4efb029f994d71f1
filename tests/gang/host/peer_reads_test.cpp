// Memory of a rank's own that the others read through the kernel.
#include "gang/host/memory/peer_reads.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>

#include "gang/host/input.h"
#include "gang/host/joined.h"
#include "gang/processes.h"

namespace gangway::test {
namespace {

using host::Arena;
using host::PeerReads;
using Result = PeerReads::Result;

constexpr size_t kElements = 300'000;  // more than one step, and no whole number of pages

// Rank r's input of a call, in memory of its own.
std::vector<float> numbers(int r, size_t count) {
  std::vector<float> all(count);
  std::iota(all.begin(), all.end(), static_cast<float>(r) * 1000);
  return all;
}

// Whether one child of this process may read another one, as ranks do.
bool kernel_allows_it() {
  static const int word = 7;
  const pid_t read = fork();
  if (read == 0) {
    pause();
    _exit(0);
  }
  const pid_t reads = fork();
  if (reads == 0) {
    int here = 0;
    const iovec to{&here, sizeof here}, from{const_cast<int*>(&word), sizeof word};
    _exit(process_vm_readv(read, &to, 1, &from, 1, 0) == sizeof word && here == word ? 0 : 1);
  }
  int status = 0;
  waitpid(reads, &status, 0);
  kill(read, SIGKILL);
  waitpid(read, nullptr, 0);
  return status == 0;
}

// Every operation that only moves, each long enough. The first ones may come before all ranks have tried to
// read.
void moves_through_the_kernel(Engine& engine, Stream& stream) {
  const int rank = engine.rank(), size = engine.size();
  const auto ranks = static_cast<size_t>(size);
  uint64_t before = 0;
  for (int round = 0; round < 4; ++round) {
    before = engine.traffic().bytes_staged;
    std::vector<float> in = numbers(rank, kElements), all(kElements * ranks), one(kElements);
    Collective c;
    c.op = CollectiveOp::all_gather;
    c.in = in.data();
    c.out = all.data();
    c.count = kElements;
    now(engine, c, stream);
    for (int r = 0; r < size; ++r)
      if (!std::equal(all.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(r) * kElements),
                      all.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(r + 1) * kElements),
                      numbers(r, kElements).begin()))
        fail(Code::internal, "all_gather of rank ", r);
    c.op = CollectiveOp::broadcast;
    c.in = in.data();
    c.out = one.data();
    c.peer = size - 1;
    now(engine, c, stream);
    if (one != numbers(size - 1, kElements)) fail(Code::internal, "broadcast");
    std::vector<float> parts = numbers(rank, kElements * ranks), got(kElements * ranks);
    c.op = CollectiveOp::all_to_all;
    c.in = parts.data();
    c.out = got.data();
    now(engine, c, stream);
    for (size_t r = 0; r < ranks; ++r)
      if (got[r * kElements] !=
          numbers(static_cast<int>(r), kElements * ranks)[static_cast<size_t>(rank) * kElements])
        fail(Code::internal, "all_to_all of rank ", r);
    Collective send, receive;
    send.op = CollectiveOp::send;
    receive.op = CollectiveOp::recv;
    send.in = in.data();
    receive.out = one.data();
    send.count = receive.count = kElements;
    send.peer = (rank + 1) % size;
    receive.peer = (rank + size - 1) % size;
    const WorkPtr sent = engine.run(Channel::user, {&send, 1}, stream);
    now(engine, receive, stream);
    sent->wait_input(Deadline::never());
    if (one != numbers(receive.peer, kElements)) fail(Code::internal, "recv");
  }
  if (const uint64_t staged = engine.traffic().bytes_staged - before; staged != 0)
    fail(Code::internal, staged, " bytes are still staged");
}

TEST(PeerReads, LongInputsInMemoryOfTheRanksAreCopiedOnce) {
  if (!kernel_allows_it()) GTEST_SKIP() << "this kernel does not let processes read each other";
  for (const int size : {2, 3}) {
    Processes ranks(size, [&](int r, const std::shared_ptr<Store>& store, Report&) {
      Joined joined(r, size, store);
      moves_through_the_kernel(*joined.engine, joined.stream());
      joined.engine->shutdown(Deadline::after_ms(60'000));
    });
    ranks.expect_all_well();
  }
}

TEST(PeerReads, ARankThatIsKilledWhileItsMemoryIsReadIsLost) {
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 3, store);
    std::vector<float> in = numbers(r, 8 << 20), all(in.size() * 3);
    Collective c;
    c.op = CollectiveOp::all_gather;
    c.in = in.data();
    c.out = all.data();
    c.count = in.size();
    until_failure(report, [&] {
      now(*joined.engine, c, joined.stream());
      ++report.stage;
    });
    stay_until_released(report);
  });
  ranks.wait_for_stage(0, 3);
  ranks.kill(1, SIGKILL);
  release_after_failures(ranks, {0, 2});
  for (const int r : {0, 2}) {
    EXPECT_EQ(ranks.report(r).code, static_cast<int64_t>(Code::peer_lost)) << ranks.report(r).text;
    EXPECT_EQ(ranks.report(r).peer, 1) << ranks.report(r).text;
  }
}

// Both "ranks" are this process.
TEST(PeerReads, AnotherProcessWithTheNumberOfADeadRankIsNotRead) {
  const auto arena = Arena::create(2, /*threads=*/false, {.reserve = 64 << 20});
  PeerReads reads(*arena, 0), peer(*arena, 1);
  for (int r : {0, 1}) arena->rank(r).pid = getpid();
  EXPECT_FALSE(reads.allowed()) << "rank 1 has published nothing";
  reads.publish();
  peer.publish();
  EXPECT_FALSE(reads.allowed()) << "rank 1 has not tried";
  EXPECT_TRUE(peer.allowed());
  EXPECT_TRUE(reads.allowed());
  const std::vector<float> from = numbers(1, 5000);
  std::vector<float> to(from.size());
  const auto address = reinterpret_cast<uint64_t>(from.data());
  EXPECT_EQ(reads.read(1, address, to.data(), to.size() * sizeof(float)), Result::copied);
  EXPECT_EQ(to, from);
  EXPECT_EQ(reads.read(1, address, to.data(), 0), Result::copied);
  arena->rank(1).word = 1;
  EXPECT_EQ(reads.read(1, address, to.data(), 8), Result::ended) << "this is another process";
  arena->rank(1).word_at = 4096;
  EXPECT_EQ(reads.read(1, address, to.data(), 8), Result::ended) << "no process has that address";
  arena->rank(1).pid = 0x7ffffff0;
  EXPECT_EQ(reads.read(1, address, to.data(), 8), Result::ended) << "there is no such process";
}

TEST(PeerReads, MemoryThatARankDoesNotHaveIsToldApartFromOneThatHasEnded) {
  const auto arena = Arena::create(2, /*threads=*/false, {.reserve = 64 << 20});
  PeerReads reads(*arena, 0), peer(*arena, 1);
  for (int r : {0, 1}) arena->rank(r).pid = getpid();
  peer.publish();
  auto* const pages =
      static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(munmap(pages + 4096, 4096), 0);
  std::vector<char> to(8192);
  EXPECT_EQ(reads.read(1, reinterpret_cast<uint64_t>(pages), to.data(), to.size()), Result::absent);
  munmap(pages, 4096);
}

}  // namespace
}  // namespace gangway::test
