// The simulation of a schedule: each rank runs its row in order, and waits where an input has not arrived.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "parallel/pipeline/checker.h"

namespace gangway {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Clock {
 public:
  Clock(const Schedule& schedule, std::span<const StageCost> costs, Transport transport, double transfer)
      : s_(schedule), costs_(costs), transport_(transport), transfer_(transfer) {
    for (auto* times :
         {&forward_, &backward_, &sent_forward_, &posted_forward_, &sent_backward_, &posted_backward_})
      times->assign(static_cast<size_t>(s_.stages() * s_.microbatches), kNever);
    next_.assign(s_.rows.size(), 0);
    now_.assign(s_.rows.size(), 0);
    report_.ranks.resize(s_.rows.size());
    for (size_t r = 0; r < s_.rows.size(); ++r) report_.ranks[r].spans.resize(s_.rows[r].size());
    for (const ScheduleRow& row : s_.rows)
      for (const Action& a : row) moves_ = moves_ || is_send(a.kind);
  }

  ScheduleReport run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < s_.rows.size(); ++r)
        while (step(r)) moved = true;
    }
    for (size_t r = 0; r < s_.rows.size(); ++r)
      if (next_[r] < s_.rows[r].size()) refuse();
    for (const RankReport& rank : report_.ranks) report_.makespan = std::max(report_.makespan, rank.last);
    return std::move(report_);
  }

 private:
  size_t at(int stage, int microbatch) const {
    return static_cast<size_t>(stage * s_.microbatches + microbatch);
  }
  bool same_rank(int a, int b) const {
    return s_.stage_rank[static_cast<size_t>(a)] == s_.stage_rank[static_cast<size_t>(b)];
  }

  // When the input of `stage` from its neighbour `from` arrives.
  double arrival(int from, int stage, int microbatch, const std::vector<double>& made,
                 const std::vector<double>& sent, const std::vector<double>& posted) const {
    const double ready = made[at(from, microbatch)];
    if (same_rank(from, stage)) return ready;
    if (!moves_) return ready + transfer_;
    return std::max(sent[at(from, microbatch)], posted[at(stage, microbatch)]) + transfer_;
  }
  double ready(const Action& a) const {
    const int s = a.stage, m = a.microbatch;
    switch (a.kind) {
      case ActionKind::forward:
        return s == 0 ? 0 : arrival(s - 1, s, m, forward_, sent_forward_, posted_forward_);
      case ActionKind::backward:
      case ActionKind::input_gradient: {
        const double own = forward_[at(s, m)];
        if (s == s_.stages() - 1) return own;
        return std::max(own, arrival(s + 1, s, m, backward_, sent_backward_, posted_backward_));
      }
      case ActionKind::weight_gradient: return backward_[at(s, m)];
      case ActionKind::send_forward: return forward_[at(s, m)];
      case ActionKind::send_backward: return backward_[at(s, m)];
      default: return 0;
    }
  }
  double duration(const Action& a) const {
    const StageCost& cost = costs_[static_cast<size_t>(a.stage)];
    switch (a.kind) {
      case ActionKind::forward: return cost.forward;
      case ActionKind::backward: return cost.input + cost.weight;
      case ActionKind::input_gradient: return cost.input;
      case ActionKind::weight_gradient: return cost.weight;
      default: return 0;
    }
  }

  bool step(size_t r) {
    if (next_[r] == s_.rows[r].size()) return false;
    const Action& a = s_.rows[r][next_[r]];
    if (is_send(a.kind) || is_receive(a.kind)) return move(r, a);
    double start = std::max(now_[r], ready(a));
    double length = duration(a);
    if (a.fused_next) {
      const Action& other = s_.rows[r][next_[r] + 1];
      start = std::max(start, ready(other));
      length += duration(other);
    }
    if (start == kNever) return false;
    finish(r, a, start, start + length);
    if (a.fused_next) finish(r, s_.rows[r][next_[r]], start, start + length);
    if (is_compute(a.kind)) {
      RankReport& rank = report_.ranks[r];
      if (rank.busy == 0) rank.first = start;
      rank.busy += length;
      rank.last = start + length;
    }
    return true;
  }

  void finish(size_t r, const Action& a, double start, double end) {
    report_.ranks[r].spans[next_[r]++] = {start, end};
    now_[r] = end;
    if (a.kind == ActionKind::forward) forward_[at(a.stage, a.microbatch)] = end;
    if (a.kind == ActionKind::backward || a.kind == ActionKind::input_gradient)
      backward_[at(a.stage, a.microbatch)] = end;
  }

  // The other end of a send or a receive.
  Action partner(const Action& a) const {
    switch (a.kind) {
      case ActionKind::send_forward: return {a.stage + 1, ActionKind::recv_forward, a.microbatch};
      case ActionKind::recv_forward: return {a.stage - 1, ActionKind::send_forward, a.microbatch};
      case ActionKind::send_backward: return {a.stage - 1, ActionKind::recv_backward, a.microbatch};
      default: return {a.stage + 1, ActionKind::send_backward, a.microbatch};
    }
  }
  double& mark(const Action& a) {
    switch (a.kind) {
      case ActionKind::send_forward: return sent_forward_[at(a.stage, a.microbatch)];
      case ActionKind::recv_forward: return posted_forward_[at(a.stage, a.microbatch)];
      case ActionKind::send_backward: return sent_backward_[at(a.stage, a.microbatch)];
      default: return posted_backward_[at(a.stage, a.microbatch)];
    }
  }

  bool move(size_t r, const Action& a) {
    double start = std::max(now_[r], ready(a));
    const Action other = partner(a);
    const auto peer = static_cast<size_t>(s_.stage_rank[static_cast<size_t>(other.stage)]);
    if (transport_ == Transport::buffered && is_receive(a.kind))
      start = std::max(start, mark(other) + transfer_);
    if (transport_ == Transport::rendezvous && mark(other) == kNever) {
      // Both ranks must have reached it. The rank that steps last finishes it for both.
      if (next_[peer] == s_.rows[peer].size() || s_.rows[peer][next_[peer]] != other) return false;
      start = std::max({start, now_[peer], ready(other)});
    }
    if (start == kNever) return false;
    if (transport_ == Transport::rendezvous && mark(other) == kNever) {
      mark(other) = start;
      finish(peer, other, start, start);
    }
    mark(a) = start;
    finish(r, a, start, start);
    return true;
  }

  [[noreturn]] void refuse() const {
    std::string words;
    for (size_t r = 0; r < s_.rows.size(); ++r) {
      if (next_[r] == s_.rows[r].size()) continue;
      words += gangway::text(words.empty() ? "rank " : "; rank ", r, " at action ", next_[r], " (",
                             text_of(s_.rows[r][next_[r]]), ")");
    }
    fail(Code::invalid_argument, "schedule: ranks wait for one another and none can go on: ", words);
  }

  const Schedule& s_;
  const std::span<const StageCost> costs_;
  const Transport transport_;
  const double transfer_;
  // Whether the schedule has sends. Without sends the next stage gets an output as soon as it is made.
  bool moves_ = false;
  // End times, by stage and microbatch.
  std::vector<double> forward_, backward_, sent_forward_, posted_forward_, sent_backward_, posted_backward_;
  std::vector<size_t> next_;
  std::vector<double> now_;
  ScheduleReport report_;
};

// Counts that depend only on the order of a row.
void count_row(const ScheduleRow& row, std::span<const StageCost> costs, RankReport& rank) {
  int live = 0, waiting = 0, unsharded = 0;
  double live_bytes = 0, waiting_bytes = 0;
  for (const Action& a : row) {
    const StageCost& cost = costs[static_cast<size_t>(a.stage)];
    if (a.kind == ActionKind::forward) {
      ++live;
      live_bytes += cost.activation_bytes;
    } else if (a.kind == ActionKind::backward || a.kind == ActionKind::weight_gradient) {
      --live;
      live_bytes -= cost.activation_bytes;
    }
    if (a.kind == ActionKind::input_gradient) {
      ++waiting;
      waiting_bytes += cost.weight_input_bytes;
    } else if (a.kind == ActionKind::weight_gradient) {
      --waiting;
      waiting_bytes -= cost.weight_input_bytes;
    }
    unsharded += a.kind == ActionKind::unshard ? 1 : a.kind == ActionKind::reshard ? -1 : 0;
    rank.peak_activations = std::max(rank.peak_activations, live);
    rank.peak_activation_bytes = std::max(rank.peak_activation_bytes, live_bytes);
    rank.peak_weight_inputs = std::max(rank.peak_weight_inputs, waiting);
    rank.peak_weight_input_bytes = std::max(rank.peak_weight_input_bytes, waiting_bytes);
    rank.peak_unsharded = std::max(rank.peak_unsharded, unsharded);
  }
}

}  // namespace

std::vector<StageCost> unit_costs(const Schedule& schedule) {
  const double share = static_cast<double>(schedule.ranks()) / schedule.stages();
  return std::vector<StageCost>(static_cast<size_t>(schedule.stages()), {share, share, share, 0, 0});
}

double ScheduleReport::bubble() const {
  double busy = 0;
  for (const RankReport& rank : ranks) busy += rank.busy;
  return makespan == 0 ? 0 : 1 - busy / (makespan * static_cast<double>(ranks.size()));
}

ScheduleReport simulate(const Schedule& schedule, std::span<const StageCost> costs, Transport transport,
                        double transfer) {
  if (costs.size() != static_cast<size_t>(schedule.stages()))
    fail(Code::invalid_argument, "schedule: ", costs.size(), " costs for ", schedule.stages(), " stages");
  ScheduleReport report = Clock(schedule, costs, transport, transfer).run();
  for (size_t r = 0; r < schedule.rows.size(); ++r) count_row(schedule.rows[r], costs, report.ranks[r]);
  return report;
}

}  // namespace gangway
