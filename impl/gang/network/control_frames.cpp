#include "gang/network/control_frames.h"

#include <array>
#include <cstring>
#include <span>

#include "base/error.h"

namespace gangway::network {
namespace {

constexpr size_t kTagBytes = 32;

template <typename Number>
void append_little(std::string& out, Number number) {
  for (size_t i = 0; i < sizeof number; ++i) out.push_back(static_cast<char>(number >> (8 * i)));
}

template <typename Number>
Number load_little(const char* at) {
  Number number = 0;
  for (size_t i = 0; i < sizeof number; ++i)
    number |= static_cast<Number>(static_cast<unsigned char>(at[i])) << (8 * i);
  return number;
}

Digest tag_of(const Secret& key, uint64_t sequence, std::string_view head, std::string_view body) {
  std::string number;
  append_little(number, sequence);
  return hmac_sha256(key, {number, head, body});
}

}  // namespace

std::string ControlWriter::seal(const ControlFrame& frame) {
  GW_CHECK(frame.body.size(), <=, kControlBody);
  std::string out;
  out.reserve(kControlHeadBytes + frame.body.size() + kTagBytes);
  out.push_back(static_cast<char>(frame.kind));
  out.append(3, '\0');
  append_little(out, static_cast<uint32_t>(frame.body.size()));
  append_little(out, frame.gang);
  const Digest tag = tag_of(key_, sequence_++, out, frame.body);
  out += frame.body;
  out += as_text(tag);
  return out;
}

std::optional<ControlFrame> ControlReader::next() {
  if (buffer_.size() < kControlHeadBytes) return std::nullopt;
  const auto kind = static_cast<unsigned char>(buffer_[0]);
  const size_t body = load_little<uint32_t>(buffer_.data() + 4);
  if (kind < static_cast<unsigned char>(ControlKind::note) ||
      kind > static_cast<unsigned char>(ControlKind::goodbye) || body > kControlBody ||
      (buffer_[1] | buffer_[2] | buffer_[3]) != 0)
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
  ControlFrame frame{static_cast<ControlKind>(kind), load_little<uint64_t>(buffer_.data() + 8),
                     buffer_.substr(kControlHeadBytes, body)};
  buffer_.erase(0, whole);
  return frame;
}

}  // namespace gangway::network
