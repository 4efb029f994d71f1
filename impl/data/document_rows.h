// The rows of a token file whose documents are packed. A file is cut into regions of about 2^20 tokens, which
// are packed on their own (packing.h): so a row is found without packing what lies before it. Region r begins
// with the first document in the tokens [r * 2^20, (r + 1) * 2^20); if a longer document covers all of them,
// it is cut at r * 2^20.
//
// The number of rows of each region stands in an index of 8 bytes for each region. It is made when it is
// needed first, and kept beside the file, if the folder can be written.
//
// Thread rule: one thread at a time.
#pragma once

#include <list>
#include <string>
#include <vector>

#include "data/documents.h"
#include "data/packing.h"
#include "data/rows.h"

namespace gangway::data {

constexpr uint64_t kRegionTokens = uint64_t{1} << 20;

class DocumentRows final : public FileRows {
 public:
  DocumentRows(const TokenFile& tokens, TokenInput& input, const RowOptions& options);

  uint64_t count() const override { return ends_.empty() ? 0 : ends_.back(); }
  void read(TokenInput& input, uint64_t row, const RowPlaces& out) override;

 private:
  uint64_t region_begin(TokenInput& input, uint64_t region);
  PackedRegion pack_region(TokenInput& input, uint64_t region);
  const PackedRegion& packed(TokenInput& input, size_t region);
  void make_index(TokenInput& input);

  TokenFile tokens_;
  RowOptions options_;
  std::unique_ptr<Documents> documents_;
  uint64_t regions_;
  std::vector<uint64_t> ends_;  // rows of all regions up to and with each one

  struct Kept {
    size_t region;
    PackedRegion packed;
  };
  std::list<Kept> kept_;  // regions that were packed; the one used last comes first
  size_t kept_pieces_ = 0;
  std::vector<int64_t> line_;
};

// The index of a file's rows beside it. It is valid for one length of rows and one end of documents, and as
// long as neither the file nor its index of documents is newer.
std::string row_index_path(const TokenFile& tokens, const RowOptions& options);
// Returns the index; empty if there is none, or none that is valid.
std::vector<uint64_t> read_row_index(const TokenFile& tokens, const RowOptions& options, uint64_t regions);
// Writes it in one commit. Returns false if the folder cannot be written.
bool keep_row_index(const TokenFile& tokens, const RowOptions& options, const std::vector<uint64_t>& ends);

}  // namespace gangway::data
