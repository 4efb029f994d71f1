// A call of the dual engine (dual_engine.h): one launch that is announced on the control plane and then
// started on the data plane.
//
// Thread rule: a Work's (gang/work.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gang/engine.h"
#include "gang/planes/announcement.h"

namespace gangway::dual {

class Planes;

// One launch: it is announced, then started on the data engine; it ends when both ends of the work are
// reached.
class Call final : public Work {
 public:
  enum State : int { announced, launched, output, over };

  Call(std::shared_ptr<Planes> planes, CallCounter& counter, Channel of, std::span<const Collective> span,
       Stream& on, int size, int rank)
      : notes(counter, span, rank, size),
        channel(of),
        records(span.begin(), span.end()),
        stream(on),
        planes_(std::move(planes)) {
    copy_counts(size);
  }

  bool poll() override;
  bool poll_input() override;
  void wait(Deadline deadline) override;
  void wait_input(Deadline deadline) override;
  void order(Stream& to) override;
  void order_input(Stream& to) override;
  std::optional<Error> error() const override;

  const char* what() const { return records.size() == 1 ? name(records[0].op) : "run"; }

  // Notes what memory the records touch, for a data engine that does not keep the order of those that
  // depend on each other. They are started in runs, pairs with the first one, since the other rank may have
  // them in any.
  void note_memory(int rank, int size) {
    std::stable_partition(records.begin(), records.end(), is_pair);
    for (const Collective& c : records) memory_.push_back(touched(c, rank, size));
  }
  // Returns the end of the longest run of records, from `first` on, of which none depends on another one.
  size_t end_of_run(size_t first) const {
    size_t end = first;
    while (end < memory_.size() && !is_order_seen_by(first, end, memory_[end])) ++end;
    return memory_.empty() ? records.size() : end;
  }
  // Makes this a call that all ranks have announced and whose records the data engine has started.
  void set_launched(WorkPtr rest, uint64_t log_number) {
    started = records.size();
    notes_work = finished_work();
    checked = true;
    number = log_number;
    data = std::move(rest);
    state = launched;
  }
  // Returns the bytes of all inputs or outputs, whichever are more.
  int64_t bytes(int rank, int size) const {
    size_t sum = 0;
    for (const Collective& c : records)
      sum += std::max(in_count(c, rank, size), out_count(c, rank, size)) * item_bytes(c.dtype);
    return static_cast<int64_t>(sum);
  }
  bool is_all_started() const { return started == records.size(); }
  bool depends_on(const Call& earlier) const {
    return std::any_of(memory_.begin(), memory_.end(), [&](const Touched& own) {
      return earlier.is_order_seen_by(0, earlier.memory_.size(), own);
    });
  }

  Announcement notes;
  const Channel channel;
  std::vector<Collective> records;
  Stream& stream;
  std::atomic<size_t> started = 0;  // records that the data engine has got
  WorkPtr notes_work, data;
  std::atomic<bool> checked = false;  // the notes agree
  uint64_t number = 0;                // in the log
  std::atomic<int> state{announced};

 private:
  // Copies the counts, because the caller may free them when run() has returned.
  void copy_counts(int size) {
    size_t all = 0;
    const auto length = [&](const Collective& c) {
      return c.counts == nullptr ? 0 : static_cast<size_t>(size) * (c.op == CollectiveOp::all_to_all ? 2 : 1);
    };
    for (const Collective& c : records) all += length(c);
    counts_.reserve(all);
    for (Collective& c : records) {
      if (c.counts == nullptr) continue;
      const size_t first = counts_.size();
      counts_.insert(counts_.end(), c.counts, c.counts + length(c));
      c.counts = counts_.data() + first;
    }
  }

  // Whether one of the records in [first, end) must have run before what touches this memory.
  bool is_order_seen_by(size_t first, size_t end, const Touched& other) const {
    return std::any_of(memory_.data() + first, memory_.data() + end,
                       [&](const Touched& one) { return is_order_seen(one, other); });
  }

  const std::shared_ptr<Planes> planes_;
  std::vector<size_t> counts_;
  std::vector<Touched> memory_;  // of each record, or none
};

}  // namespace gangway::dual
