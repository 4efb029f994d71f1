#include "gang/host/call/reasons.h"

#include <cstdio>

namespace gangway::host {
namespace {

std::string milliseconds_since(int64_t ns) {
  char out[32];
  std::snprintf(out, sizeof out, "%.1f ms", static_cast<double>(std::max<int64_t>(0, now_ns() - ns)) / 1e6);
  return out;
}

struct Described {
  CollectiveOp op;
  Reduce reduce;
  int32_t dtype, peer;
  uint64_t count;
};

Described described(const Collective& c) {
  return {c.op, c.reduce, static_cast<int32_t>(c.dtype), c.peer, c.count};
}

std::string arguments(const Described& d, bool all) {
  std::string out = text("(", d.count, " ", name(static_cast<DType>(d.dtype)));
  if (all && d.reduce != Reduce::none) out += text(", ", name(d.reduce));
  if (all && facts(d.op).has_root) out += text(", root ", d.peer);
  return out + ")";
}

Error lost_error(const Team& team, const std::string& call, const char* op, int r, const Loss& loss) {
  std::string how;
  const std::string ago = milliseconds_since(loss.at_ns) + " ago";
  switch (loss.cause) {
    case LossCause::unknown: how = " was lost " + ago; break;
    case LossCause::signal: how = text(" was lost ", ago, ", killed by signal ", loss.value); break;
    case LossCause::exit: how = text(" left without shutdown ", ago, ", exit code ", loss.value); break;
    case LossCause::silent: how = text(" was lost ", ago, ", no heartbeat for ", loss.value, " ms"); break;
    case LossCause::thread_exit: how = " left without shutdown " + ago + ", its thread ended"; break;
  }
  return team.shaped(Error(Code::peer_lost, text(call, ": ", team.name_of(r), how, "; ", team.alive_text(r))),
                     op, r);
}

Error left_error(const Team& team, const std::string& call, const char* op, int r) {
  return team.shaped(Error(Code::peer_lost,
                           text(call, ": ", team.name_of(r), " left without shutdown; ", team.alive_text(r))),
                     op, r);
}

}  // namespace

std::string call_text(const Team& team, const Op& op) {
  return text(team.label(), ".", name(op.c.op), " #", op.sequence);
}

std::optional<Error> why_broken(const Team& team, const Op* op, const char* call) {
  std::optional<Error> broken = team.board().error(team.rank());
  const int64_t broken_ns = team.board().broken_ns();
  int lost = -1;
  std::optional<Loss> first;
  for (int r = 0; r < team.size(); ++r) {
    const auto loss = team.loss(r);
    if (loss && (!first || loss->at_ns < first->at_ns)) first = loss, lost = r;
  }
  const bool by_loss = first && !(broken && first->at_ns > broken_ns);
  const bool by_leave = !by_loss && broken && broken->code() == Code::peer_lost;
  if (!by_loss && !by_leave) return broken;
  const std::string where = op != nullptr   ? call_text(team, *op)
                            : *call != '\0' ? text(team.label(), ".", call)
                                            : team.label();
  const char* const op_name = op != nullptr ? name(op->c.op) : "";
  return by_loss ? lost_error(team, where, op_name, lost, *first)
                 : left_error(team, where, op_name, broken->peer);
}

Error left_error(const Team& team, const Op& op, int r) {
  return left_error(team, call_text(team, op), name(op.c.op), r);
}

Error shutdown_error(const Team& team, const Op& op, int r) {
  const std::string what =
      text(call_text(team, op), " of ", team.rank_text(team.rank()), " ", arguments(described(op.c), false),
           " meets shutdown of ", team.rank_text(r), ": ranks called different collectives");
  return team.shaped(Error(Code::mismatch, what), name(op.c.op), r);
}

void mismatch(const Team& team, const Op& op, int peer, const Slot& slot) {
  const Described mine = described(op.c);
  const Described other{slot.op, slot.reduce, slot.dtype, slot.peer, slot.count};
  const bool plain_differ = mine.op != other.op || mine.count != other.count || mine.dtype != other.dtype;
  const bool pair = op.lane->pair();
  const std::string a = arguments(mine, !plain_differ), b = arguments(other, !plain_differ);
  std::string what = text(call_text(team, op), " of ", team.rank_text(team.rank()), " ", a, " meets ",
                          name(slot.op), " #", op.sequence, " of ", team.rank_text(peer), " ", b, ": ");
  if (plain_differ || a != b) {
    what += pair ? "the two ends differ" : "ranks called different collectives";
  } else if (!op.counts.empty()) {
    what += "their counts per rank, or the calls before, differ";
  } else {
    what += "the calls before were different collectives";
  }
  throw team.shaped(Error(Code::mismatch, what), name(op.c.op), peer);
}

void refuse_when_closed(const Team& team, const Op& op) {
  if (team.board().header().closed.load(std::memory_order_seq_cst) == 0 && !team.loss(team.rank())) return;
  if (const auto why = why_broken(team, &op, "")) throw *why;
  throw team.shaped(Error(Code::aborted, text(call_text(team, op), ": the other ranks went on without ",
                                              team.rank_text(team.rank()))),
                    name(op.c.op), -1);
}

void refuse_when_given_up(const Team& team, const Op& op) {
  std::atomic_thread_fence(std::memory_order_acquire);  // orders the reads of the input before the check
  if (team.board().header().given_up.load(std::memory_order_acquire) == 0) return;
  for (int r = 0; r < team.size(); ++r) {
    if (r == team.rank() || op.from == Peers::none || (op.from == Peers::root && r != op.c.peer)) continue;
    const Slot& slot = op.lane->pair()
                           ? team.board().pair(op.channel, r, team.rank()).slots[op.sequence % kPairSlots]
                           : slot_of(team, op, r);
    if (!is_read_in_place(slot.source) ||
        team.board().member(r).given_up.load(std::memory_order_acquire) == 0)
      continue;
    if (const auto why = why_broken(team, &op, "")) throw *why;
    if (team.board().has_left(r)) throw left_error(team, op, r);
    throw team.shaped(Error(Code::aborted, text(call_text(team, op), ": ", team.name_of(r),
                                                " gave the call up before it ended")),
                      name(op.c.op), r);
  }
}

}  // namespace gangway::host
