// The handle gw_gangs.
//
// Thread rule: any thread; a gw_gangs does not change.
#pragma once

#include <gangway/mesh.h>

#include "handles.h"
#include "mesh/current.h"

struct gw_gangs : gangway::capi::Handle {
  explicit gw_gangs(gangway::GangsPtr g) : gangs(std::move(g)) {}
  gangway::GangsPtr gangs;
};

namespace gangway::capi {

// Returns the gangs of a call: the given ones; for null, the thread's current ones, or null if there are
// none.
inline GangsPtr gangs_or_current(const gw_gangs* given) {
  return given != nullptr ? given->gangs : maybe_current_gangs();
}
// The same; without any, a gang of one.
inline GangsPtr gangs_or_alone(const gw_gangs* given) {
  if (GangsPtr gangs = gangs_or_current(given)) return gangs;
  GangOptions options;
  options.rank = 0;
  options.size = 1;
  return create_gangs(Gang::create(options), MeshOptions{});
}

}  // namespace gangway::capi
