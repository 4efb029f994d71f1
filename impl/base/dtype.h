// Element types. The value is DLPack's 32-bit DLDataType {code, bits, lanes} as a little-endian word, so that
// any type that a caller can name can be moved. Arithmetic exists for the types with a name in DType only.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gangway {

namespace detail {
constexpr int32_t dl(int code, int bits) { return code | bits << 8 | 1 << 16; }
}  // namespace detail

enum class DType : int32_t {
  i8 = detail::dl(0, 8),
  i16 = detail::dl(0, 16),
  i32 = detail::dl(0, 32),
  i64 = detail::dl(0, 64),
  u8 = detail::dl(1, 8),
  u16 = detail::dl(1, 16),
  u32 = detail::dl(1, 32),
  u64 = detail::dl(1, 64),
  f16 = detail::dl(2, 16),
  f32 = detail::dl(2, 32),
  f64 = detail::dl(2, 64),
  bf16 = detail::dl(4, 16),
  c64 = detail::dl(5, 64),
  c128 = detail::dl(5, 128),
  boolean = detail::dl(6, 8),
  f8_e4m3 = detail::dl(10, 8),
  f8_e5m2 = detail::dl(12, 8),
};

constexpr int dlpack_code(DType t) { return static_cast<int32_t>(t) & 0xff; }
constexpr int dlpack_bits(DType t) { return static_cast<int32_t>(t) >> 8 & 0xff; }
constexpr int dlpack_lanes(DType t) { return static_cast<int32_t>(t) >> 16 & 0xffff; }

constexpr bool is_floating(DType t) {
  return t == DType::f16 || t == DType::f32 || t == DType::f64 || t == DType::bf16;
}

// Returns whether a collective can move the type and a tensor can hold it: it has one lane and a whole number
// of bytes.
constexpr bool is_movable(DType t) {
  return dlpack_lanes(t) == 1 && dlpack_bits(t) != 0 && dlpack_bits(t) % 8 == 0;
}

// Returns whether a reduction accepts the type: f64, f32, bf16, f16, i64, i32, u8 and bool (MIN and MAX
// only).
bool is_reducible(DType t);

constexpr size_t item_bytes(DType t) { return static_cast<size_t>(dlpack_bits(t)) / 8; }

// Returns "f32" and the like, or "dtype(code 3, 64 bits, 1 lanes)" for a type without a name.
std::string name(DType t);

// The bit patterns of the 16-bit floats. They are distinct types, so that overloads can tell them apart.
struct bf16_t {
  uint16_t bits;
};
struct f16_t {
  uint16_t bits;
};

inline float to_f32(bf16_t x) {
  const uint32_t u = static_cast<uint32_t>(x.bits) << 16;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}

// Rounds to nearest even. A NaN stays a NaN and becomes quiet.
inline bf16_t to_bf16(float f) {
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return bf16_t{static_cast<uint16_t>(u >> 16 | 0x40u)};
  return bf16_t{static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16)};
}

// These give the same bits as the x86 instructions (F16C): they round to nearest even; a NaN becomes quiet
// and keeps the part of its payload that fits.
float to_f32(f16_t x);
f16_t to_f16(float f);

}  // namespace gangway
