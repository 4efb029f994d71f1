// The handles gw_gang, gw_work and gw_store.
//
// Thread rule: any thread, unless the public header says more; gw_work::mutex guards `attached`.
#pragma once

#include <gangway/gang.h>
#include <gangway/work.h>

#include <memory>
#include <mutex>
#include <vector>

#include "callbacks.h"
#include "gang/agreement.h"
#include "gang/gang.h"
#include "handles.h"

struct gw_gang : gangway::capi::Handle {
  explicit gw_gang(gangway::GangPtr g) : gang(std::move(g)) {}
  gangway::GangPtr gang;
};

struct gw_store : gangway::capi::Handle {
  explicit gw_store(std::shared_ptr<gangway::Store> s) : store(std::move(s)) {}
  std::shared_ptr<gangway::Store> store;
};

struct gw_work : gangway::capi::Handle {
  gw_work(gangway::WorkPtr w, gangway::GangPtr g) : work(std::move(w)), gang(std::move(g)) {}
  void settle();  // frees attached objects if the work is done or has failed
  gangway::WorkPtr work;
  gangway::GangPtr gang;       // kept alive because the work needs it
  std::shared_ptr<void> keep;  // kept alive because the work writes its memory
  std::mutex mutex;            // of `attached`
  std::shared_ptr<std::vector<gangway::capi::CallerObject>> attached;  // null: no objects
};

namespace gangway::capi {

inline Gang& gang_of(gw_gang* gang) { return *required(gang, "gang").gang; }

// Reads the arguments of a collective call that creates something. If this rank refuses its arguments, it
// takes part in the check phase that its peers are in, so that every rank returns the first error (lowest
// rank).
template <typename Read>
void agreed(Gang& gang, Read&& read) {
  const std::optional<Error> refusal = error_thrown_by(read);
  if (!refusal) return;
  if (gang.size() > 1) gang.agreement().agree(refusal);
  throw *refusal;
}

// Returns a new handle; null for a null gang.
inline gw_gang* wrap(GangPtr gang) { return gang ? new gw_gang(std::move(gang)) : nullptr; }

}  // namespace gangway::capi
