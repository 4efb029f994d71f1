// gw_gang, gw_work, gw_store.
#pragma once

#include <memory>
#include <mutex>

#include "gang/agreement.h"
#include "gang/gang.h"
#include "internal.h"

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
  void settle();  // frees attached objects once the work is done or has failed
  gangway::WorkPtr work;
  gangway::GangPtr gang;       // keeps what the work needs
  std::shared_ptr<void> keep;  // likewise: the owner of memory that it writes
  std::mutex mutex;
  std::shared_ptr<std::vector<gangway::capi::CallerObject>> attached;  // null: nothing
};

namespace gangway::capi {

inline Gang& gang_of(gw_gang* gang) { return *required(gang, "gang").gang; }

// Reads the arguments of a set-up call. What it refuses on this rank alone joins the check phase that peers
// are in, so that every rank returns the first refusal (lowest rank).
template <typename Read>
void agreed(Gang& gang, Read&& read) {
  const std::optional<Error> refusal = refusal_of(read);
  if (!refusal) return;
  if (gang.size() > 1) gang.agreement().agree(refusal);
  throw *refusal;
}

// Null gang stays null.
inline gw_gang* wrap(GangPtr gang) { return gang ? new gw_gang(std::move(gang)) : nullptr; }

}  // namespace gangway::capi
