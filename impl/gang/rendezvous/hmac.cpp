#include "gang/rendezvous/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

#include "base/error.h"

namespace gangway {

Digest hmac_sha256(std::span<const uint8_t> key, std::initializer_list<std::string_view> parts) {
  std::string message;
  for (const std::string_view part : parts) {
    const uint64_t size = part.size();
    for (int shift = 0; shift < 64; shift += 8) message.push_back(static_cast<char>(size >> shift));
    message.append(part);
  }
  Digest out{};
  unsigned written = 0;
  const void* const done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const uint8_t*>(message.data()), message.size(), out.data(), &written);
  if (done == nullptr) fail(Code::internal, "libcrypto refused to compute an HMAC-SHA256");
  GW_CHECK(written, ==, out.size());
  return out;
}

Secret::~Secret() { OPENSSL_cleanse(data(), size()); }

bool same_digest(std::span<const uint8_t, 32> a, std::span<const uint8_t, 32> b) noexcept {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void random_bytes(std::span<uint8_t> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = getrandom(out.data() + done, out.size() - done, 0);
    if (n > 0)
      done += static_cast<size_t>(n);
    else if (errno != EINTR)
      fail_system(Code::io, "getrandom failed", errno);
  }
}

std::string hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const uint8_t byte : bytes) {
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}

}  // namespace gangway
