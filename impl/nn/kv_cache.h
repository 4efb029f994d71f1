// The keys and values of the tokens that a decoder has read (a KV cache), so that a new token costs one row
// of each product and one pass over the keys of its row. Generation makes a cache, puts it into the context
// and calls advance() after each forward; attention layers call extend(). A layer stores the heads that this
// rank computes.
//
// The rows of a batch end in the same column, whatever the lengths of their prompts: the first columns of a
// shorter row are padding, which no query sees. A forward of tokens [rows, S] fills S columns from used() on.
// advance(n), n <= S, then keeps n of them; the others were padding behind the last token, and the next
// forward writes over them.
//
// Thread rule: that of the model.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "nn/documents.h"

namespace gangway {

class KvCache {
 public:
  // `padding`: the columns before the first token of each row; there is at least one row. `positions`: the
  // most tokens that a row will have. `columns`: the most columns that forwards will write.
  KvCache(std::vector<int64_t> padding, int64_t positions, int64_t columns);

  int64_t used() const { return used_; }
  void advance(int64_t tokens);

  // Whether the head computes logits. A prompt's tokens but the last one need none.
  bool wants_logits() const { return wants_logits_; }
  void set_wants_logits(bool wants) { wants_logits_ = wants; }

  // Stores k and v of `layer` and replaces them by those of all columns so far, with the keys that each query
  // sees: earlier ones of its row, at most `window` with itself (0: all). Attention is causal. Every layer
  // has run in every forward before this one.
  void extend(Context& ctx, const void* layer, int64_t window, AttentionArgs& args);
  // The positions of the forward's tokens, whose first one in each row has position 0.
  Positions positions(Context& ctx, int64_t tokens, ShortLength most);
  // The length of each row with the forwards to come, which decides whether it is short (ShortLength). Keys
  // that were stored before a row got long have the angles of a short one.
  void set_lengths(std::vector<int64_t> lengths) {
    lengths_ = std::move(lengths);
    made_for_ = -1;
  }
  // Replaces what `rows` hold by the rows of `other`, which has read as many columns.
  void replace(Context& ctx, const std::vector<size_t>& rows, const KvCache& other);

 private:
  struct Layer {
    Tensor k, v;          // [rows, columns, heads, width]
    int64_t written = 0;  // the columns with values
  };
  void begin(int64_t tokens);
  const KeyRanges& ranges(Context& ctx, int64_t tokens, int64_t window);
  int64_t rows() const { return static_cast<int64_t>(padding_.size()); }

  const std::vector<int64_t> padding_;
  std::vector<int64_t> lengths_;  // empty: all rows are short
  const int64_t positions_, columns_;
  const bool pads_;  // whether any row has padding
  int64_t used_ = 0;
  bool wants_logits_ = true;
  std::map<const void*, Layer> layers_;
  // Of the forward that runs; made at first use.
  int64_t made_for_ = -1;
  std::map<int64_t, Tensor> position_rows_;  // by ShortLength
  std::map<int64_t, KeyRanges> ranges_;      // by window
};

}  // namespace gangway
