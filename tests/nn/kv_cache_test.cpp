// A decoder that reads its rows in parts with a cache gives the logits of the whole rows.
#include "nn/kv_cache.h"

#include "nn/nn_testing.h"
#include "nn/small_llama.h"

namespace gangway::nn_testing {
namespace {

using Row = std::vector<int64_t>;

// The logits [rows, tokens, vocab] of a forward; with a cache, of the next tokens of its rows.
Vector logits_of(Rig& rig, Module& decoder, const std::vector<Row>& rows, KvCache* cache = nullptr) {
  const StackScope scope(rig.temporaries);
  Vector ids;
  for (const Row& row : rows) ids.insert(ids.end(), row.begin(), row.end());
  const Shape shape{static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())};
  const Tensor tokens = rig.tensor(DType::i64, shape, ids);
  Context ctx = rig.context();
  ctx.cache = cache;
  const Vector logits = get(decoder.forward(ctx, {&tokens, 1}, nullptr).at(0));
  if (cache != nullptr) cache->advance(shape[1]);
  return logits;
}

// Columns [first, end) of each row.
std::vector<Row> columns(const std::vector<Row>& rows, int64_t first, int64_t end) {
  std::vector<Row> some;
  for (const Row& row : rows) some.emplace_back(row.begin() + first, row.begin() + end);
  return some;
}

std::vector<Row> padded(const std::vector<Row>& rows, const std::vector<int64_t>& padding) {
  std::vector<Row> all;
  for (size_t row = 0; row < rows.size(); ++row) {
    all.emplace_back(static_cast<size_t>(padding[row]), 0);
    all.back().insert(all.back().end(), rows[row].begin(), rows[row].end());
  }
  return all;
}

// Rows of different lengths end together; each gives the logits that it has alone without a cache.
TEST(KvCache, LogitsOfAnyPartsAreThoseOfAWholeRow) {
  const std::vector<std::vector<Row>> prompts = {{{5, 3, 1, 4, 1, 5, 9, 2, 6, 7}, {2, 7, 1, 8, 2, 8}, {13}},
                                                 {{5, 3, 1, 4, 1, 5, 9, 2, 6, 7}}};
  const std::vector<std::vector<int64_t>> parts = {
      {0, 10}, {0, 4, 5, 6, 10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};
  for (const int64_t window : {0, 1, 3, 10, 11}) {
    Rig rig(make_ops);
    DecoderOptions options = test::small_llama();
    options.window = window;
    const ModulePtr decoder = make_decoder(options);
    rig.materialize(*decoder, DType::f64);
    for (const std::vector<Row>& rows : prompts) {
      std::vector<int64_t> padding;
      for (const Row& row : rows) padding.push_back(10 - static_cast<int64_t>(row.size()));
      for (const std::vector<int64_t>& bounds : parts) {
        KvCache cache(padding, 10, 10);
        for (size_t part = 0; part + 1 < bounds.size(); ++part) {
          const int64_t tokens = bounds[part + 1] - bounds[part];
          const Vector got = logits_of(
              rig, *decoder, columns(padded(rows, padding), bounds[part], bounds[part + 1]), &cache);
          for (size_t row = 0; row < rows.size(); ++row) {
            const Vector alone = logits_of(rig, *decoder, {rows[row]});
            for (int64_t i = std::max<int64_t>(0, padding[row] - bounds[part]); i < tokens; ++i)
              for (int64_t v = 0; v < options.vocab; ++v) {
                const int64_t position = bounds[part] + i - padding[row];
                const double want = alone[static_cast<size_t>(position * options.vocab + v)];
                const auto at = (static_cast<int64_t>(row) * tokens + i) * options.vocab + v;
                ASSERT_NEAR(got[static_cast<size_t>(at)], want, 1e-12 * std::max(1.0, std::fabs(want)))
                    << "window " << window << " row " << row << " position " << position;
              }
          }
        }
        EXPECT_EQ(cache.used(), 10);
      }
    }
  }
}

// Padding behind the last token, as tensor parallelism needs it, leaves no trace.
TEST(KvCache, TokensThatAreNotKeptAreWrittenOver) {
  Rig rig(make_ops);
  const ModulePtr decoder = make_decoder(test::small_llama());
  rig.materialize(*decoder, DType::f64);
  const Row row = {5, 3, 1, 4, 1};
  const Vector whole = logits_of(rig, *decoder, {row});
  KvCache cache({0}, 5, 8);
  const auto vocab = static_cast<size_t>(test::small_llama().vocab);
  for (size_t i = 0; i < row.size(); ++i) {
    const StackScope scope(rig.temporaries);
    const Tensor tokens = rig.tensor(DType::i64, Shape{1, 3}, {static_cast<double>(row[i]), 16, 15});
    Context ctx = rig.context();
    ctx.cache = &cache;
    const Vector got = get(decoder->forward(ctx, {&tokens, 1}, nullptr).at(0));
    cache.advance(1);
    for (size_t v = 0; v < vocab; ++v)
      ASSERT_NEAR(got[v], whole[i * vocab + v], 1e-12 * std::max(1.0, std::fabs(got[v]))) << i;
  }
}

TEST(KvCache, WithoutWantedLogitsOnlyTheCacheIsFilled) {
  Rig rig(make_ops);
  const ModulePtr decoder = make_decoder(test::small_llama());
  rig.materialize(*decoder, DType::f64);
  const Vector whole = logits_of(rig, *decoder, {{5, 3, 1}});
  KvCache cache({0}, 3, 3);
  cache.set_wants_logits(false);
  logits_of(rig, *decoder, {{5, 3}}, &cache);
  cache.set_wants_logits(true);
  const Vector last = logits_of(rig, *decoder, {{1}}, &cache);
  for (size_t v = 0; v < last.size(); ++v) EXPECT_NEAR(last[v], whole[2 * last.size() + v], 1e-12);
}

TEST(KvCache, ColumnsThatNoForwardHasWrittenAreRefused) {
  Rig rig(make_ops);
  const ModulePtr decoder = make_decoder(test::small_llama());
  rig.materialize(*decoder, DType::f64);
  KvCache cache({0}, 8, 8);
  logits_of(rig, *decoder, {{5, 3}}, &cache);
  cache.advance(1);  // beyond the two columns of the forward
  expect_text(expect_error(Code::internal, [&] { logits_of(rig, *decoder, {{1}}, &cache); }), {"written"});
}

}  // namespace
}  // namespace gangway::nn_testing
