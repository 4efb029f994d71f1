#include "data/source.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/philox.h"
#include "data/paths.h"
#include "data/permutation.h"

namespace gangway::data {
namespace {

// Hashes some pieces of a file, the first and the last among them. Each costs a read on a network file
// system, so there are few.
std::string sample_of(const FileFacts& file) {
  constexpr uint64_t kPieces = 4, kPieceBytes = 4096;
  OpenFiles files;  // of its own: the dataset opens a file when it reads rows
  uint64_t hash = 0;
  const uint64_t last = file.bytes > kPieceBytes ? file.bytes - kPieceBytes : 0;
  for (uint64_t i = 0; i < kPieces; ++i) {
    std::string piece(std::min(file.bytes, kPieceBytes), '\0');
    files.read(file, last / (kPieces - 1) * i, piece.data(), piece.size());
    hash = philox_key(31 * hash, piece);
    if (last == 0) break;
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

}  // namespace

Source::Source(const SourceOptions& source, const RowOptions& rows, TokenInput& input, bool shuffle,
               uint64_t key)
    : shuffle_(shuffle), key_(key) {
  uint64_t count = 0;
  for (const std::string& path : files_of(source.path, source.format)) {
    poll_interrupt_throttled();
    const TokenFile tokens = open_token_file(path, source.format);
    files_.push_back(tokens.file);
    samples_.push_back(sample_of(tokens.file));
    file_rows_.push_back(rows_of(tokens, input, rows));
    count += file_rows_.back()->count();
    ends_.push_back(count);
  }
  if (count == 0)
    fail(Code::corrupt, "data: ", source.path,
         " has no row: the first token of a file is no label, so a file needs two tokens");
}

void Source::read(TokenInput& input, uint64_t n, const RowPlaces& out) {
  uint64_t row = n % rows();
  if (shuffle_) row = Permutation(rows(), derived_key(key_, n / rows()))(row);
  const auto file = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
  file_rows_[file]->read(input, row - (file > 0 ? ends_[file - 1] : 0), out);
}

}  // namespace gangway::data
