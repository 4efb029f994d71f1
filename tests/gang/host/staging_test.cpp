// Inputs outside of the arena go through a ring of chunks, in which each call begins where the one before it ended.
#include "gang/host/memory/shared.h"
#include "gang/host/threads.h"

namespace gangway::test {
namespace {

constexpr size_t kChunkCount = host::kChunk / sizeof(int32_t), kRingCount = host::kStages * kChunkCount;

int32_t value(int rank, size_t i, int salt) { return 3 * rank + static_cast<int32_t>(i % 251) + salt; }

Collective call(CollectiveOp op, const int32_t* in, int32_t* out, size_t count) {
  Collective c;
  c.op = op;
  c.dtype = DType::i32;
  c.reduce = facts(op).reduces ? Reduce::sum : Reduce::none;
  c.in = in;
  c.out = out;
  c.count = count;
  return c;
}

class Caller {
 public:
  Caller(int rank, int size, Engine& engine, Stream& stream)
      : rank_(rank), size_(size), engine_(engine), stream_(stream) {}

  // Every operation once, with about `count` elements in all.
  void check(size_t count, int salt) {
    const auto size = static_cast<size_t>(size_), share = count / size;
    in_.resize(share * size + count);
    for (size_t i = 0; i < in_.size(); ++i) in_[i] = value(rank_, i, salt);

    make(CollectiveOp::all_reduce, count, count, -1);
    for (size_t i = 0; i < count; ++i) expect(out_[i], sum(i, salt), i);
    make(CollectiveOp::reduce_scatter, share, share, -1);
    for (size_t i = 0; i < share; ++i) expect(out_[i], sum(static_cast<size_t>(rank_) * share + i, salt), i);
    make(CollectiveOp::all_gather, share, share * size, -1);
    for (size_t i = 0; i < share * size; ++i)
      expect(out_[i], value(static_cast<int>(i / share), i % share, salt), i);
    make(CollectiveOp::all_to_all, share, share * size, -1);
    for (size_t i = 0; i < share * size; ++i)
      expect(out_[i],
             value(static_cast<int>(i / share), static_cast<size_t>(rank_) * share + i % share, salt), i);
    const int root = salt % size_;
    make(CollectiveOp::broadcast, count, count, root);
    for (size_t i = 0; i < count; ++i) expect(out_[i], value(root, i, salt), i);
    make(CollectiveOp::reduce, count, count, root);
    for (size_t i = 0; rank_ == root && i < count; ++i) expect(out_[i], sum(i, salt), i);
    if (rank_ == root) make(CollectiveOp::send, count, 0, (root + 1) % size_);
    if (rank_ != (root + 1) % size_) return;
    make(CollectiveOp::recv, count, count, root);
    for (size_t i = 0; i < count; ++i) expect(out_[i], value(root, i, salt), i);
  }

 private:
  void make(CollectiveOp op, size_t count, size_t out, int peer) {
    out_.assign(out, -1);
    Collective c = call(op, op == CollectiveOp::recv ? nullptr : in_.data(),
                        op == CollectiveOp::send ? nullptr : out_.data(), count);
    c.peer = peer;
    now(engine_, c, stream_);
    op_ = op;
  }
  int32_t sum(size_t i, int salt) const {
    return 3 * size_ * (size_ - 1) / 2 + size_ * (static_cast<int32_t>(i % 251) + salt);
  }
  void expect(int32_t got, int32_t wanted, size_t i) const {
    if (got != wanted) fail(Code::internal, name(op_), " at ", i, ": ", got, ", not ", wanted);
  }

  const int rank_, size_;
  Engine& engine_;
  Stream& stream_;
  CollectiveOp op_ = CollectiveOp::barrier;
  std::vector<int32_t> in_, out_;
};

TEST(HostStaging, InputsOfAnyLengthArriveWhereverTheyBeginInTheRing) {
  constexpr size_t kCounts[] = {1025,           kChunkCount,    kChunkCount + 1,      3 * kChunkCount - 1,
                                kRingCount - 3, kRingCount + 1, 2 * kRingCount + 1025};
  for (const int size : {2, 3}) {
    ThreadRanks ranks(size);
    ranks.run([&](int r, Engine& engine) {
      Caller caller(r, size, engine, ranks.ranks[static_cast<size_t>(r)]->device().stream());
      int salt = 0;
      for (int lap = 0; lap < 2; ++lap)
        for (const size_t count : kCounts) caller.check(count, ++salt);
    });
  }
}

// One rank's input lies in the arena, so that it has no chunks but results.
TEST(HostStaging, InputsInsideAndOutsideOfTheArenaAreFoldedTogether) {
  ThreadRanks ranks(3);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    constexpr size_t kMost = kRingCount + 1025;
    const auto arena = Buffer::allocate(engine.shared_memory()->allocator(), kMost * sizeof(int32_t));
    std::vector<int32_t> heap(kMost), out(kMost);
    for (int lap = 0; lap < 6; ++lap)
      for (const size_t count : {size_t{1025}, kChunkCount + 1, kMost}) {
        int32_t* const in = r == lap % 3 ? static_cast<int32_t*>(arena->data()) : heap.data();
        for (size_t i = 0; i < count; ++i) in[i] = value(r, i, lap);
        now(engine, call(CollectiveOp::all_reduce, in, out.data(), count), stream);
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(out[i], 9 + 3 * (static_cast<int32_t>(i % 251) + lap))
              << count << " in lap " << lap << " at " << i;
      }
  });
}

}  // namespace
}  // namespace gangway::test
