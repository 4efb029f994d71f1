// Reads tokens of files.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "data/token_file.h"

namespace gangway::data {

class TokenInput {
 public:
  // `vocab`: ids from this number on are refused. 0: only ids that no vocabulary can have (below 0).
  explicit TokenInput(int64_t vocab) : vocab_(vocab) {}

  // Reads tokens [first, first + count). CORRUPT: an id is outside of the vocabulary; the text names the file
  // and the token. IO as in OpenFiles.
  void read(const TokenFile& tokens, uint64_t first, size_t count, int64_t* out);
  // Appends the positions in [first, last) at which the token is `id`.
  void find(const TokenFile& tokens, uint64_t first, uint64_t last, int64_t id, std::vector<uint64_t>& out);

  OpenFiles& files() { return files_; }

 private:
  [[noreturn]] void refuse(const TokenFile& tokens, uint64_t first, size_t count, const int64_t* ids) const;

  OpenFiles files_;
  int64_t vocab_;
  std::vector<char> bytes_;
  std::vector<int64_t> found_;
};

}  // namespace gangway::data
