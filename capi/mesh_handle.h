// gw_gangs.
#pragma once

#include "internal.h"
#include "mesh/current.h"

struct gw_gangs : gangway::capi::Handle {
  explicit gw_gangs(gangway::GangsPtr g) : gangs(std::move(g)) {}
  gangway::GangsPtr gangs;
};

namespace gangway::capi {

// What a call uses that takes null gangs: the thread's current ones, or none.
inline GangsPtr gangs_or_current(const gw_gangs* given) {
  return given != nullptr ? given->gangs : maybe_current_gangs();
}

}  // namespace gangway::capi
