#include "gang/host/presence/thread_exit.h"

#include <algorithm>

namespace gangway::host {
namespace {

// How long another thread has to take over a rank whose thread has ended, before the rank is lost. A program
// may use new threads for each of its phases, and their first calls may come late. If the waiting thread
// began after the ended one, the program does so, and the wait is long. If it was there before, the wait is
// short.
constexpr int64_t kUnattendedMs = 50;
constexpr int64_t kNextPhaseMs = 10'000;

}  // namespace

std::vector<int64_t> thread_ends_ns(const Team& team) {
  std::vector<int64_t> ends(static_cast<size_t>(team.size()), 0);
  if (!team.arena().threads()) return ends;
  for (int r = 0; r < team.size(); ++r)
    ends[static_cast<size_t>(r)] =
        team.arena().rank(team.domain_rank(r)).threads_ended_ns.load(std::memory_order_acquire);
  return ends;
}

void notice_thread_exit(const Team& team, int r, int64_t ended_ns, int64_t waiting_since_ns,
                        int64_t timeout_ms) {
  if (ended_ns == 0) return;
  const int64_t longest = team.member().registered_since() < ended_ns ? kUnattendedMs : kNextPhaseMs;
  const int64_t patience = timeout_ms < 0 ? longest : std::min(longest, timeout_ms / 2);
  if (now_ns() - std::max(ended_ns, waiting_since_ns) > patience * 1'000'000)
    team.member().declare_lost(team.domain_rank(r), Loss{LossCause::thread_exit, 0, ended_ns});
}

}  // namespace gangway::host
