// What a lowered call does after its native calls, on a device whose streams run late: its output is there for a host that
// has waited, and for a stream that is ordered after it, whichever stream got the copies.
#include <chrono>
#include <numeric>

#include "gang/planes/fewer_facts.h"
#include "gang/thread_ranks.h"
#include "support/deferred/deferred.h"
#include "support/host_memory.h"

namespace gangway::test {
namespace {

constexpr int kRanks = 2;
constexpr std::chrono::milliseconds kBusy{2000};
// Microseconds before each task of the streams that collectives and their copies run on.
constexpr int kSlow = 10'000;

// An all_gather of rank + 1 numbers from each rank, by an engine that takes no counts.
class Gathered {
 public:
  explicit Gathered(const GangPtr& root)
      : stream(root->device().make_stream(StreamPriority::normal)),
        rank_(root->owner()),
        counts_{1, 2},
        in_(tensor(root->rank() + 1)),
        out_(tensor(3)) {
    deferred::set_slow_collectives(root->device(), kSlow);
    EngineFacts facts = root->engine().facts();
    facts.takes_counts = false;
    const auto below = std::make_shared<FewerFacts>(std::shared_ptr<Engine>(root, &root->engine()), facts);
    gang_ = Gang::over(rank_, lowered(below, rank_), thread_rank_options());
    std::vector<float> mine(static_cast<size_t>(root->rank()) + 1, static_cast<float>(root->rank() + 1));
    copy_in(in_, mine);
    copy_in(out_, std::vector<float>(3, -1));
  }

  WorkPtr start() {
    Collective c;
    c.op = CollectiveOp::all_gather;
    c.in = in_.raw();
    c.out = out_.raw();
    c.count = static_cast<size_t>(in_.count());
    c.dtype = DType::f32;
    c.counts = counts_.data();
    return gang_->run(Channel::user, c, stream.get());
  }
  // The rank's own stream has enough to do.
  void keep_busy() {
    deferred::enqueue(rank_->device().stream(),
                      [](deferred::Worker&) { std::this_thread::sleep_for(kBusy); });
  }
  // As other waits of the rank do.
  void drive(std::chrono::milliseconds length) {
    for (const auto until = std::chrono::steady_clock::now() + length;
         std::chrono::steady_clock::now() < until;)
      rank_->works()->progress();
  }
  // What the caller's stream sees.
  std::vector<float> seen() {
    const Tensor copy = Tensor::allocate(rank_->device().pinned_allocator(), out_.dtype(), out_.shape());
    rank_->device().copy(copy.raw(), out_.raw(), out_.bytes(), *stream);
    stream->synchronize();
    return {copy.data<float>(), copy.data<float>() + copy.count()};
  }

  const std::unique_ptr<Stream> stream;

 private:
  Tensor tensor(int64_t count) const {
    return Tensor::allocate(rank_->device().allocator(), DType::f32, {count});
  }

  const std::shared_ptr<Rank> rank_;
  const std::vector<size_t> counts_;
  const Tensor in_, out_;
  GangPtr gang_;
};

template <typename Body>
void over_late_streams(Body&& body) {
  GangOptions options = thread_rank_options();
  options.device = "deferred:3";
  run_ranks(
      kRanks,
      [&](Gang& root) {
        Gathered gathered(root.shared_from_this());
        body(gathered);
        root.barrier();
      },
      options);
}

const std::vector<float> kWhole = {1, 2, 2};

TEST(LoweringStreams, AStreamIsOrderedAfterCopiesThatAnotherStreamGot) {
  for (const int ms : {0, 20, 40, 50, 60, 70, 80, 100})
    over_late_streams([&](Gathered& gathered) {
      const WorkPtr work = gathered.start();
      gathered.drive(std::chrono::milliseconds(ms));
      work->order(*gathered.stream);
      EXPECT_EQ(gathered.seen(), kWhole) << ms;
      work->wait_input(Deadline::never());
    });
}

TEST(LoweringStreams, AWaitOfTheHostCoversTheCopies) {
  over_late_streams([](Gathered& gathered) {
    const WorkPtr work = gathered.start();
    work->wait(Deadline::never());
    EXPECT_EQ(gathered.seen(), kWhole);
    work->wait_input(Deadline::never());
  });
}

TEST(LoweringStreams, AWorkIsNotOverBeforeItsCopiesHaveRun) {
  over_late_streams([](Gathered& gathered) {
    const WorkPtr work = gathered.start();
    while (!work->poll()) std::this_thread::yield();
    EXPECT_EQ(gathered.seen(), kWhole);
    work->wait_input(Deadline::never());
  });
}

TEST(LoweringStreams, AWaitDoesNotCoverOtherWorkOfTheRank) {
  over_late_streams([](Gathered& gathered) {
    gathered.keep_busy();
    const auto start = std::chrono::steady_clock::now();
    const WorkPtr work = gathered.start();
    work->wait(Deadline::never());
    EXPECT_LT(std::chrono::steady_clock::now() - start, kBusy / 2);
    EXPECT_EQ(gathered.seen(), kWhole);
    work->wait_input(Deadline::never());
  });
}

}  // namespace
}  // namespace gangway::test
