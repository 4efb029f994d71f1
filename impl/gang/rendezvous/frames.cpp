#include "gang/rendezvous/frames.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "gang/rendezvous/little_endian.h"
#include "gang/rendezvous/store.h"

namespace gangway {
namespace {

bool is_kind(uint8_t number) {
  switch (static_cast<FrameKind>(number)) {
    case FrameKind::put:
    case FrameKind::get:
    case FrameKind::remove:
    case FrameKind::wait:
    case FrameKind::value:
    case FrameKind::absent:
    case FrameKind::done:
    case FrameKind::refused:
    case FrameKind::welcome: return true;
  }
  return false;
}

void check_tag(const Digest& key, std::initializer_list<std::string_view> parts, const uint8_t* tag) {
  const Digest expected = hmac_sha256(key, parts);
  if (!same_digest(expected, std::span<const uint8_t, 32>(tag, 32)))
    fail(Code::corrupt, "store: a frame was not made by a member of the gang");
}

}  // namespace

std::array<uint8_t, kFrameHeadBytes> encode_head(const FrameHead& head) {
  std::array<uint8_t, kFrameHeadBytes> bytes{};
  bytes[0] = static_cast<uint8_t>(head.kind);
  uint8_t* at = bytes.data() + 4;
  at = store_little(at, head.key_bytes);
  at = store_little(at, head.value_bytes);
  at = store_little(at, head.wait_ms);
  at = store_little(at, head.sequence);
  store_little(at, head.request);
  return bytes;
}

FrameHead decode_head(std::span<const uint8_t, kFrameHeadBytes> bytes) {
  if (!is_kind(bytes[0])) fail(Code::corrupt, "store: a frame of kind ", int{bytes[0]});
  if ((bytes[1] | bytes[2] | bytes[3]) != 0) fail(Code::corrupt, "store: a frame whose padding is not zero");
  FrameHead head;
  head.kind = static_cast<FrameKind>(bytes[0]);
  const uint8_t* at = bytes.data() + 4;
  at = load_little(at, head.key_bytes);
  at = load_little(at, head.value_bytes);
  at = load_little(at, head.wait_ms);
  at = load_little(at, head.sequence);
  load_little(at, head.request);
  if (head.key_bytes > kStoreKeyLimit || head.value_bytes > kStoreValueLimit)
    fail(Code::corrupt, "store: a frame with a key of ", head.key_bytes, " and a value of ", head.value_bytes,
         " bytes");
  return head;
}

std::string FrameWriter::seal(const StoreFrame& frame) {
  FrameHead head;
  head.kind = frame.kind;
  head.key_bytes = static_cast<uint32_t>(frame.key.size());
  head.value_bytes = static_cast<uint32_t>(frame.value.size());
  head.wait_ms = frame.wait_ms;
  head.sequence = sequence_++;
  head.request = frame.request;
  const auto bytes = encode_head(head);
  std::string out(as_text(bytes));
  out += as_text(hmac_sha256(key_, {as_text(bytes)}));
  if (frame.key.empty() && frame.value.empty()) return out;
  const std::string body = frame.key + frame.value;
  out += body;
  out += as_text(hmac_sha256(key_, {as_text(bytes), body}));
  return out;
}

std::span<uint8_t> FrameReader::room() {
  return in_body() ? std::span(body_).subspan(have_) : std::span(start_).subspan(have_);
}

bool FrameReader::filled(size_t bytes) {
  have_ += bytes;
  const std::span<const uint8_t, kFrameHeadBytes> head(start_.data(), kFrameHeadBytes);
  if (!in_body()) {
    if (have_ < start_.size()) return false;
    check_tag(key_, {as_text(head)}, start_.data() + kFrameHeadBytes);
    head_ = decode_head(head);
    if (head_.sequence != sequence_)
      fail(Code::corrupt, "store: frame ", head_.sequence, " came where ", sequence_, " was due");
    ++sequence_;
    have_ = 0;
    const size_t body = size_t{head_.key_bytes} + head_.value_bytes;
    if (body == 0) return true;
    body_.resize(body + kFrameTagBytes);
    return false;
  }
  if (have_ < body_.size()) return false;
  const size_t body = body_.size() - kFrameTagBytes;
  check_tag(key_, {as_text(head), as_text(std::span(body_).first(body))}, body_.data() + body);
  have_ = 0;
  return true;
}

StoreFrame FrameReader::take() {
  StoreFrame frame;
  frame.kind = head_.kind;
  frame.wait_ms = head_.wait_ms;
  frame.request = head_.request;
  const char* const body = reinterpret_cast<const char*>(body_.data());
  if (head_.key_bytes != 0) frame.key.assign(body, head_.key_bytes);
  if (head_.value_bytes != 0) frame.value.assign(body + head_.key_bytes, head_.value_bytes);
  body_ = {};  // frees the memory, which may have held a large value
  return frame;
}

}  // namespace gangway
