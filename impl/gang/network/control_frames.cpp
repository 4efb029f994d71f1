#include "gang/network/control_frames.h"

#include <array>
#include <cstring>

#include "base/error.h"
#include "gang/rendezvous/little_endian.h"

namespace gangway::network {
namespace {

constexpr size_t kTagBytes = 32;

Digest tag_of(const Secret& key, uint64_t sequence, std::string_view head, std::string_view body) {
  std::array<uint8_t, sizeof sequence> number;
  store_little(number.data(), sequence);
  return hmac_sha256(key, {as_text(number), head, body});
}

}  // namespace

std::string ControlWriter::seal(const ControlFrame& frame) {
  GW_CHECK(frame.body.size(), <=, kControlBody);
  std::array<uint8_t, kControlHeadBytes> head{};
  head[0] = static_cast<uint8_t>(frame.kind);
  store_little(store_little(&head[4], static_cast<uint32_t>(frame.body.size())), frame.gang);
  const Digest tag = tag_of(key_, sequence_++, as_text(head), frame.body);
  std::string out;
  out.reserve(head.size() + frame.body.size() + kTagBytes);
  out += as_text(head);
  out += frame.body;
  out += as_text(tag);
  return out;
}

std::optional<ControlFrame> ControlReader::next() {
  if (buffer_.size() < kControlHeadBytes) return std::nullopt;
  const auto* const head = reinterpret_cast<const uint8_t*>(buffer_.data());
  const uint8_t kind = head[0];
  uint32_t body = 0;
  uint64_t gang = 0;
  load_little(load_little(head + 4, body), gang);
  if (kind < static_cast<uint8_t>(ControlKind::note) || kind > static_cast<uint8_t>(ControlKind::ended) ||
      body > kControlBody || (head[1] | head[2] | head[3]) != 0)
    fail(Code::corrupt, "network: a frame of kind ", int{kind}, " with ", body, " bytes");
  const size_t whole = kControlHeadBytes + body + kTagBytes;
  if (buffer_.size() < whole) return std::nullopt;
  const std::string_view all(buffer_);
  const Digest expected =
      tag_of(key_, sequence_, all.substr(0, kControlHeadBytes), all.substr(kControlHeadBytes, body));
  std::array<uint8_t, kTagBytes> tag;
  std::memcpy(tag.data(), buffer_.data() + kControlHeadBytes + body, tag.size());
  if (!same_digest(expected, tag)) fail(Code::corrupt, "network: a frame was not made by the peer");
  ++sequence_;
  ControlFrame frame{static_cast<ControlKind>(kind), gang, buffer_.substr(kControlHeadBytes, body)};
  buffer_.erase(0, whole);
  return frame;
}

}  // namespace gangway::network
