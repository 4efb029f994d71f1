// The handshake in which two processes prove to each other that they know the gang's secret, without sending
// it:
//
//   client -> server  hello:  magic, rank, size, process, nonce                                56 bytes
//   server -> client  answer: nonce, HMAC(secret, "server", job, hello, nonce)                 64 bytes
//   client -> server  proof:  HMAC(secret, "client", job, hello, server's nonce)               32 bytes
//
// Both proofs cover both nonces, the job and the rank. Their labels differ, so neither can be sent back. One
// key for each direction (frames.h) is derived from the same bytes.
//
// Thread rule: values of one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "gang/rendezvous/hmac.h"
#include "gang/rendezvous/tcp_store_options.h"

namespace gangway {

constexpr size_t kHelloBytes = 56;
constexpr size_t kAnswerBytes = 64;
constexpr size_t kProofBytes = 32;

struct Hello {
  uint32_t rank = 0;
  uint32_t size = 0;
  uint64_t process = 0;  // a random number that distinguishes two processes of one rank
  std::array<uint8_t, 32> nonce{};
};

std::array<uint8_t, kHelloBytes> encode_hello(const Hello& hello);
// Returns false if the bytes are not a hello of this protocol, or if the rank is outside [0, size).
bool decode_hello(std::span<const uint8_t, kHelloBytes> bytes, Hello& out);

// The bytes of the handshake, which both sides have seen.
class Transcript {
 public:
  Transcript(const Secret& secret, std::string job, std::span<const uint8_t, kHelloBytes> hello,
             std::span<const uint8_t, 32> server_nonce);

  Digest server_proof() const { return sign("server"); }
  Digest client_proof() const { return sign("client"); }
  Secret to_server_key() const { return Secret(sign("frames to server")); }
  Secret to_client_key() const { return Secret(sign("frames to client")); }

 private:
  Digest sign(std::string_view label) const;

  Secret secret_;
  std::string job_;
  std::array<uint8_t, kHelloBytes> hello_;
  std::array<uint8_t, 32> server_nonce_;
};

}  // namespace gangway
