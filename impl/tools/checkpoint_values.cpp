#include "tools/checkpoint_values.h"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace gangway {
namespace {

template <typename T>
double wide(T value) {
  return static_cast<double>(value);
}
double wide(bf16_t value) { return static_cast<double>(to_f32(value)); }
double wide(f16_t value) { return static_cast<double>(to_f32(value)); }

template <typename T>
bool widen(const std::vector<char>& bytes, std::vector<double>& values) {
  values.resize(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    values[i] = wide(value);
  }
  return true;
}

template <typename Round>
size_t narrow(const std::vector<double>& values, std::vector<char>& bytes, Round&& round) {
  using T = decltype(round(0.));
  bytes.resize(values.size() * sizeof(T));
  size_t lost = values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = round(values[i]);
    std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    if (lost == values.size() && std::isfinite(values[i]) && !std::isfinite(wide(value))) lost = i;
  }
  return lost;
}

}  // namespace

bool to_doubles(DType dtype, const std::vector<char>& bytes, std::vector<double>& values) {
  switch (dtype) {
    case DType::f64: return widen<double>(bytes, values);
    case DType::f32: return widen<float>(bytes, values);
    case DType::bf16: return widen<bf16_t>(bytes, values);
    case DType::f16: return widen<f16_t>(bytes, values);
    case DType::i64: return widen<int64_t>(bytes, values);
    case DType::i32: return widen<int32_t>(bytes, values);
    case DType::i16: return widen<int16_t>(bytes, values);
    case DType::i8: return widen<int8_t>(bytes, values);
    case DType::u64: return widen<uint64_t>(bytes, values);
    case DType::u32: return widen<uint32_t>(bytes, values);
    case DType::u16: return widen<uint16_t>(bytes, values);
    case DType::u8:
    case DType::boolean: return widen<uint8_t>(bytes, values);
    case DType::c64:
    case DType::c128:
    case DType::f8_e4m3:
    case DType::f8_e5m2: break;
  }
  return false;
}

size_t from_doubles(DType dtype, const std::vector<double>& values, std::vector<char>& bytes) {
  if (dtype == DType::f64) return narrow(values, bytes, [](double value) { return value; });
  if (dtype == DType::bf16)
    return narrow(values, bytes, [](double value) { return to_bf16(static_cast<float>(value)); });
  if (dtype == DType::f16)
    return narrow(values, bytes, [](double value) { return to_f16(static_cast<float>(value)); });
  return narrow(values, bytes, [](double value) { return static_cast<float>(value); });
}

std::string place_text(int64_t element, const Shape& shape) {
  std::string out;
  for (int d = shape.rank() - 1; d >= 0; element /= shape[d--])
    out = std::to_string(element % shape[d]) + (out.empty() ? "" : ", ") + out;
  return "[" + out + "]";
}

}  // namespace gangway
