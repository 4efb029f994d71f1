// When an input may be written again. Every rank overwrites its input as soon as its work says that it is
// reusable, by a wait or by a poll; peers must have what was there before. The same body for ranks that are
// threads and that are processes.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gang/host/memory/shared.h"
#include "gang/host/reference.h"
#include "gang/host/threads.h"

namespace gangway::test {

// One rank's side of every case; two ranks or more.
class ReusedInputs {
 public:
  // `inside`: this rank's tensors lie in the arena, where peers reach them.
  ReusedInputs(Engine& engine, Device& device, bool inside, Meeting& meeting)
      : engine_(engine),
        stream_(device.stream()),
        meeting_(meeting),
        inside_(inside),
        rank_(engine.rank()),
        size_(engine.size()) {
    const size_t bytes = kMost * static_cast<size_t>(size_) * sizeof(float);
    const auto memory = inside ? engine.shared_memory()->allocator() : device.allocator();
    in_ = Buffer::allocate(memory, bytes);
    out_ = Buffer::allocate(memory, bytes);
  }

  void check_all() {
    for (const CollectiveOp op :
         {CollectiveOp::all_reduce, CollectiveOp::reduce_scatter, CollectiveOp::reduce,
          CollectiveOp::all_gather, CollectiveOp::broadcast, CollectiveOp::gather, CollectiveOp::scatter,
          CollectiveOp::all_to_all, CollectiveOp::send})
      for (const size_t count : {size_t{1}, size_t{900}, kMost})
        for (const bool async_input : {false, true}) {
          const Collective c = call(op, count, async_input);
          if (!async_input) prepare(c);
          for (const bool polls : {false, true}) {
            read_late(c, polls);
            for (int i = 0; i < (count == kMost ? 1 : 3); ++i) read_at_any_time(c, polls);
          }
        }
  }

 private:
  // More chunks than there are stages.
  static constexpr size_t kMost = (host::kStages + 1) * host::kChunk / sizeof(float) + 1;
  static constexpr float kOverwritten = -77;

  // Rank 0's input is read by rank 1 in each.
  Collective call(CollectiveOp op, size_t count, bool async_input) const {
    Collective c;
    c.op = op == CollectiveOp::send && rank_ == 1 ? CollectiveOp::recv : op;
    c.in = in_->data();
    c.out = out_->data();
    c.count = count;
    c.async_input = async_input;
    if (op == CollectiveOp::all_reduce || op == CollectiveOp::reduce_scatter || op == CollectiveOp::reduce)
      c.reduce = Reduce::sum;
    if (op == CollectiveOp::broadcast || op == CollectiveOp::scatter) c.peer = 0;
    if (op == CollectiveOp::gather || op == CollectiveOp::reduce) c.peer = 1;
    if (op == CollectiveOp::send) c.peer = 1 - rank_;
    return c;
  }
  bool takes_part(const Collective& c) const {
    return rank_ < 2 || (c.op != CollectiveOp::send && c.op != CollectiveOp::recv);
  }

  void prepare(const Collective& c) {
    Collective sent = c;
    if (c.op == CollectiveOp::recv) sent.op = CollectiveOp::send;
    std::vector<Bytes> in;
    for (int r = 0; r < size_; ++r) in.push_back(sample_input(sent, r, size_));
    mine_ = c.op == CollectiveOp::recv ? Bytes() : in[static_cast<size_t>(rank_)];
    want_ = c.op == CollectiveOp::recv ? in[0] : reference(c, in, rank_);
  }

  WorkPtr start(const Collective& c) {
    if (!mine_.empty()) std::memcpy(in_->data(), mine_.data(), mine_.size());
    std::fill_n(static_cast<float*>(out_->data()), out_count(c, rank_, size_), 0.5f);
    return engine_.run(Channel::user, {&c, 1}, stream_);
  }

  void overwrite_when_reusable(const Collective& c, Work& work, bool polls) {
    if (polls) {
      while (!work.poll_input()) sched_yield();
      work.wait_input(Deadline::never());  // throws what made it end
    } else {
      work.wait_input(Deadline::never());
    }
    std::fill_n(static_cast<float*>(in_->data()), mine_.size() / sizeof(float), kOverwritten);
    expect_result(c);
  }

  void expect_result(const Collective& c) const {
    EXPECT_TRUE(want_.empty() || std::memcmp(want_.data(), out_->data(), want_.size()) == 0) << what(c);
  }

  // The others have come, but read nothing before rank 0 has looked.
  void read_late(const Collective& c, bool polls) {
    WorkPtr work;
    if (rank_ != 0 && takes_part(c)) work = start(c);
    meeting_.come();
    if (rank_ == 0) {
      work = start(c);
      // What is short is copied at once, unless peers can reach it and it is longer than their flags' line.
      if (c.count == kMost || (c.count > 128 && inside_)) {
        EXPECT_FALSE(work->poll_input()) << what(c);
      }
    }
    meeting_.come();
    if (work != nullptr) overwrite_when_reusable(c, *work, polls);
    meeting_.come();
  }

  void read_at_any_time(const Collective& c, bool polls) {
    if (!takes_part(c)) return;
    const WorkPtr work = start(c);
    overwrite_when_reusable(c, *work, polls);
  }

  std::string what(const Collective& c) const {
    return text(name(c.op), " of ", c.count, inside_ ? " inside" : " outside",
                c.async_input ? ", borrowed" : "", ", rank ", rank_, " of ", size_);
  }

  Engine& engine_;
  Stream& stream_;
  Meeting& meeting_;
  const bool inside_;
  const int rank_, size_;
  std::shared_ptr<Buffer> in_, out_;
  Bytes mine_, want_;  // of the call at hand: this rank's input and result
};

}  // namespace gangway::test
