#include "gang/nccl/greeting.h"

#include <algorithm>

#include "base/error.h"
#include "gang/byte_gather.h"

namespace gangway::nccl {
namespace {

// Releases that were seen to hang while they connect hosts with different numbers of ranks
// (github.com/NVIDIA/nccl/issues/2385).
constexpr int kFirstThatHangs = 23100, kLastThatHangs = 23102;

// Returns the number of ranks on each host, in the order of the hosts' first ranks.
std::vector<int> ranks_of_hosts(std::span<const Greeting> all) {
  std::vector<std::pair<std::string, int>> hosts;
  for (const Greeting& one : all) {
    const std::string host(one.identity.host, sizeof one.identity.host);
    const auto found =
        std::find_if(hosts.begin(), hosts.end(), [&](const auto& h) { return h.first == host; });
    if (found == hosts.end())
      hosts.emplace_back(host, 1);
    else
      ++found->second;
  }
  std::vector<int> ranks;
  for (const auto& [host, count] : hosts) ranks.push_back(count);
  return ranks;
}

}  // namespace

std::vector<Greeting> exchange(Engine& control, const Greeting& mine, Stream& host_stream) {
  std::vector<Greeting> all(static_cast<size_t>(control.size()));
  const Collective c = gather_of_bytes(&mine, all.data(), sizeof mine);
  if (const WorkPtr work = control.run_now(Channel::control, {&c, 1}, host_stream))
    work->wait(Deadline::never());
  return all;
}

void check(std::span<const Greeting> all, const std::string& label) {
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r].version != all[0].version)
      fail(Code::invalid_state, label, ": rank 0 has NCCL ", version_text(all[0].version), ", rank ", r,
           " has NCCL ", version_text(all[r].version), "; install the same version on every host");
    const auto compare = [&](const char* variable, auto first, auto other) {
      if (first != other)
        fail(Code::invalid_state, label, ": ", variable, " stands for ", first, " on rank 0 and for ", other,
             " on rank ", r, "; set the same value on every rank");
    };
    compare("GANGWAY_NCCL_REGISTER", all[0].least_registered, all[r].least_registered);
    compare("GANGWAY_NCCL_CTA_POLICY", policy_text(all[0].cta_policy), policy_text(all[r].cta_policy));
  }
  const std::string uneven = uneven_hosts(all);
  const int version = all.empty() ? 0 : all[0].version;
  if (!uneven.empty() && version >= kFirstThatHangs && version <= kLastThatHangs)
    fail(Code::not_supported, label, ": its hosts have ", uneven, " ranks, and NCCL ", version_text(version),
         " hangs when it connects hosts with different numbers of ranks; install another version of NCCL, "
         "or use as many ranks on every host");
}

int count_hosts(std::span<const Greeting> all) { return static_cast<int>(ranks_of_hosts(all).size()); }

std::string uneven_hosts(std::span<const Greeting> all) {
  const std::vector<int> hosts = ranks_of_hosts(all);
  if (std::all_of(hosts.begin(), hosts.end(), [&](int ranks) { return ranks == hosts[0]; })) return "";
  std::string list;
  for (size_t i = 0; i < hosts.size(); ++i)
    list += text(i == 0 ? "" : i + 1 == hosts.size() ? " and " : ", ", hosts[i]);
  return list;
}

std::string policy_text(int policy) {
  switch (policy) {
    case kDefaultPolicy: return "default";
    case kEfficiencyPolicy: return "efficiency";
    case kZeroPolicy: return "zero";
    default: return "no policy";
  }
}

std::string version_text(int version) {
  return text(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

}  // namespace gangway::nccl
