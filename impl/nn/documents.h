// Where the tokens of a row stand: their positions, and which keys their queries see when a row holds several
// documents or a layer has a window. The runner of a model puts them into the context, where modules read
// them.
//
// Thread rule: that of the model.
#pragma once

#include <memory>
#include <vector>

#include "nn/module.h"
#include "nn/sequence_part.h"

namespace gangway {

// The positions of this rank's tokens, for rotary angles and for learned positions.
struct Positions {
  int64_t count = 0;  // every position is below it
  Tensor rows;        // i32 [S], equal in all rows, or [B, S]; absent: 0, 1, 2, ... in each row
};
// The length up to which a document is short, for tables that have other rows for long ones: those of short
// documents first, `value` of them, then those of long ones. Positions in long documents count from `value`
// on. A document alone decides, so that its neighbours, the mesh and the microbatches change nothing. 0: all
// documents are short.
struct ShortLength {
  int64_t value = 0;
  bool exceeded_by(int64_t length) const { return value != 0 && length > value; }
};
// Returns a tensor with these values on the context's device. A meta device has no values.
Tensor i32_tensor(Context& ctx, const std::vector<int32_t>& values, const Shape& shape);

// Which keys of its own document a query sees: query i sees key j if i - j < window (0: there is no window)
// and, if causal, j <= i. i and j count the tokens of the whole row.
struct KeyMask {
  int64_t window = 0;
  bool causal = true;
};

// The keys that each query sees, as AttentionArgs takes them.
struct KeyRanges {
  Tensor first_key, end_key;  // i32 [B, queries], or [1, queries]; absent: the operation's mask is enough
  // The ranges are those of the queries [first_query, end_query), and no query sees keys from end_of_keys on.
  int64_t first_query = 0, end_query = 0, end_of_keys = 0;
};

// A run of tokens of one row that see each other.
struct Document {
  int64_t row = 0, first = 0, end = 0;
  bool is_padding = false;
};

// What a caller says of whole rows: [rows, tokens] in host memory, i32 or i64; either may be absent.
struct DocumentRows {
  // A number for each token. Consecutive tokens of one number are a document; a negative number is padding.
  Tensor ids;
  Tensor positions;
  int64_t most_positions = INT32_MAX;  // every position is below it
};

// The documents and positions of rows, of which this rank has a part. The tensors are made at the first use
// and kept. Copies share them.
class Documents {
 public:
  // Each row is one document with positions 0, 1, 2, ..., whatever the number of rows and tokens.
  explicit Documents(SequencePart part = {});
  // Without positions they are 0, 1, 2, ... in each document. INVALID_ARGUMENT: another dtype or shape, a
  // number that comes again in a row after another one, or a position out of range.
  Documents(const DocumentRows& rows, SequencePart part);

  // The rows [first, end), for a microbatch.
  Documents rows(int64_t first, int64_t end) const;

  // INVALID_ARGUMENT: `who` got sequences of another number, or of another length, than these rows. `tokens`
  // is that of this rank's part.
  void check(const char* who, const std::string& name, int64_t batch, int64_t tokens) const;
  Positions positions(Context& ctx, int64_t tokens, ShortLength most = {}) const;

  // The following take the number of tokens of this rank's part. They return absent tensors where the
  // mask without ranges shows the same keys.
  //
  // This rank's queries, and the keys of whole rows.
  KeyRanges of_own_queries(Context& ctx, int64_t tokens, const KeyMask& mask) const;
  // The queries and keys of whole rows.
  KeyRanges of_whole_rows(Context& ctx, int64_t tokens, const KeyMask& mask) const;
  // This rank's queries, and the keys of rank `source` in the order in which that rank holds them. Only the
  // queries from the first to the last one that sees one of these keys have a range.
  KeyRanges of_keys_of(int source, Context& ctx, int64_t tokens, const KeyMask& mask) const;

  SequencePart part() const;
  // All documents of all rows, in their order; empty if the caller gave none.
  const std::vector<Document>& all() const;
  // The tensors that were made.
  std::vector<Tensor> made() const;

 private:
  struct State;
  struct Wanted;
  KeyRanges ranges(Context& ctx, const Wanted& wanted) const;
  Tensor of_these_rows(const Tensor& x) const;

  std::shared_ptr<State> state_;
  int64_t first_ = 0, end_ = 0;  // these rows of the state's; 0, 0: it has no rows of its own
};

// Returns the positions of the context's rows, each of which has `tokens` tokens on this rank. `alone`: what
// a context without documents takes.
Positions positions_of(Context& ctx, int64_t tokens, const Documents& alone, ShortLength most = {});

}  // namespace gangway
