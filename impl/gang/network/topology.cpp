#include "gang/network/topology.h"

#include <algorithm>
#include <map>

namespace gangway::network {

Topology::Topology(const std::vector<int>& hosts) {
  std::map<int, int> known;
  for (size_t r = 0; r < hosts.size(); ++r) {
    const auto [found, is_new] = known.emplace(hosts[r], static_cast<int>(ranks.size()));
    if (is_new) ranks.emplace_back();
    is_consecutive = is_consecutive && (is_new || hosts[r] == hosts[r - 1]);
    std::vector<int>& own = ranks[static_cast<size_t>(found->second)];
    host.push_back(found->second);
    index.push_back(static_cast<int>(own.size()));
    own.push_back(static_cast<int>(r));
    rails = std::max(rails, static_cast<int>(own.size()));
  }
}

}  // namespace gangway::network
