#include "gang/host/call/awaited.h"

namespace gangway::host {
namespace {

std::vector<int> waiting_for_peer(const Op& op, bool only_absent) {
  const bool sending = op.lane->sending;
  const PairLine& pair = *op.lane->line;
  const bool come =
      sending ? pair.wanted.load(std::memory_order_acquire) > op.sequence
              : pair.slots[op.sequence % kPairSlots].arrived.load(std::memory_order_acquire) > op.sequence;
  const bool finished =
      sending ? pair.drained.load(std::memory_order_acquire) >= progress_of(op.sequence + 1, 0) : op.done;
  if (come && (only_absent || finished)) return {};
  return {op.c.peer};
}

bool among(Peers peers, const Op& op, int r) {
  return peers == Peers::all || (peers == Peers::root && op.c.peer == r);
}

bool waits_for(const Team& team, const Op& op, int r, bool only_absent) {
  const uint64_t drained = team.line(op.channel, r).drained.load(std::memory_order_acquire);
  // The call waits for a free slot as long as r may still read that slot.
  if (!op.published) return (drained >> kRoundBits) + kSlots <= op.sequence;
  const bool needed = among(op.from, op, r);
  const bool reads = (is_read_in_place(op.source) || op.source == Source::staged) &&
                     among(op.in_place_on_peers ? Peers::all : op.to, op, r);
  const bool come = slot_of(team, op, r).arrived.load(std::memory_order_acquire) > op.sequence;
  const bool awaited = needed || reads || !op.c.async_input;
  if (only_absent) return awaited && !come;
  const bool finished = drained >= progress_of(op.sequence + 1, 0);
  return (awaited && !come) || ((reads || (needed && !op.done)) && !finished);
}

}  // namespace

std::vector<int> waiting_for(const Team& team, const Lanes& lanes, const Op& op, bool only_absent) {
  if (const Op* const before = lanes.holder(op)) return waiting_for(team, lanes, *before, only_absent);
  if (op.lane->pair()) return waiting_for_peer(op, only_absent);
  std::vector<int> ranks;
  for (int r = 0; r < team.size(); ++r)
    if (r != team.rank() && waits_for(team, op, r, only_absent)) ranks.push_back(r);
  return ranks;
}

std::vector<int> missing(const Team& team, const Lanes& lanes, const Op& op) {
  std::vector<int> ranks = waiting_for(team, lanes, op, true);
  return ranks.empty() ? waiting_for(team, lanes, op, false) : ranks;
}

const Op* blocker(const Lanes& lanes, const HostWork& work) {
  for (const Lane* lane : lanes.active()) {
    const Op* first = nullptr;  // the lane's first call whose own part is not done
    for (const Op* op = lane->head; op != nullptr; op = op->next) {
      if (first == nullptr && !op->done) first = op;
      if (op->work != &work) continue;
      const Op* const at = op->done || first == nullptr ? op : first;
      const Op* const before = lanes.holder(*at);
      return before != nullptr ? before : at;
    }
  }
  return nullptr;
}

void tell_calls(const Team& team, const Lanes& lanes) noexcept {
  lanes.each([&](const Lane& lane) {
    auto& calls = !lane.pair()   ? team.line(lane.channel, team.rank()).calls
                  : lane.sending ? lane.line->sends
                                 : lane.line->receives;
    calls.store(lane.sequence, std::memory_order_relaxed);
  });
}

bool will_begin(const Team& team, const Op& op, int r) {
  const auto& calls = !op.lane->pair()   ? team.line(op.channel, r).calls
                      : op.lane->sending ? op.lane->line->receives
                                         : op.lane->line->sends;
  return calls.load(std::memory_order_relaxed) > op.sequence;
}

}  // namespace gangway::host
