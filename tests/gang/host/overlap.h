// Calls in flight on one channel of which a later one reads or writes what an earlier one does: the results
// must be those of waiting after each call. The same body for ranks that are threads and that are processes.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gang/engine.h"

namespace gangway::test {

// One rank's side of every case. Throws when a result is wrong.
class OverlappingCalls {
 public:
  OverlappingCalls(Engine& engine, Stream& stream, std::shared_ptr<Allocator> memory)
      : engine_(engine),
        stream_(stream),
        memory_(std::move(memory)),
        rank_(engine.rank()),
        size_(engine.size()) {}

  void check_all() {
    for (const size_t count : {size_t{1}, size_t{100}, size_t{1000}, size_t{50'000}})
      for (const bool turned : {false, true}) {
        reads_what_is_written(count, turned);
        writes_what_is_read(count, turned);
        writes_what_is_written(count, turned);
        scatters_then_gathers_in_place(count, turned);
        chains(count, turned);
      }
  }

 private:
  struct Block {
    std::shared_ptr<Buffer> buffer;
    float* data;
  };
  Block block(size_t count, float value) const {
    Block b{Buffer::allocate(memory_, count * sizeof(float)), nullptr};
    b.data = static_cast<float*>(b.buffer->data());
    std::fill_n(b.data, count, value);
    return b;
  }

  void start(CollectiveOp op, const float* in, float* out, size_t count, int root = -1) {
    Collective c;
    c.op = op;
    c.in = in;
    c.out = out;
    c.count = count;
    c.peer = root;
    if (op == CollectiveOp::all_reduce || op == CollectiveOp::reduce_scatter) c.reduce = Reduce::sum;
    works_.push_back(engine_.run(Channel::user, {&c, 1}, stream_));
  }

  // Waits in the order of the calls or against it; then nobody changes its memory before all have looked.
  void finish(bool turned) {
    if (turned) std::reverse(works_.begin(), works_.end());
    for (const WorkPtr& work : works_) work->wait_input(Deadline::never());
    works_.clear();
  }
  void let_all_look() {
    const Collective barrier;
    engine_.run(Channel::user, {&barrier, 1}, stream_)->wait_input(Deadline::never());
  }

  void expect(const float* got, size_t count, float wanted, const char* what) const {
    for (size_t i = 0; i < count; ++i)
      if (got[i] != wanted)
        fail(Code::internal, what, ": element ", i, " of ", count, " is ", got[i], ", not ", wanted);
  }

  void reads_what_is_written(size_t count, bool turned) {
    const Block x = block(count, static_cast<float>(rank_ + 1));
    const Block all = block(count * static_cast<size_t>(size_), -1);
    start(CollectiveOp::all_reduce, x.data, x.data, count);
    start(CollectiveOp::all_gather, x.data, all.data, count);
    finish(turned);
    const float sum = static_cast<float>(size_ * (size_ + 1)) / 2;
    expect(x.data, count, sum, "all_reduce before all_gather");
    expect(all.data, count * static_cast<size_t>(size_), sum, "all_gather of a sum");
    let_all_look();
  }

  void writes_what_is_read(size_t count, bool turned) {
    const Block x = block(count, static_cast<float>(rank_));
    const Block all = block(count * static_cast<size_t>(size_), -1), other = block(count, 100);
    start(CollectiveOp::all_gather, x.data, all.data, count);
    start(CollectiveOp::broadcast, other.data, x.data, count, 0);
    finish(turned);
    for (int r = 0; r < size_; ++r)
      expect(all.data + static_cast<size_t>(r) * count, count, static_cast<float>(r),
             "all_gather before broadcast");
    expect(x.data, count, 100, "broadcast over an input");
    let_all_look();
  }

  void writes_what_is_written(size_t count, bool turned) {
    const Block x = block(count, 1), y = block(count, 10), out = block(count, -1);
    start(CollectiveOp::all_reduce, x.data, out.data, count);
    start(CollectiveOp::all_reduce, y.data, out.data, count);
    finish(turned);
    expect(out.data, count, static_cast<float>(10 * size_), "the later of two all_reduces");
    let_all_look();
  }

  void scatters_then_gathers_in_place(size_t count, bool turned) {
    const size_t whole = count * static_cast<size_t>(size_);
    const Block x = block(whole, static_cast<float>(rank_ + 1));
    float* const mine = x.data + static_cast<size_t>(rank_) * count;
    start(CollectiveOp::reduce_scatter, x.data, mine, count);
    start(CollectiveOp::all_gather, mine, x.data, count);
    finish(turned);
    expect(x.data, whole, static_cast<float>(size_ * (size_ + 1)) / 2, "reduce_scatter, then all_gather");
    let_all_look();
  }

  void chains(size_t count, bool turned) {  // longer than the board has slots
    const Block x = block(count, 1);
    float wanted = 1;
    for (int i = 0; i < 12; ++i, wanted *= static_cast<float>(size_))
      start(CollectiveOp::all_reduce, x.data, x.data, count);
    finish(turned);
    expect(x.data, count, wanted, "twelve sums in place");
    let_all_look();
  }

  Engine& engine_;
  Stream& stream_;
  const std::shared_ptr<Allocator> memory_;
  const int rank_, size_;
  std::vector<WorkPtr> works_;
};

}  // namespace gangway::test
