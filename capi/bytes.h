// gw_bytes: a handle of bytes that the library owns.
//
// Thread rule: any thread; the bytes do not change.
#pragma once

#include <string>

#include "handles.h"

struct gw_bytes : gangway::capi::Handle {
  explicit gw_bytes(std::string d = {}) : data(std::move(d)) {}
  std::string data;
};
