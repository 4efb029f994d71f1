#include "base/dtype.h"

#include "base/error.h"

namespace gangway {

bool is_reducible(DType t) {
  switch (t) {
    case DType::f64:
    case DType::f32:
    case DType::bf16:
    case DType::f16:
    case DType::i64:
    case DType::i32:
    case DType::u8:
    case DType::boolean: return true;
    case DType::i8:
    case DType::i16:
    case DType::u16:
    case DType::u32:
    case DType::u64:
    case DType::c64:
    case DType::c128:
    case DType::f8_e4m3:
    case DType::f8_e5m2: return false;
  }
  return false;
}

std::string name(DType t) {
  switch (t) {
    case DType::i8: return "i8";
    case DType::i16: return "i16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
    case DType::u16: return "u16";
    case DType::u32: return "u32";
    case DType::u64: return "u64";
    case DType::f16: return "f16";
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::c64: return "c64";
    case DType::c128: return "c128";
    case DType::boolean: return "bool";
    case DType::f8_e4m3: return "f8_e4m3";
    case DType::f8_e5m2: return "f8_e5m2";
  }
  return text("dtype(code ", dlpack_code(t), ", ", dlpack_bits(t), " bits, ", dlpack_lanes(t), " lanes)");
}

float to_f32(f16_t x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t exponent = x.bits >> 10 & 0x1fu;
  const uint32_t fraction = x.bits & 0x3ffu;
  float f;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24 is exact
    f = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -f : f;
  }
  const uint32_t quiet = fraction != 0 ? 0x400000u : 0;
  const uint32_t u = sign | fraction << 13 | (exponent == 31 ? 0x7f800000u | quiet : (exponent + 112) << 23);
  __builtin_memcpy(&f, &u, 4);
  return f;
}

f16_t to_f16(float f) {
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  const uint32_t sign = u >> 16 & 0x8000u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return f16_t{static_cast<uint16_t>(sign | 0x7e00u | (u >> 13 & 0x1ffu))};
  if (u >= 0x477ff000u) return f16_t{static_cast<uint16_t>(sign | 0x7c00u)};  // rounds to infinity
  // For a subnormal result, adding 0.5 moves the 10 fraction bits to the bottom of the word and rounds them.
  if (u < 0x38800000u) {
    float magnitude;
    __builtin_memcpy(&magnitude, &u, 4);
    magnitude += 0.5f;
    uint32_t v;
    __builtin_memcpy(&v, &magnitude, 4);
    return f16_t{static_cast<uint16_t>(sign | (v - 0x3f000000u))};
  }
  u += 0xfffu + (u >> 13 & 1u);
  return f16_t{static_cast<uint16_t>(sign | ((u >> 13) - (112u << 10)))};
}

}  // namespace gangway
