#include "data/source.h"

#include <algorithm>

#include "base/error.h"
#include "base/interrupt.h"
#include "data/paths.h"
#include "data/permutation.h"

namespace gangway::data {

Source::Source(const SourceOptions& source, const RowOptions& rows, TokenInput& input, bool shuffle,
               uint64_t key)
    : shuffle_(shuffle), key_(key) {
  uint64_t count = 0;
  for (const std::string& path : files_of(source.path, source.format)) {
    poll_interrupt_throttled();
    const TokenFile tokens = open_token_file(path, source.format);
    files_.push_back(tokens.file);
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
