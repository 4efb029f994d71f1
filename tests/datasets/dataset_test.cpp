// The order of rows: each once in an epoch, the same on any number of ranks, mixtures, places.
#include "data/dataset.h"

#include <fcntl.h>

#include <chrono>
#include <set>

#include "datasets/dataset_testing.h"

namespace gangway::data {
namespace {

using test::bytes_of;
using test::counting;
using test::expect_error;
using test::Folder;
using test::options_for;
using test::Row;
using test::take;

TEST(Stream, RowsHaveTheirTokensAndTheNextOnesAsLabels) {
  const Folder folder;
  DatasetOptions options = options_for(folder.write("a.u32", bytes_of<uint32_t>(counting(8, 1))), 3);
  options.shuffle = false;
  Dataset dataset(options);
  ASSERT_EQ(dataset.rows_per_epoch(), 3);
  const std::vector<Row> rows = take(dataset, 3);
  EXPECT_EQ(rows[0], (Row{{1, 2, 3}, {2, 3, 4}, {}}));
  EXPECT_EQ(rows[1], (Row{{4, 5, 6}, {5, 6, 7}, {}}));
  EXPECT_EQ(rows[2], (Row{{7, 8, 0}, {8, kNoLabel, kNoLabel}, {}}));
  EXPECT_EQ(take(dataset, 1)[0], rows[0]) << "a new epoch follows";
}

TEST(Stream, EachTokenButTheFirstIsALabelOnce) {
  const Folder folder;
  for (const int64_t count : {2, 3, 4, 5, 31, 32, 33, 1000}) {
    for (const int64_t sequence : {1, 2, 4, 32, 999, 1000, 5000}) {
      Dataset dataset(options_for(folder.write("a.u32", bytes_of<uint32_t>(counting(count))), sequence));
      std::multiset<int64_t> labels;
      for (const Row& row : take(dataset, dataset.rows_per_epoch()))
        for (const int64_t label : row.labels)
          if (label != kNoLabel) labels.insert(label);
      const std::vector<int64_t> wanted = counting(count - 1, 1);
      EXPECT_EQ(labels, std::multiset<int64_t>(wanted.begin(), wanted.end()))
          << count << " in rows of " << sequence;
    }
  }
}

TEST(Stream, NoRowHasTokensOfTwoFiles) {
  const Folder folder;
  folder.write("a.u32", bytes_of<uint32_t>(counting(5, 10)));
  folder.write("b.u32", bytes_of<uint32_t>(counting(1, 20)));  // has no row
  folder.write("c.u32", bytes_of<uint32_t>(counting(4, 30)));
  DatasetOptions options = options_for(folder.path(), 3);
  options.shuffle = false;
  Dataset dataset(options);
  ASSERT_EQ(dataset.rows_per_epoch(), 3);
  const std::vector<Row> rows = take(dataset, 3);
  EXPECT_EQ(rows[1], (Row{{13, 14, 0}, {14, kNoLabel, kNoLabel}, {}}));
  EXPECT_EQ(rows[2], (Row{{30, 31, 32}, {31, 32, 33}, {}}));
}

TEST(Order, EachRowComesOnceInEachEpochAndInAnotherOrder) {
  const Folder folder;
  Dataset dataset(options_for(folder.write("a.u32", bytes_of<uint32_t>(counting(1001))), 7));
  const int64_t rows = dataset.rows_per_epoch();
  ASSERT_EQ(rows, 143);
  std::vector<std::vector<Row>> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    epochs.push_back(take(dataset, rows));
    std::set<Row> once(epochs.back().begin(), epochs.back().end());
    EXPECT_EQ(once.size(), static_cast<size_t>(rows));
    EXPECT_EQ(once, std::set<Row>(epochs[0].begin(), epochs[0].end()));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(Order, DependsOnTheSeedAlone) {
  const Folder folder;
  const std::string path = folder.write("a.u32", bytes_of<uint32_t>(counting(1001)));
  const auto first_rows = [&](uint64_t seed) {
    DatasetOptions options = options_for(path, 7);
    options.seed = seed;
    Dataset dataset(options);
    return take(dataset, 50);
  };
  EXPECT_EQ(first_rows(1), first_rows(1));
  EXPECT_NE(first_rows(1), first_rows(2));
}

TEST(Ranks, SeeTheSameGlobalBatchesOnAnyNumberOfThem) {
  const Folder folder;
  folder.write("a.u32", bytes_of<uint32_t>(counting(2000)));
  folder.write("b.u32", bytes_of<uint32_t>(counting(3000, 10'000)));
  DatasetOptions options = options_for(folder.path("a.u32"), 16);
  options.sources.push_back({folder.path("b.u32"), "", 2.5});
  Dataset alone(options);
  std::vector<std::vector<Row>> batches;
  for (int k = 0; k < 12; ++k) batches.push_back(take(alone, 50));
  for (const int ranks : {2, 3, 4, 8, 64}) {
    std::vector<std::unique_ptr<Dataset>> all;
    for (int r = 0; r < ranks; ++r) all.push_back(std::make_unique<Dataset>(options));
    for (const std::vector<Row>& batch : batches) {
      std::vector<Row> joined;
      size_t least = batch.size(), most = 0;
      for (int r = 0; r < ranks; ++r) {
        const std::vector<Row> part = take(*all[static_cast<size_t>(r)], 50, r, ranks);
        least = std::min(least, part.size());
        most = std::max(most, part.size());
        joined.insert(joined.end(), part.begin(), part.end());
      }
      EXPECT_EQ(joined, batch) << ranks << " ranks";
      EXPECT_LE(most - least, 1u);
    }
  }
}

TEST(Mixtures, SourcesKeepTheirSharesAndTheirOwnEpochs) {
  const Folder folder;
  folder.write("a.u32", bytes_of<uint32_t>(counting(81)));          // 10 rows of 8
  folder.write("b.u32", bytes_of<uint32_t>(counting(241, 1'000)));  // 30 rows
  DatasetOptions options = options_for(folder.path("a.u32"), 8);
  options.sources[0].weight = 0.7;
  options.sources.push_back({folder.path("b.u32"), "", 0.3});
  Dataset dataset(options);
  std::vector<std::vector<int64_t>> seen(2);  // the first tokens of the rows of each source
  for (int n = 0; n < 1000; ++n) {
    const int64_t token = take(dataset, 1)[0].tokens[0];
    seen[token >= 1000 ? 1 : 0].push_back(token);
    EXPECT_NEAR(static_cast<double>(seen[0].size()), 0.7 * (n + 1), 1.02);
  }
  for (const auto& [source, rows] : {std::pair<size_t, size_t>{0, 10}, {1, 30}})
    for (size_t epoch = 0; (epoch + 1) * rows <= seen[source].size(); ++epoch) {
      const auto first = seen[source].begin() + static_cast<ptrdiff_t>(epoch * rows);
      EXPECT_EQ(std::set<int64_t>(first, first + static_cast<ptrdiff_t>(rows)).size(), rows);
    }
}

TEST(Size, ATrillionTokensStartInMilliseconds) {
  const Folder folder;
  const std::string path = folder.path("a.u8");
  const int64_t count = 1'000'000'000'000;
  const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  const bool sparse = file >= 0 && ftruncate(file, count) == 0;
  if (file >= 0) close(file);
  if (!sparse) GTEST_SKIP() << "the file system has no sparse files of this size";
  const auto start = std::chrono::steady_clock::now();
  DatasetOptions options = options_for(path, 2048);
  options.read_ahead = 0;
  Dataset dataset(options);
  EXPECT_EQ(take(dataset, 4).size(), 4u);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(dataset.rows_per_epoch(), (count - 1 + 2047) / 2048);
  EXPECT_LT(took.count(), 0.5);  // milliseconds, but on a busy machine
}

TEST(Place, GoesOnFromAnyRowToTheSameRest) {
  const Folder folder;
  const std::string path = folder.write("a.u32", bytes_of<uint32_t>(counting(1001)));
  Dataset whole(options_for(path, 7)), other(options_for(path, 7));
  take(whole, 20);
  other.set_rows_taken(20);
  EXPECT_EQ(other.rows_taken(), 20);
  EXPECT_EQ(take(other, 300), take(whole, 300));
  other.set_rows_taken(0);
  Dataset fresh(options_for(path, 7));
  EXPECT_EQ(take(other, 3), take(fresh, 3));
}

TEST(BadOptions, AreRefusedByTheirNames) {
  const Folder folder;
  const std::string path = folder.write("a.u32", bytes_of<uint32_t>(counting(10)));
  const auto refused = [&](const std::string& message, const auto& change) {
    DatasetOptions options = options_for(path, 4);
    change(options);
    expect_error(Code::invalid_argument, message, [&] { Dataset dataset(options); });
  };
  refused("sequence is 0, not from 1 to 16777216", [](DatasetOptions& o) { o.rows.sequence = 0; });
  refused("sequence is 16777217, not from 1 to 16777216",
          [](DatasetOptions& o) { o.rows.sequence = 16777217; });
  refused("vocab_size is -1, below 0", [](DatasetOptions& o) { o.vocab = -1; });
  refused("read_ahead is -1, not from 0 to 1024", [](DatasetOptions& o) { o.read_ahead = -1; });
  refused("document_end is -2, neither an id nor -1 (by the index)",
          [](DatasetOptions& o) { o.rows.document_end = -2; });
  refused("document_end is 3, but packing is stream, which does not look at documents",
          [](DatasetOptions& o) { o.rows.document_end = 3; });
  refused("document_end is 30, but the vocabulary has the ids 0 to 9", [](DatasetOptions& o) {
    o.rows = {4, Packing::documents, 30};
    o.vocab = 10;
  });
  refused("a dataset needs at least one source", [](DatasetOptions& o) { o.sources.clear(); });
  Dataset dataset(options_for(path, 4));
  double seconds = 0;
  const auto next = [&](int64_t batch, int part, int parts) {
    dataset.next(batch, part, parts, nullptr, &seconds);
  };
  expect_error(Code::invalid_argument, "global_batch is 0, not from 1 to 274877906944",
               [&] { next(0, 0, 1); });
  expect_error(Code::invalid_argument, "part 2 of 2 parts does not exist", [&] { next(1, 2, 2); });
  expect_error(Code::invalid_argument, "rows is -1, not from 0 to 1152921504606846976",
               [&] { dataset.set_rows_taken(-1); });
  const std::string one = folder.write("one.u8", "x");
  expect_error(
      Code::corrupt,
      "data: " + one + " has no row: the first token of a file is no label, so a file needs two tokens",
      [&] { Dataset none(options_for(one, 4)); });
}

}  // namespace
}  // namespace gangway::data
