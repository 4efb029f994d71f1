#include "parallel/pipeline/communication.h"

#include <algorithm>

#include "base/error.h"
#include "parallel/pipeline/checker.h"

namespace gangway {
namespace {

struct ScheduleEvent {
  double time;
  bool starts;  // at equal times, ends come before starts
  size_t rank, index;
};

std::vector<ScheduleEvent> events_of(const Schedule& schedule) {
  const ScheduleReport report = simulate(schedule, unit_costs(schedule));
  std::vector<ScheduleEvent> events;
  for (size_t rank = 0; rank < schedule.rows.size(); ++rank)
    for (size_t i = 0; i < schedule.rows[rank].size(); ++i) {
      events.push_back({report.ranks[rank].spans[i].start, true, rank, i});
      events.push_back({report.ranks[rank].spans[i].end, false, rank, i});
    }
  std::stable_sort(events.begin(), events.end(), [](const ScheduleEvent& a, const ScheduleEvent& b) {
    return a.time != b.time ? a.time < b.time : a.starts < b.starts;
  });
  return events;
}

void refuse_actions(const Schedule& schedule, bool (*unwanted)(ActionKind) noexcept, const char* words) {
  for (size_t rank = 0; rank < schedule.rows.size(); ++rank)
    for (const Action& a : schedule.rows[rank])
      if (unwanted(a.kind))
        fail(Code::invalid_argument, "schedule: rank ", rank, " has ", text_of(a), " already; ", words);
}

// The next stages, at most `most`, that the row uses from action `from` on, in order of use.
std::vector<int> next_stages(const ScheduleRow& row, size_t from, size_t most) {
  std::vector<int> out;
  for (size_t i = from; i < row.size() && out.size() < most; ++i) {
    const Action& a = row[i];
    const bool reads = is_compute(a.kind) && a.kind != ActionKind::weight_gradient;
    if (reads && std::find(out.begin(), out.end(), a.stage) == out.end()) out.push_back(a.stage);
  }
  return out;
}

// The two computations of a fused pair run together, so that both of their stages are unsharded.
void check_pairs_fit(const Schedule& schedule, int most_unsharded) {
  if (most_unsharded >= 2) return;
  for (size_t rank = 0; rank < schedule.rows.size(); ++rank) {
    const ScheduleRow& row = schedule.rows[rank];
    for (size_t i = 0; i + 1 < row.size(); ++i)
      if (row[i].fused_next && row[i].stage != row[i + 1].stage)
        fail(Code::invalid_argument, "schedule", schedule.name.empty() ? "" : " ", schedule.name,
             ": at most ", most_unsharded, " stage of a rank is to be unsharded at a time, but rank ", rank,
             " runs ", text_of(row[i]), " and ", text_of(row[i + 1]),
             " together, which needs at least 2 (shard_actions; in Python most_unsharded)");
  }
}

ScheduleRow shard_row(const ScheduleRow& row, int microbatches, int stages, size_t most) {
  ScheduleRow out;
  std::vector<int> unsharded;
  std::vector<int> weights(static_cast<size_t>(stages), 0);
  const auto keep = [&](const std::vector<int>& wanted) {
    std::erase_if(unsharded, [&](int stage) {
      if (std::find(wanted.begin(), wanted.end(), stage) != wanted.end()) return false;
      out.push_back({stage, ActionKind::reshard});
      return true;
    });
    for (const int stage : wanted) {
      if (std::find(unsharded.begin(), unsharded.end(), stage) != unsharded.end()) continue;
      out.push_back({stage, ActionKind::unshard});
      unsharded.push_back(stage);
    }
  };
  std::vector<int> to_reduce;
  for (size_t i = 0; i < row.size(); ++i) {
    const bool paired = i > 0 && row[i - 1].fused_next;  // a fused pair stays together
    if (!paired) keep(next_stages(row, i, most));
    out.push_back(row[i]);
    if (row[i].kind == ActionKind::backward || row[i].kind == ActionKind::weight_gradient)
      if (++weights[static_cast<size_t>(row[i].stage)] == microbatches) to_reduce.push_back(row[i].stage);
    if (row[i].fused_next) continue;
    for (const int stage : to_reduce) out.push_back({stage, ActionKind::reduce_grad});
    to_reduce.clear();
  }
  keep({});
  return out;
}

}  // namespace

Schedule with_communication(const Schedule& schedule) {
  refuse_actions(
      schedule, [](ActionKind k) noexcept { return is_send(k) || is_receive(k); },
      "sends and receives are added once");
  check_schedule(schedule);
  Schedule out = schedule;
  for (ScheduleRow& row : out.rows) row.clear();
  const auto move = [&](const Action& made, int to, ActionKind send, ActionKind receive) {
    if (to < 0 || to >= schedule.stages()) return;
    const int from_rank = schedule.stage_rank[static_cast<size_t>(made.stage)];
    const int to_rank = schedule.stage_rank[static_cast<size_t>(to)];
    if (from_rank == to_rank) return;
    out.rows[static_cast<size_t>(from_rank)].push_back({made.stage, send, made.microbatch});
    out.rows[static_cast<size_t>(to_rank)].push_back({to, receive, made.microbatch});
  };
  for (const ScheduleEvent& event : events_of(schedule)) {
    const Action& action = schedule.rows[event.rank][event.index];
    if (event.starts) {
      out.rows[event.rank].push_back(action);
    } else if (action.kind == ActionKind::forward) {
      move(action, action.stage + 1, ActionKind::send_forward, ActionKind::recv_forward);
    } else if (action.kind == ActionKind::backward || action.kind == ActionKind::input_gradient) {
      move(action, action.stage - 1, ActionKind::send_backward, ActionKind::recv_backward);
    }
  }
  return out;
}

Schedule with_fsdp(const Schedule& schedule, int most_unsharded) {
  if (most_unsharded < 1)
    fail(Code::invalid_argument, "schedule: most_unsharded is ", most_unsharded, ", not at least 1");
  refuse_actions(
      schedule, [](ActionKind k) noexcept { return !has_microbatch(k); }, "FSDP's actions are added once");
  check_pairs_fit(schedule, most_unsharded);
  Schedule out = schedule;
  for (ScheduleRow& row : out.rows)
    row = shard_row(row, schedule.microbatches, schedule.stages(), static_cast<size_t>(most_unsharded));
  return out;
}

}  // namespace gangway
