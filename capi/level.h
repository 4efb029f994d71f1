// Made by capi/version.py: do not edit.
#pragma once

#include <cstdint>

namespace gangway::capi {

constexpr int32_t kAbiMajor = 0;
constexpr int32_t kAbiMinor = 0;

}  // namespace gangway::capi
