#include "data/token_input.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace gangway::data {
namespace {

constexpr size_t kTokensAtOnce = 1 << 16;  // tokens that are read at once

template <typename T>
void widen_as(const char* from, size_t count, int64_t* out) {
  for (size_t i = 0; i < count; ++i) {
    T token;
    std::memcpy(&token, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int64_t>(token);
  }
}

void widen(TokenType type, const char* from, size_t count, int64_t* out) {
  switch (type) {
    case TokenType::u8: return widen_as<uint8_t>(from, count, out);
    case TokenType::i8: return widen_as<int8_t>(from, count, out);
    case TokenType::u16: return widen_as<uint16_t>(from, count, out);
    case TokenType::i16: return widen_as<int16_t>(from, count, out);
    case TokenType::u32: return widen_as<uint32_t>(from, count, out);
    case TokenType::i32: return widen_as<int32_t>(from, count, out);
    case TokenType::u64: return widen_as<uint64_t>(from, count, out);
    case TokenType::i64: return widen_as<int64_t>(from, count, out);
  }
}

}  // namespace

void TokenInput::read(const TokenFile& tokens, uint64_t first, size_t count, int64_t* out) {
  const size_t width = bytes_of(tokens.type);
  // As an unsigned number, an id below 0 is over every limit.
  const uint64_t limit = vocab_ > 0 ? static_cast<uint64_t>(vocab_) : uint64_t{1} << 63;
  while (count > 0) {
    const size_t piece = std::min(count, kTokensAtOnce);
    bytes_.resize(piece * width);
    files_.read(tokens.file, tokens.first_byte + first * width, bytes_.data(), bytes_.size());
    widen(tokens.type, bytes_.data(), piece, out);
    bool outside = false;
    for (size_t i = 0; i < piece; ++i) outside |= static_cast<uint64_t>(out[i]) >= limit;
    if (outside) refuse(tokens, first, piece, out);
    first += piece;
    out += piece;
    count -= piece;
  }
}

void TokenInput::refuse(const TokenFile& tokens, uint64_t first, size_t count, const int64_t* ids) const {
  size_t at = 0;
  while (at + 1 < count && ids[at] >= 0 && (vocab_ == 0 || ids[at] < vocab_)) ++at;
  if (vocab_ == 0)
    fail(Code::corrupt, "data: ", tokens.file.path, ": token ", first + at, " is ", ids[at],
         ", which is no id of a vocabulary");
  fail(Code::corrupt, "data: ", tokens.file.path, ": token ", first + at, " is ", ids[at],
       ", but the vocabulary has the ids 0 to ", vocab_ - 1);
}

void TokenInput::find(const TokenFile& tokens, uint64_t first, uint64_t last, int64_t id,
                      std::vector<uint64_t>& out) {
  found_.resize(kTokensAtOnce);
  while (first < last) {
    const size_t piece = static_cast<size_t>(std::min<uint64_t>(last - first, kTokensAtOnce));
    read(tokens, first, piece, found_.data());
    for (size_t i = 0; i < piece; ++i)
      if (found_[i] == id) out.push_back(first + i);
    first += piece;
  }
}

}  // namespace gangway::data
