// Frames between a store's server and its clients, after the handshake. Fixed binary, little endian:
//
//   head  32 bytes: kind u8, zero u8[3], key bytes u32, value bytes u32, wait_ms u32, sequence u64,
//                   request u64
//
//   tag   32 bytes: HMAC-SHA256(key of this direction, head)
//
//   body  key, value; then, if there is any body, a tag over head and body
//
// The reader checks the head's own tag before it takes a byte of the body, so a length that is not
// authenticated allocates nothing. Each direction has its own key and counts its frames from 0. A frame that
// is replayed, reordered, reflected or changed is CORRUPT, and the connection ends.
//
// Thread rule: values of one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gang/rendezvous/hmac.h"

namespace gangway {

enum class FrameKind : uint8_t {
  put = 1,
  get = 2,
  remove = 3,
  wait = 4,      // answered when the key exists, or with `absent` after wait_ms
  value = 16,    // the answer to get and wait
  absent = 17,   // the other answer to get and wait
  done = 18,     // the answer to put and remove
  refused = 19,  // the value says why
  welcome = 20,  // the server's first frame
};

constexpr size_t kFrameHeadBytes = 32;
constexpr size_t kFrameTagBytes = 32;

struct FrameHead {
  FrameKind kind = FrameKind::done;
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
  uint32_t wait_ms = 0;
  uint64_t sequence = 0;
  uint64_t request = 0;  // an answer has the number of its request
};

struct StoreFrame {
  FrameKind kind = FrameKind::done;
  uint32_t wait_ms = 0;
  uint64_t request = 0;
  std::string key;
  std::string value;
};

std::array<uint8_t, kFrameHeadBytes> encode_head(const FrameHead& head);
// CORRUPT for an unknown kind, a padding byte that is not zero, or a length over the store's limits.
FrameHead decode_head(std::span<const uint8_t, kFrameHeadBytes> bytes);

class FrameWriter {
 public:
  explicit FrameWriter(const Secret& key) : key_(key) {}
  // Returns the bytes of the next frame in this direction. They must be sent in the order in which they were
  // made.
  std::string seal(const StoreFrame& frame);

 private:
  Secret key_;
  uint64_t sequence_ = 0;
};

class FrameReader {
 public:
  explicit FrameReader(const Secret& key) : key_(key) {}
  // Where the next bytes go; never empty.
  std::span<uint8_t> room();
  // Takes `bytes` bytes that the caller has put into room(). Returns true when a frame is complete; the
  // caller must take it before it asks for room again. Throws CORRUPT.
  bool filled(size_t bytes);
  StoreFrame take();

 private:
  bool in_body() const { return !body_.empty(); }

  Secret key_;
  uint64_t sequence_ = 0;
  size_t have_ = 0;  // bytes of the current part that have been read
  FrameHead head_;
  std::array<uint8_t, kFrameHeadBytes + kFrameTagBytes> start_{};
  std::vector<uint8_t> body_;  // with its tag; empty while the start is being read
};

}  // namespace gangway
