// What the environment says of NCCL (base/config.h), as this version of NCCL can do it. What it cannot do is
// said in the log, once.
//
// Thread rule: any thread; values.
#pragma once

#include <memory>
#include <string>

#include "gang/nccl/api.h"
#include "gang/nccl/greeting.h"
#include "gang/nccl/registrations.h"
#include "gang/rank.h"

namespace gangway::nccl {

struct Settings {
  std::shared_ptr<RegisteredMemory> memory;  // null: nothing is registered
  int cta_policy = kNoPolicy;
};

Settings settings_for(Rank& rank);

// Sets the policy, unless it is kNoPolicy or the headers do not know it.
void set_cta_policy(ncclConfig_t& config, int policy);

// Logs the first registration of each kind that this process makes.
void tell(Registered how);
// Logs the first registration of each kind that fails in this process.
void tell_failure(Registered how, const Verdict& verdict, int ranks);

// Returns lines for gw-info.
std::string describe();

}  // namespace gangway::nccl
