// The rows of one token file.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "data/token_input.h"

namespace gangway::data {

constexpr int64_t kNoLabel = -100;   // counts nothing in a loss
constexpr int32_t kNoDocument = -1;  // of padding
constexpr int64_t kLongestSequence = int64_t{1} << 24;

enum class Packing : uint8_t { stream, documents };

// Where a row is written: `sequence` numbers each. `documents` is null with Packing::stream.
struct RowPlaces {
  int64_t* tokens = nullptr;
  int64_t* labels = nullptr;
  int32_t* documents = nullptr;
};

class FileRows {
 public:
  virtual ~FileRows() = default;
  virtual uint64_t count() const = 0;
  // Reads a row below count(). The label of a token is the token after it, kNoLabel where there is none;
  // padding has token 0, kNoLabel and kNoDocument.
  virtual void read(TokenInput& input, uint64_t row, const RowPlaces& out) = 0;
};

struct RowOptions {
  int64_t sequence = 0;  // from 1 to kLongestSequence
  Packing packing = Packing::stream;
  int64_t document_end = -1;  // as documents_of has it
};

// stream: row i has the tokens from i * sequence on, and the one after them as its last label; so each token
// but the first is a label once. The last row may be short. A file of one token has no row.
//
// documents: as document_rows.h says.
std::unique_ptr<FileRows> rows_of(const TokenFile& tokens, TokenInput& input, const RowOptions& options);

}  // namespace gangway::data
