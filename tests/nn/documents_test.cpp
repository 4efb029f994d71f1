// Positions and ranges of keys of packed rows, against their definition token by token.
#include "nn/documents.h"

#include "base/expect_error.h"
#include "nn/nn_testing.h"
#include "support/host_memory.h"

namespace gangway::nn_testing {
namespace {

std::vector<int32_t> numbers(const Tensor& x) {
  const test::HostMemory host(x);
  return {host.data<int32_t>(), host.data<int32_t>() + x.count()};
}

struct Rows {
  int64_t tokens = 0;
  std::vector<int64_t> ids;  // of all rows
  Documents documents(SequencePart part = {}) const {
    const auto host = make_device("cpu");
    std::vector<int64_t> values = ids;
    const Shape shape{static_cast<int64_t>(ids.size()) / tokens, tokens};
    return Documents({Tensor::borrow(*host, values.data(), DType::i64, shape), {}}, part);
  }
};

const Rows kRows{12, {4, 4, 4, 9, 2, 2, 2, 2, 2, 2, -1, -1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}};

const Documents kAlone;

// The tokens of a rank in its order.
std::vector<int64_t> tokens_of(int64_t whole, SequencePart part) {
  std::vector<int64_t> all;
  for (const Chunk& c : chunks_of(whole / part.ranks, part.rank, part.ranks))
    for (int64_t i = 0; i < c.count; ++i) all.push_back(c.position + i);
  return all;
}

TEST(Documents, PositionsCountFromZeroInEachDocument) {
  Rig rig;
  Context ctx = rig.context();
  const Documents documents = kRows.documents();
  ctx.documents = &documents;
  const Positions positions = positions_of(ctx, 12, kAlone);
  EXPECT_EQ(positions.count, 11);
  EXPECT_EQ(numbers(positions.rows),
            (std::vector<int32_t>{0, 1, 2, 0, 0, 1, 2, 3, 4, 5, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0}));
  const Documents second = documents.rows(1, 2);
  ctx.documents = &second;
  EXPECT_EQ(numbers(positions_of(ctx, 12, kAlone).rows),
            (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0}));
}

TEST(Documents, WithoutDocumentsPositionsAreThoseOfTheWholeRow) {
  Rig rig;
  Context ctx = rig.context();
  EXPECT_EQ(positions_of(ctx, 7, kAlone).count, 7);
  EXPECT_FALSE(positions_of(ctx, 7, kAlone).rows);
  const Documents part(SequencePart{1, 2});
  ctx.documents = &part;
  EXPECT_EQ(positions_of(ctx, 4, kAlone).count, 8);
  EXPECT_EQ(numbers(positions_of(ctx, 4, kAlone).rows), (std::vector<int32_t>{2, 3, 4, 5}));
}

// The length of a document alone decides, not that of its neighbours.
TEST(Documents, PositionsInLongDocumentsComeBehindThoseOfShortOnes) {
  Rig rig;
  Context ctx = rig.context();
  const Documents documents = kRows.documents();
  ctx.documents = &documents;
  const Positions positions = positions_of(ctx, 12, kAlone, {6});
  EXPECT_EQ(positions.count, 17);
  EXPECT_EQ(numbers(positions.rows), (std::vector<int32_t>{0, 1, 2, 0, 0,  1,  2,  3,  4,  5,  0,  1,
                                                           6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0}));
  EXPECT_EQ(numbers(positions_of(ctx, 12, kAlone).rows)[12], 0) << "without a bound all are short";
  ctx.documents = nullptr;
  EXPECT_FALSE(positions_of(ctx, 6, kAlone, {6}).rows);
  EXPECT_EQ(numbers(positions_of(ctx, 7, kAlone, {6}).rows), (std::vector<int32_t>{6, 7, 8, 9, 10, 11, 12}));
  const Documents part(SequencePart{1, 2});
  ctx.documents = &part;
  EXPECT_EQ(numbers(positions_of(ctx, 4, kAlone, {6}).rows), (std::vector<int32_t>{8, 9, 10, 11}));
}

TEST(Documents, NoRangesWhereTheMaskAloneSaysTheSame) {
  Rig rig;
  Context ctx = rig.context();
  const Documents documents(SequencePart{0, 2});
  EXPECT_FALSE(documents.of_own_queries(ctx, 4, {0, true}).first_key);
  EXPECT_FALSE(documents.of_own_queries(ctx, 4, {8, true}).first_key);
  EXPECT_TRUE(documents.of_own_queries(ctx, 4, {7, true}).first_key);
}

// For each rank and source: a key in the range of a query is one that it sees, and all that it sees are in
// it.
TEST(Documents, RangesHoldTheKeysThatAQuerySees) {
  Rig rig;
  Context ctx = rig.context();
  for (const int ranks : {1, 2, 3})
    for (int rank = 0; rank < ranks; ++rank)
      for (int source = 0; source < ranks; ++source)
        for (const KeyMask& mask :
             {KeyMask{0, true}, KeyMask{3, true}, KeyMask{0, false}, KeyMask{1, true}}) {
          const Documents documents = kRows.documents({rank, ranks});
          const KeyRanges seen = documents.of_keys_of(source, ctx, 12 / ranks, mask);
          const std::vector<int32_t> first = numbers(seen.first_key), end = numbers(seen.end_key);
          const std::vector<int64_t> queries = tokens_of(12, {rank, ranks}),
                                     keys = tokens_of(12, {source, ranks});
          const auto kept = static_cast<size_t>(seen.end_query - seen.first_query);
          for (size_t row = 0; row < 2; ++row)
            for (size_t q = 0; q < queries.size(); ++q)
              for (size_t k = 0; k < keys.size(); ++k) {
                const int64_t i = queries[q], j = keys[k];
                const auto id = [&](int64_t t) { return kRows.ids[row * 12 + static_cast<size_t>(t)]; };
                const bool sees =
                    id(i) == id(j) && (!mask.causal || j <= i) && (mask.window == 0 || i - j < mask.window);
                const auto first_query = static_cast<size_t>(seen.first_query);
                const bool has = q >= first_query && q < first_query + kept;
                const size_t at = row * kept + q - first_query;
                const auto key = static_cast<int32_t>(k);
                EXPECT_EQ(has && first[at] <= key && key < end[at], sees)
                    << rank << " of " << ranks << ", source " << source << ", " << i << " sees " << j;
                EXPECT_TRUE(!sees || key < seen.end_of_keys);
              }
        }
}

TEST(Documents, ADocumentThatComesAgainIsRefusedAndPaddingIsNot) {
  const auto refused = [](std::vector<int64_t> ids) {
    return test::error_of([&] { Rows{static_cast<int64_t>(ids.size()), ids}.documents(); }).message();
  };
  EXPECT_NE(refused({3, 5, 3}).find("document 3 comes again at token 2 of row 0"), std::string::npos);
  EXPECT_NO_THROW((Rows{5, {-1, 3, -1, 5, -1}}.documents()));
  EXPECT_NO_THROW((Rows{2, {3, 5, 5, 3}}.documents()));  // two rows
}

}  // namespace
}  // namespace gangway::nn_testing
