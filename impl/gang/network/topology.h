// Where the ranks of a gang are, for plans that send as little as possible between hosts.
//
// Thread rule: values.
#pragma once

#include <cstddef>
#include <vector>

namespace gangway::network {

struct Topology {
  // `hosts[r]` is any number that equals that of the ranks on rank r's host.
  explicit Topology(const std::vector<int>& hosts);

  // Some host has several ranks, and there is more than one host.
  bool has_levels() const { return ranks.size() > 1 && rails > 1; }
  int hosts() const { return static_cast<int>(ranks.size()); }
  // Rail i of a host is its i-th rank; a host with fewer ranks serves it by one of them.
  int rail(int host, int i) const {
    const std::vector<int>& own = ranks[static_cast<size_t>(host)];
    return own[static_cast<size_t>(i) % own.size()];
  }
  int host_of(int rank) const { return host[static_cast<size_t>(rank)]; }
  int index_of(int rank) const { return index[static_cast<size_t>(rank)]; }
  const std::vector<int>& ranks_on(int which) const { return ranks[static_cast<size_t>(which)]; }

  std::vector<std::vector<int>> ranks;  // of each host, in rank order; hosts in the order of their first rank
  std::vector<int> host, index;         // by rank: its host, and its place among that host's ranks
  int rails = 0;                        // the most ranks of one host
  bool is_consecutive = true;           // each host's ranks follow one another
};

}  // namespace gangway::network
