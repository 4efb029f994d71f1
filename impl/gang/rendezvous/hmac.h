// HMAC-SHA256, keys and random bytes, from libcrypto.
//
// Thread rule: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace gangway {

using Digest = std::array<uint8_t, 32>;

// A secret, or a key made from one. Its bytes are wiped when it is destroyed.
struct Secret : Digest {
  Secret() : Digest{} {}
  explicit Secret(const Digest& bytes) : Digest(bytes) {}
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();
};

// The HMAC over the parts. Each part is preceded by its length, so that no two lists of parts give the same
// message.
Digest hmac_sha256(std::span<const uint8_t> key, std::initializer_list<std::string_view> parts);

// Compares in a time that does not depend on where the two differ.
bool same_digest(std::span<const uint8_t, 32> a, std::span<const uint8_t, 32> b) noexcept;

void random_bytes(std::span<uint8_t> out);  // from the kernel

std::string hex(std::span<const uint8_t> bytes);

inline std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace gangway
