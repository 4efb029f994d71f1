// From the names of PTX's types to C++ types.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "gpu_emulation/ptx/program.h"

namespace gpu_emulation::ptx {

// Returns choose(T{}) for the type of that name, or null.
template <typename Choose>
Handler with_integer(std::string_view type, Choose&& choose) {
  if (type == "s16") return choose(int16_t{});
  if (type == "u16" || type == "b16") return choose(uint16_t{});
  if (type == "s32") return choose(int32_t{});
  if (type == "u32" || type == "b32") return choose(uint32_t{});
  if (type == "s64") return choose(int64_t{});
  if (type == "u64" || type == "b64") return choose(uint64_t{});
  return nullptr;
}
template <typename Choose>
Handler with_float(std::string_view type, Choose&& choose) {
  if (type == "f32") return choose(float{});
  if (type == "f64") return choose(double{});
  return nullptr;
}
template <typename Choose>
Handler with_number(std::string_view type, Choose&& choose) {
  const Handler handler = with_integer(type, choose);
  return handler != nullptr ? handler : with_float(type, choose);
}

}  // namespace gpu_emulation::ptx
