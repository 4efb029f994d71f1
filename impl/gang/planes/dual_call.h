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

  Announcement notes;
  const Channel channel;
  std::vector<Collective> records;
  Stream& stream;
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

  const std::shared_ptr<Planes> planes_;
  std::vector<size_t> counts_;
};

}  // namespace gangway::dual
