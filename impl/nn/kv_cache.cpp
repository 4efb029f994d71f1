#include "nn/kv_cache.h"

#include <algorithm>

namespace gangway {
namespace {

// Returns a tensor i32 [rows, tokens] whose element (row, i) is value(row, i).
template <typename Value>
Tensor made(Context& ctx, int64_t rows, int64_t tokens, const Value& value) {
  std::vector<int32_t> values;
  values.reserve(static_cast<size_t>(rows * tokens));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < tokens; ++i) values.push_back(static_cast<int32_t>(value(row, i)));
  return i32_tensor(ctx, values, Shape{rows, tokens});
}

}  // namespace

KvCache::KvCache(std::vector<int64_t> padding, int64_t positions, int64_t columns)
    : padding_(std::move(padding)),
      positions_(positions),
      columns_(columns),
      pads_(std::any_of(padding_.begin(), padding_.end(), [](int64_t p) { return p != 0; })) {
  GW_CHECK(rows(), >=, 1);
}

void KvCache::advance(int64_t tokens) {
  used_ += tokens;
  made_for_ = -1;
}

void KvCache::extend(Context& ctx, const void* layer, int64_t window, AttentionArgs& args) {
  const int64_t tokens = args.q.dim(1), end = used_ + tokens;
  GW_CHECK(args.k.dim(0), ==, rows());
  GW_CHECK(end, <=, columns_);
  GW_CHECK(args.causal, ==, true);
  Layer& kept = layers_[layer];
  // Columns that the layer has not written may hold NaN, which even a probability of 0 would spread.
  GW_CHECK(kept.written, >=, used_);
  const auto store = [&](Tensor& all, Tensor& x) {
    const Shape shape{rows(), columns_, x.dim(2), x.dim(3)};
    if (!all) all = Tensor::allocate(ctx.ops.device().allocator(), x.dtype(), shape);
    ctx.ops.cast(x, all.slice(1, used_, end), ctx.stream);
    x = all.slice(1, 0, end);
  };
  store(kept.k, args.k);
  store(kept.v, args.v);
  kept.written = end;
  args.q_offset = used_;
  if (!pads_ && window == 0) return;
  const KeyRanges& seen = ranges(ctx, tokens, window);
  args.first_key = seen.first_key;
  args.end_key = seen.end_key;
}

// Drops the tensors of an earlier forward.
void KvCache::begin(int64_t tokens) {
  if (made_for_ == tokens) return;
  ranges_.clear();
  position_rows_.clear();
  made_for_ = tokens;
}

const KeyRanges& KvCache::ranges(Context& ctx, int64_t tokens, int64_t window) {
  begin(tokens);
  KeyRanges& seen = ranges_[window];
  if (seen.first_key) return seen;
  const int64_t count = pads_ ? rows() : 1;
  // A query in the padding sees nothing: its range is empty.
  seen.first_key = made(ctx, count, tokens, [&](int64_t row, int64_t i) {
    const int64_t column = used_ + i, first = std::min(padding_[static_cast<size_t>(row)], column + 1);
    return window == 0 ? first : std::max(first, column - window + 1);
  });
  seen.end_key = made(ctx, count, tokens, [&](int64_t, int64_t i) { return used_ + i + 1; });
  return seen;
}

Positions KvCache::positions(Context& ctx, int64_t tokens, ShortLength most) {
  begin(tokens);
  const auto added = [&](size_t row) {
    return !lengths_.empty() && most.exceeded_by(lengths_[row]) ? most.value : 0;
  };
  bool differ = pads_;
  for (size_t row = 0; row < padding_.size(); ++row) differ = differ || added(row) != added(0);
  Tensor& made_rows = position_rows_[most.value];
  if (!made_rows) {
    // Padding has positions of the table, too, before the first token and behind the last one.
    const auto position = [&](int64_t row, int64_t i) {
      const auto r = static_cast<size_t>(row);
      return added(r) + std::clamp<int64_t>(used_ + i - padding_[r], 0, positions_ - 1);
    };
    made_rows = made(ctx, differ ? rows() : 1, tokens, position);
    if (!differ) made_rows = made_rows.reshape(Shape{tokens});
  }
  return {positions_ + most.value, made_rows};
}

void KvCache::replace(Context& ctx, const std::vector<size_t>& rows, const KvCache& other) {
  GW_CHECK(other.used_, ==, used_);
  for (auto& [layer, kept] : layers_) {
    const Layer& read = other.layers_.at(layer);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto from = static_cast<int64_t>(i), to = static_cast<int64_t>(rows[i]);
      for (const auto& [source, target] : {std::pair(read.k, kept.k), std::pair(read.v, kept.v)})
        ctx.ops.cast(source.slice(0, from, from + 1).slice(1, 0, used_),
                     target.slice(0, to, to + 1).slice(1, 0, used_), ctx.stream);
    }
  }
}

}  // namespace gangway
