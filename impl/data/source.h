// A source of a mixture: files whose rows are one list, in an order of its own in each epoch.
//
// Thread rule: one thread at a time; accessors from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/rows.h"

namespace gangway::data {

struct SourceOptions {
  std::string path;    // a file, a folder, or a pattern
  std::string format;  // as open_token_file has it
  double weight = 1;
};

class Source {
 public:
  // `key`: that of the source; each epoch derives its own from it. INVALID_ARGUMENT, IO, CORRUPT and
  // NOT_FOUND: a file is refused, or the files have no row.
  Source(const SourceOptions& source, const RowOptions& rows, TokenInput& input, bool shuffle, uint64_t key);

  uint64_t rows() const { return ends_.back(); }  // in an epoch
  const std::vector<FileFacts>& files() const { return files_; }
  // Of each file a hash of some of its bytes, which tells it from another file of the same name and size.
  const std::vector<std::string>& samples() const { return samples_; }

  // Reads the row that comes after `n` others of this source, which may be any number of epochs. It is a pure
  // function of (key, n).
  void read(TokenInput& input, uint64_t n, const RowPlaces& out);

 private:
  std::vector<FileFacts> files_;
  std::vector<std::string> samples_;
  std::vector<std::unique_ptr<FileRows>> file_rows_;
  std::vector<uint64_t> ends_;  // rows of all files up to and with each one
  bool shuffle_;
  uint64_t key_;
};

}  // namespace gangway::data
