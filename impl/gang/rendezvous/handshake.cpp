#include "gang/rendezvous/handshake.h"

#include <algorithm>
#include <utility>

namespace gangway {
namespace {

constexpr std::array<uint8_t, 8> kMagic = {'G', 'W', 'S', 'T',
                                           'O', 'R', 'E', 1};  // the last byte is the protocol's version

}  // namespace

std::array<uint8_t, kHelloBytes> encode_hello(const Hello& hello) {
  std::array<uint8_t, kHelloBytes> bytes{};
  auto at = std::copy(kMagic.begin(), kMagic.end(), bytes.begin());
  for (int shift = 0; shift < 32; shift += 8) *at++ = static_cast<uint8_t>(hello.rank >> shift);
  for (int shift = 0; shift < 32; shift += 8) *at++ = static_cast<uint8_t>(hello.size >> shift);
  for (int shift = 0; shift < 64; shift += 8) *at++ = static_cast<uint8_t>(hello.process >> shift);
  std::copy(hello.nonce.begin(), hello.nonce.end(), at);
  return bytes;
}

bool decode_hello(std::span<const uint8_t, kHelloBytes> bytes, Hello& out) {
  if (!std::equal(kMagic.begin(), kMagic.end(), bytes.begin())) return false;
  auto at = bytes.begin() + kMagic.size();
  out = {};
  for (int shift = 0; shift < 32; shift += 8) out.rank |= static_cast<uint32_t>(*at++) << shift;
  for (int shift = 0; shift < 32; shift += 8) out.size |= static_cast<uint32_t>(*at++) << shift;
  for (int shift = 0; shift < 64; shift += 8) out.process |= static_cast<uint64_t>(*at++) << shift;
  std::copy_n(at, out.nonce.size(), out.nonce.begin());
  return out.rank < out.size;
}

Transcript::Transcript(const Secret& secret, std::string job, std::span<const uint8_t, kHelloBytes> hello,
                       std::span<const uint8_t, 32> server_nonce)
    : secret_(secret), job_(std::move(job)) {
  std::copy(hello.begin(), hello.end(), hello_.begin());
  std::copy(server_nonce.begin(), server_nonce.end(), server_nonce_.begin());
}

Digest Transcript::sign(std::string_view label) const {
  return hmac_sha256(secret_, {label, job_, as_text(hello_), as_text(server_nonce_)});
}

}  // namespace gangway
