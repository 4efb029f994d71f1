// Conversions between types, and of addresses between spaces.
#include <cmath>
#include <limits>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "gpu_emulation/ptx/types.h"

namespace gpu_emulation::ptx {
namespace {

// Rounds to nearest; an integer gets a truncated number within its limits. Of NaN it gets 0, and its highest
// bit alone if either type has 64 bits.
template <typename To, typename From>
void convert(const Instruction& i, State& s) {
  const From from = s.get<From>(i.at[1]);
  if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
    // Into a register that is wider than the type, with its sign.
    using Wide = std::conditional_t<std::is_signed_v<To>, int64_t, uint64_t>;
    s.put<Wide>(i.at[0], static_cast<Wide>(static_cast<To>(from)));
  } else if constexpr (std::is_integral_v<To>) {
    const From whole = std::trunc(from);
    using Limits = std::numeric_limits<To>;
    To to{};
    if (whole >= static_cast<From>(Limits::max()))
      to = Limits::max();
    else if (whole <= static_cast<From>(Limits::min()))
      to = Limits::min();
    else if (whole == whole)
      to = static_cast<To>(whole);
    else if (sizeof(To) == 8 || sizeof(From) == 8)
      to = static_cast<To>(uint64_t{1} << (sizeof(To) * 8 - 1));
    s.put<To>(i.at[0], to);
  } else {
    s.put<To>(i.at[0], static_cast<To>(from));
  }
}

void saturate(const Instruction& i, State& s) {
  const float x = s.get<float>(i.at[1]);
  s.put<float>(i.at[0], x > 0 ? (x < 1 ? x : 1.0f) : 0.0f);
}
// To a whole number of the same type: towards zero, or to the nearest one, ties to even.
template <typename T>
void truncate(const Instruction& i, State& s) {
  s.put<T>(i.at[0], std::trunc(s.get<T>(i.at[1])));
}
template <typename T>
void nearest(const Instruction& i, State& s) {
  s.put<T>(i.at[0], std::nearbyint(s.get<T>(i.at[1])));
}
void to_bf16(const Instruction& i, State& s) {
  s.put<uint16_t>(i.at[0], __float2bfloat16_rn(s.get<float>(i.at[1])).bits);
}
void to_f16(const Instruction& i, State& s) {
  s.put<uint16_t>(i.at[0], __float2half_rn(s.get<float>(i.at[1])).bits);
}
void from_bf16(const Instruction& i, State& s) {
  s.put<float>(i.at[0], __bfloat162float({s.get<uint16_t>(i.at[1])}));
}
void from_f16(const Instruction& i, State& s) {
  s.put<float>(i.at[0], __half2float({s.get<uint16_t>(i.at[1])}));
}
uint32_t pair_of(uint16_t upper, uint16_t lower) { return uint32_t{upper} << 16 | lower; }
void to_bf16_pair(const Instruction& i, State& s) {
  s.put<uint32_t>(i.at[0], pair_of(__float2bfloat16_rn(s.get<float>(i.at[1])).bits,
                                   __float2bfloat16_rn(s.get<float>(i.at[2])).bits));
}
void to_f16_pair(const Instruction& i, State& s) {
  s.put<uint32_t>(i.at[0], pair_of(__float2half_rn(s.get<float>(i.at[1])).bits,
                                   __float2half_rn(s.get<float>(i.at[2])).bits));
}

// Addresses of global, local and parameter memory are those of the host. Those of shared memory begin at 0.
void same_address(const Instruction& i, State& s) { s.slots[i.at[0]] = s.slots[i.at[1]]; }
void to_shared(const Instruction& i, State& s) {
  s.slots[i.at[0]] = s.slots[i.at[1]] - reinterpret_cast<uint64_t>(s.shared);
}
void from_shared(const Instruction& i, State& s) {
  s.slots[i.at[0]] = s.slots[i.at[1]] + reinterpret_cast<uint64_t>(s.shared);
}

Handler between_numbers(const std::string& to, const std::string& from) {
  return with_number(to, [&](auto a) {
    return with_number(from, [&](auto b) -> Handler { return convert<decltype(a), decltype(b)>; });
  });
}

Handler of_16_bits(const Form& form, const std::string& to, const std::string& from) {
  const bool nearest = form.has("rn");
  if (to == "f32" && from == "bf16") return from_bf16;
  if (to == "f32" && from == "f16") return from_f16;
  if (!nearest || from != "f32") return nullptr;
  if (to == "bf16") return to_bf16;
  if (to == "f16") return to_f16;
  if (to == "bf16x2") return to_bf16_pair;
  if (to == "f16x2") return to_f16_pair;
  return nullptr;
}

}  // namespace

Handler conversion(const Form& form) {
  if (form.root() == "cvta") {
    const bool to = form.has("to");
    if (form.has("shared")) return to ? to_shared : from_shared;
    return same_address;
  }
  if (form.root() != "cvt" || form.parts.size() < 3) return nullptr;
  for (const char* const other : {"ftz", "relu", "satfinite"})
    if (form.has(other)) return nullptr;
  const std::string &to = form.parts[form.parts.size() - 2], &from = form.type();
  if (const Handler handler = of_16_bits(form, to, from)) return handler;
  if (form.has("sat")) return to == "f32" && from == "f32" ? saturate : nullptr;
  if (form.has("rni"))
    return to != from ? nullptr : with_float(to, [](auto t) -> Handler { return nearest<decltype(t)>; });
  if (form.has("rzi")) {
    if (to == from) return with_float(to, [](auto t) -> Handler { return truncate<decltype(t)>; });
    return to[0] != 'f' && from[0] == 'f' ? between_numbers(to, from) : nullptr;
  }
  const bool to_float = to[0] == 'f', from_float = from[0] == 'f';
  if (from_float && !to_float) return nullptr;
  const bool rounds = to_float && (!from_float || (to == "f32" && from == "f64"));
  if (form.parts.size() != (rounds ? 4u : 3u) || (rounds && !form.has("rn"))) return nullptr;
  return between_numbers(to, from);
}

}  // namespace gpu_emulation::ptx
