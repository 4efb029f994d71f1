// Frames on a control connection between two ranks. Fixed binary, little endian:
//
//   head  16 bytes: kind u8, zero u8[3], body bytes u32, gang u64
//   body
//   tag   32 bytes: HMAC-SHA256(key of this direction, number of the frame, head, body)
//
// A length is read before its tag is checked, so it is limited to kControlBody. Each direction has its own
// key and counts its frames from 0. A frame that is replayed, reordered, reflected or changed is CORRUPT, and
// the connection ends.
//
// Thread rule: values of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gang/rendezvous/hmac.h"

namespace gangway::network {

enum class ControlKind : uint8_t {
  note = 1,     // the author has begun a call (Note, then its payload where that is short)
  beat = 2,     // the author lives
  broken = 3,   // the author's gang is broken: the code (i32), the rank at fault (i32), then the text
  closed = 4,   // the author has released the gang
  goodbye = 5,  // the author has released its last gang; the connection ends
  dial = 6,     // the author, the higher rank, has data: the lower one opens the data connection
  ended = 7,    // the author's root gang was shut down in order, and it needs nothing more of this connection
};

constexpr size_t kControlHeadBytes = 16;
constexpr size_t kControlBody = 8 << 10;  // the most bytes of one body

struct ControlFrame {
  ControlKind kind = ControlKind::beat;
  uint64_t gang = 0;
  std::string body;
};

class ControlWriter {
 public:
  explicit ControlWriter(const Secret& key) : key_(key) {}
  // Returns the bytes of the next frame. They must be sent in the order in which they were made.
  std::string seal(const ControlFrame& frame);

 private:
  Secret key_;
  uint64_t sequence_ = 0;
};

class ControlReader {
 public:
  explicit ControlReader(const Secret& key) : key_(key) {}
  void add(std::string_view bytes) { buffer_.append(bytes); }
  // Returns the next complete frame, or nothing if more bytes are needed. Throws CORRUPT.
  std::optional<ControlFrame> next();

 private:
  Secret key_;
  uint64_t sequence_ = 0;
  std::string buffer_;
};

}  // namespace gangway::network
