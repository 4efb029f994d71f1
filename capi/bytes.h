// Bytes owned by the library, as a handle.
#pragma once

#include <string>

#include "internal.h"

struct gw_bytes : gangway::capi::Handle {
  explicit gw_bytes(std::string d = {}) : data(std::move(d)) {}
  std::string data;
};
