// Bytes from a stranger and bytes from a member gone wrong, against the store's parsers.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "gang/rendezvous/frames.h"
#include "gang/rendezvous/handshake.h"
#include "gang/rendezvous/store.h"

namespace gangway {
namespace {

const Secret kKey{Digest{1, 2, 3}};

void demand(bool fact) {
  if (!fact) abort();
}

// How many frames the reader took from `bytes`, fed in pieces of up to `piece`.
int feed(std::string_view bytes, size_t piece) {
  FrameReader reader(kKey);
  int frames = 0;
  try {
    while (!bytes.empty()) {
      const std::span<uint8_t> room = reader.room();
      demand(!room.empty() && room.size() <= kStoreKeyLimit + kStoreValueLimit + kFrameTagBytes);
      const size_t n = std::min({piece, room.size(), bytes.size()});
      std::copy_n(bytes.begin(), n, room.begin());
      bytes.remove_prefix(n);
      if (!reader.filled(n)) continue;
      const StoreFrame frame = reader.take();
      demand(frame.key.size() <= kStoreKeyLimit && frame.value.size() <= kStoreValueLimit);
      ++frames;
    }
  } catch (const Error& error) {
    demand(error.code() == Code::corrupt);
  }
  return frames;
}

// Any head at all, but vouched for; the body too when there is one to vouch for.
void feed_signed(std::string_view bytes, size_t piece) {
  if (bytes.size() < kFrameHeadBytes) return;
  const std::string head(bytes.substr(0, kFrameHeadBytes));
  const std::string body(bytes.substr(kFrameHeadBytes));
  std::string frame = head + std::string(as_text(hmac_sha256(kKey, {head})));
  if (!body.empty()) frame += body + std::string(as_text(hmac_sha256(kKey, {head, body})));
  feed(frame, piece);
}

void greet(std::string_view bytes) {
  if (bytes.size() < kHelloBytes) return;
  std::array<uint8_t, kHelloBytes> fixed{};
  std::copy_n(bytes.begin(), fixed.size(), fixed.begin());
  Hello hello;
  if (!decode_hello(fixed, hello)) return;
  demand(hello.rank < hello.size);
  demand(encode_hello(hello) == fixed);
}

}  // namespace
}  // namespace gangway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t piece = size_t{data[1]} + 1;
  switch (data[0] % 3) {
    case 0: gangway::demand(gangway::feed(bytes, piece) == 0); break;  // nobody guesses a tag
    case 1: gangway::feed_signed(bytes, piece); break;
    case 2: gangway::greet(bytes); break;
  }
  return 0;
}
