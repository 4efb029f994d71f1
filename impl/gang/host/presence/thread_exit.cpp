#include "gang/host/presence/thread_exit.h"

#include <algorithm>

namespace gangway::host {
namespace {

// A thread rank whose thread ended is lost when no other thread has taken it over for so long. A program may well use
// new threads for each phase, and their first call may come late: a thread that began after the rank's last one ended
// is of such a phase, and waits for long. A thread that was there before waits for a moment only.
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
