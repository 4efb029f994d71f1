#include "gang/traced.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

namespace gangway {
namespace {

constexpr int kRounds = 16;

class TracedWork final : public Work {
 public:
  TracedWork(WorkPtr work, std::shared_ptr<Works> owner, std::string name, std::string detail,
             int64_t start_ns)
      : work_(std::move(work)),
        owner_(std::move(owner)),
        name_(std::move(name)),
        detail_(std::move(detail)),
        start_ns_(start_ns) {}
  ~TracedWork() override { ended(); }

  bool poll() override { return ended_if(work_->poll()); }
  bool poll_input() override { return work_->poll_input(); }
  void wait(Deadline deadline) override {
    work_->wait(deadline);
    ended();
  }
  void wait_input(Deadline deadline) override {
    work_->wait_input(deadline);
    ended();
  }
  void order(Stream& stream) override {
    work_->order(stream);
    ended();
  }
  void order_input(Stream& stream) override { work_->order_input(stream); }
  std::optional<Error> error() const override { return work_->error(); }

 private:
  bool ended_if(bool over) {
    if (over) ended();
    return over;
  }
  void ended() {
    if (!recorded_.exchange(true))
      owner_->tracer().add(TraceRow::collective, "collective", name_, start_ns_, Tracer::now_ns(), detail_);
  }

  const WorkPtr work_;
  const std::shared_ptr<Works> owner_;
  const std::string name_, detail_;
  const int64_t start_ns_;
  std::atomic<bool> recorded_ = false;
};

void move_time(Gang& gang, CollectiveOp op, int peer, int64_t& time) {
  Collective c;
  c.op = op;
  if (op == CollectiveOp::send)
    c.in = &time;
  else
    c.out = &time;
  c.count = 1;
  c.dtype = DType::i64;
  c.peer = peer;
  gang.run_now(Channel::control, c);
}

// On rank 0: how far the clock of `peer` is ahead.
int64_t measured_ahead(Gang& gang, int peer) {
  int64_t quickest = INT64_MAX, ahead = 0;
  for (int i = 0; i < kRounds; ++i) {
    int64_t theirs = 0, start = Tracer::now_ns();
    move_time(gang, CollectiveOp::send, peer, start);
    move_time(gang, CollectiveOp::recv, peer, theirs);
    const int64_t took = Tracer::now_ns() - start;
    if (took >= quickest) continue;
    quickest = took;
    ahead = theirs - (start + took / 2);
  }
  return ahead;
}

// How far this rank's steady clock is ahead of rank 0's. Ranks of one host have the same clock. Between hosts
// it is measured with the fastest of several round trips.
int64_t clock_ahead_ns(Gang& gang) {
  if (!gang.has_peers() || gang.shared_memory() != nullptr) return 0;
  std::string all(static_cast<size_t>(gang.size()) * sizeof(int64_t), '\0');
  for (int peer = 1; peer < gang.size(); ++peer) {
    if (gang.rank() == 0) {
      const int64_t ahead = measured_ahead(gang, peer);
      std::memcpy(all.data() + static_cast<size_t>(peer) * sizeof ahead, &ahead, sizeof ahead);
    }
    for (int i = 0; gang.rank() == peer && i < kRounds; ++i) {
      int64_t time = 0;
      move_time(gang, CollectiveOp::recv, 0, time);
      time = Tracer::now_ns();
      move_time(gang, CollectiveOp::send, 0, time);
    }
  }
  all = gang.broadcast_bytes(Channel::control, all, 0);
  int64_t own = 0;
  std::memcpy(&own, all.data() + static_cast<size_t>(gang.rank()) * sizeof own, sizeof own);
  return own;
}

// A number that all ranks share, and that differs from that of any other run in the same folder.
uint64_t run_number(Gang& gang) {
  const auto now = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  std::string bytes(sizeof now, '\0');
  std::memcpy(bytes.data(), &now, sizeof now);
  bytes = gang.broadcast_bytes(Channel::control, bytes, 0);
  uint64_t run = 0;
  std::memcpy(&run, bytes.data(), sizeof run);
  return run;
}

}  // namespace

std::string trace_name(std::span<const Collective> records) {
  const std::string first = name(records[0].op);
  return records.size() == 1 ? first : first + " x" + std::to_string(records.size());
}

std::string trace_detail(const Gang& gang, Channel channel, std::span<const Collective> records) {
  size_t bytes = 0;
  for (const Collective& c : records) bytes += c.count * item_bytes(c.dtype);
  std::string detail = text("\"gang\": \"", json_words(gang.name()), "\", \"channel\": \"", name(channel),
                            "\", \"bytes\": ", bytes);
  if (facts(records[0].op).has_root || facts(records[0].op).is_pair)
    detail += text(", \"peer\": ", records[0].peer);
  return detail;
}

WorkPtr traced(WorkPtr work, std::shared_ptr<Works> owner, std::string name, std::string detail,
               int64_t start_ns) {
  return std::make_shared<TracedWork>(std::move(work), std::move(owner), std::move(name), std::move(detail),
                                      start_ns);
}

void begin_trace(Gang& gang, const std::string& folder) {
  if (!gang.is_root())
    fail(Code::invalid_argument, "trace: ", gang.name(),
         " is no root gang; begin the trace on the gang that it was made of");
  const int64_t ahead = clock_ahead_ns(gang);
  const uint64_t run = run_number(gang);
  bool begun = false;
  const std::optional<Error> refusal = refusal_of([&] {
    if (folder.empty()) fail(Code::invalid_argument, "trace: the folder's name is empty");
    gang.owner()->tracer().begin(folder, run, gang.rank(), gang.size(), ahead);
    begun = true;
  });
  try {
    gang.agree(refusal);
  } catch (...) {
    if (begun) gang.owner()->tracer().cancel();
    throw;
  }
}

}  // namespace gangway
