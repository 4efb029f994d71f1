// Where a rank runs and what it runs: which ranks can reach each other by sockets of their host, and whether
// all ranks run the same build of the library.
//
// Thread rule: pure functions.
#pragma once

#include <span>
#include <string>

namespace gangway {

// A fixed size, so that ranks can exchange it before they know anything of each other. Ranks of other builds
// exchange it too, so its layout never changes.
struct RankIdentity {
  char host[96];   // the boot of the machine, and the network and PID namespaces; zeros follow
  char build[32];  // library_build(); zeros follow
};
static_assert(sizeof(RankIdentity) == 128);

RankIdentity own_identity();
// Identifies the boot of the machine and the network namespace: processes in one of them reach each other's
// abstract sockets.
std::string network_of_host();
std::string hash_of_network();  // of network_of_host(), for names and records of a fixed size

// Returns whether all ranks run on one host and in the same namespaces. INVALID_STATE, which names two ranks
// and both ids: they run different builds of the library. all[r] is rank r's.
bool on_one_host(std::span<const RankIdentity> all);

// Throws INVALID_STATE unless both builds are equal.
void check_same_build(int rank, const std::string& build, int other_rank, const std::string& other_build);

}  // namespace gangway
