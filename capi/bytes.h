// Bytes owned by the library, as a handle.
#pragma once

#include <string>

struct gw_bytes {
  std::string data;
};
