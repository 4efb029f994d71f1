#include "parallel/pipeline/checker.h"

#include <map>
#include <utility>

#include "base/error.h"

namespace gangway {
namespace {

template <typename... Parts>
[[noreturn]] void refuse(size_t rank, size_t index, const Action& action, const Parts&... why) {
  fail(Code::invalid_argument, "schedule: rank ", rank, ", action ", index, " (", text_of(action),
       "): ", why...);
}

// What a row has done with one microbatch on one stage so far.
struct Progress {
  bool forward = false, backward = false, weight = false;
  bool received_forward = false, received_backward = false, sent_forward = false, sent_backward = false;
};

struct StageState {
  bool unsharded = false, reduced = false;
  int weights = 0;  // microbatches whose weight half is done
};

class RowChecker {
 public:
  RowChecker(const Schedule& schedule, bool moves, bool shards)
      : s_(schedule),
        moves_(moves),
        shards_(shards),
        progress_(static_cast<size_t>(schedule.stages() * schedule.microbatches)),
        stages_(static_cast<size_t>(schedule.stages())) {}

  void check_row(size_t rank) {
    rank_ = rank;
    for (index_ = 0; index_ < s_.rows[rank].size(); ++index_) check_action(s_.rows[rank][index_]);
  }

  void check_complete() const {
    for (int stage = 0; stage < s_.stages(); ++stage) {
      for (int m = 0; m < s_.microbatches; ++m) {
        const Progress& p = progress_[at(stage, m)];
        const char* missing = !p.forward    ? "forward"
                              : !p.backward ? "backward"
                              : !p.weight   ? "weight half"
                                            : nullptr;
        if (missing == nullptr && moves_) missing = missing_move(stage, p);
        if (missing != nullptr)
          fail(Code::invalid_argument, "schedule: stage ", stage, " has no ", missing, " of microbatch ", m);
      }
      const StageState& state = stages_[static_cast<size_t>(stage)];
      if (shards_ && (state.unsharded || !state.reduced))
        fail(Code::invalid_argument, "schedule: stage ", stage,
             state.unsharded ? " is still unsharded at the end" : " has no REDUCE_GRAD");
    }
  }

 private:
  size_t at(int stage, int m) const { return static_cast<size_t>(stage * s_.microbatches + m); }
  bool remote(int stage, int other) const {
    return other >= 0 && other < s_.stages() &&
           s_.stage_rank[static_cast<size_t>(stage)] != s_.stage_rank[static_cast<size_t>(other)];
  }
  const char* missing_move(int stage, const Progress& p) const {
    if (remote(stage, stage + 1) && !p.sent_forward) return "SEND_F";
    if (remote(stage, stage - 1) && !p.sent_backward) return "SEND_B";
    return nullptr;
  }

  void check_action(const Action& a) {
    if (a.stage < 0 || a.stage >= s_.stages()) refuse(rank_, index_, a, "there are ", s_.stages(), " stages");
    const int owner = s_.stage_rank[static_cast<size_t>(a.stage)];
    if (owner != static_cast<int>(rank_))
      refuse(rank_, index_, a, "stage ", a.stage, " belongs to rank ", owner);
    check_fused(a);
    if (!has_microbatch(a.kind)) return check_sharding(a);
    if (a.microbatch < 0 || a.microbatch >= s_.microbatches)
      refuse(rank_, index_, a, "there are ", s_.microbatches, " microbatches");
    if (is_compute(a.kind)) return check_compute(a);
    check_move(a);
  }

  void check_fused(const Action& a) {
    if (!a.fused_next) return;
    const ScheduleRow& row = s_.rows[rank_];
    const bool pair = a.kind == ActionKind::forward && index_ + 1 < row.size() &&
                      row[index_ + 1].kind == ActionKind::backward && !row[index_ + 1].fused_next;
    if (!pair) refuse(rank_, index_, a, "is fused with what is no backward");
  }

  void check_compute(const Action& a) {
    Progress& p = progress_[at(a.stage, a.microbatch)];
    if (shards_ && a.kind != ActionKind::weight_gradient && !stages_[static_cast<size_t>(a.stage)].unsharded)
      refuse(rank_, index_, a, "the stage is not unsharded");
    if (a.kind == ActionKind::forward) {
      if (p.forward) refuse(rank_, index_, a, "is done a second time");
      if (moves_ && remote(a.stage, a.stage - 1) && !p.received_forward)
        refuse(rank_, index_, a, "its RECV_F does not come before it");
      p.forward = true;
      return;
    }
    if (a.kind == ActionKind::weight_gradient) {
      if (!p.backward) refuse(rank_, index_, a, "comes before its I");
      if (p.weight) refuse(rank_, index_, a, "is done a second time");
      return end_weight(a, p);
    }
    if (!p.forward) refuse(rank_, index_, a, "comes before its F");
    if (p.backward) refuse(rank_, index_, a, "is a second backward");
    if (moves_ && remote(a.stage, a.stage + 1) && !p.received_backward)
      refuse(rank_, index_, a, "its RECV_B does not come before it");
    p.backward = true;
    if (a.kind == ActionKind::backward) end_weight(a, p);
  }
  void end_weight(const Action& a, Progress& p) {
    p.weight = true;
    ++stages_[static_cast<size_t>(a.stage)].weights;
  }

  void check_move(const Action& a) {
    Progress& p = progress_[at(a.stage, a.microbatch)];
    const bool forward = a.kind == ActionKind::send_forward || a.kind == ActionKind::recv_forward;
    const int other = is_send(a.kind) == forward ? a.stage + 1 : a.stage - 1;
    if (!remote(a.stage, other)) refuse(rank_, index_, a, "stage ", other, " is on no other rank");
    bool& done = is_send(a.kind) ? (forward ? p.sent_forward : p.sent_backward)
                                 : (forward ? p.received_forward : p.received_backward);
    if (done) refuse(rank_, index_, a, "is done a second time");
    if (is_send(a.kind) && !(forward ? p.forward : p.backward))
      refuse(rank_, index_, a, "comes before what it sends is made");
    if (a.kind == ActionKind::recv_backward && !p.forward) refuse(rank_, index_, a, "comes before its F");
    done = true;
  }

  void check_sharding(const Action& a) {
    StageState& state = stages_[static_cast<size_t>(a.stage)];
    if (a.kind == ActionKind::reduce_grad) {
      if (state.reduced) refuse(rank_, index_, a, "is done a second time");
      if (state.weights != s_.microbatches)
        refuse(rank_, index_, a, "comes after ", state.weights, " of ", s_.microbatches, " weight halves");
      state.reduced = true;
      return;
    }
    const bool unshards = a.kind == ActionKind::unshard;
    if (state.unsharded == unshards)
      refuse(rank_, index_, a, unshards ? "the stage is unsharded already" : "the stage is not unsharded");
    state.unsharded = unshards;
  }

  const Schedule& s_;
  const bool moves_, shards_;
  std::vector<Progress> progress_;
  std::vector<StageState> stages_;
  size_t rank_ = 0, index_ = 0;
};

// The messages of a pair of ranks are received in the order in which they were sent, so both rows need the
// same order.
void check_pairs(const Schedule& schedule) {
  struct Move {
    bool forward;
    int receiver, microbatch;  // `receiver` is a stage
    bool operator==(const Move&) const = default;
  };
  struct Lists {
    std::vector<Move> sent, received;
  };
  std::map<std::pair<int, int>, Lists> pairs;
  for (size_t r = 0; r < schedule.rows.size(); ++r)
    for (const Action& a : schedule.rows[r]) {
      if (!is_send(a.kind) && !is_receive(a.kind)) continue;
      const bool forward = a.kind == ActionKind::send_forward || a.kind == ActionKind::recv_forward;
      const int next = forward ? a.stage + 1 : a.stage - 1, before = forward ? a.stage - 1 : a.stage + 1;
      const int rank = static_cast<int>(r);
      if (is_send(a.kind))
        pairs[{rank, schedule.stage_rank[static_cast<size_t>(next)]}].sent.push_back(
            {forward, next, a.microbatch});
      else
        pairs[{schedule.stage_rank[static_cast<size_t>(before)], rank}].received.push_back(
            {forward, a.stage, a.microbatch});
    }
  for (const auto& [ranks, lists] : pairs) {
    if (lists.sent == lists.received) continue;
    size_t i = 0;
    while (i < lists.sent.size() && i < lists.received.size() && lists.sent[i] == lists.received[i]) ++i;
    const auto words = [&](const std::vector<Move>& list) {
      if (i == list.size()) return std::string("nothing");
      return gangway::text(list[i].receiver, list[i].forward ? "RECV_F" : "RECV_B", list[i].microbatch);
    };
    fail(Code::invalid_argument, "schedule: message ", i, " from rank ", ranks.first, " to rank ",
         ranks.second, " is for ", words(lists.sent), ", but the receiver expects ", words(lists.received));
  }
}

}  // namespace

void check_schedule(const Schedule& schedule, Transport transport) {
  bool moves = false, shards = false;
  for (const ScheduleRow& row : schedule.rows)
    for (const Action& a : row) {
      moves = moves || is_send(a.kind) || is_receive(a.kind);
      shards = shards || !has_microbatch(a.kind);
    }
  RowChecker rows(schedule, moves, shards);
  for (size_t rank = 0; rank < schedule.rows.size(); ++rank) rows.check_row(rank);
  rows.check_complete();
  check_pairs(schedule);
  simulate(schedule, unit_costs(schedule), transport);
}

}  // namespace gangway
