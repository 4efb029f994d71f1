// gw_gangs.
#pragma once

#include "internal.h"
#include "mesh/gangs.h"

struct gw_gangs : gangway::capi::Handle {
  explicit gw_gangs(gangway::GangsPtr g) : gangs(std::move(g)) {}
  gangway::GangsPtr gangs;
};
