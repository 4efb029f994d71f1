// Numbers as little-endian bytes, for frames.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gangway {

// Each returns the place behind the number.
template <typename Number>
uint8_t* store_little(uint8_t* at, Number number) {
  for (size_t i = 0; i < sizeof number; ++i) *at++ = static_cast<uint8_t>(number >> (8 * i));
  return at;
}

template <typename Number>
const uint8_t* load_little(const uint8_t* at, Number& number) {
  number = 0;
  for (size_t i = 0; i < sizeof number; ++i) number |= static_cast<Number>(*at++) << (8 * i);
  return at;
}

}  // namespace gangway
