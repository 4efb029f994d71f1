// What the ranks of a gang tell each other before they make a communicator of NCCL, and the refusals that
// follow from it.
//
// Thread rule: exchange() is a call of the control engine; the others are pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gang/engine.h"
#include "gang/rendezvous/identity.h"

namespace gangway::nccl {

struct Greeting {
  char id[128] = {};  // of the communicator, by rank 0
  RankIdentity identity{};
  int32_t version = 0;  // of NCCL, as ncclGetVersion gives it
  int32_t cta_policy = 0;
  uint64_t least_registered = 0;  // bytes of a buffer; 0: none is registered
};

// Returns the greetings of all ranks. Collective over the control engine.
std::vector<Greeting> exchange(Engine& control, const Greeting& mine, Stream& host_stream);

// Refuses, on every rank alike, what NCCL would refuse without a text or wait for without an end.
// INVALID_STATE: ranks have different versions of NCCL or settings of it. NOT_SUPPORTED: hosts have different
// numbers of the ranks, and this version is known to hang then. `label` names the gang.
void check(std::span<const Greeting> all, const std::string& label);

int count_hosts(std::span<const Greeting> all);
// Returns the numbers of ranks on each host if they differ, such as "2 and 1", else "".
std::string uneven_hosts(std::span<const Greeting> all);

std::string version_text(int version);  // "2.28.3"

// NCCL_CTA_POLICY_*, which older headers do not have, and none where NCCL knows no policy.
constexpr int kNoPolicy = -1, kDefaultPolicy = 0, kEfficiencyPolicy = 1, kZeroPolicy = 2;
std::string policy_text(int policy);  // as GANGWAY_NCCL_CTA_POLICY has it

}  // namespace gangway::nccl
