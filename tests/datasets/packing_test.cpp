// Documents packed into rows: each token once, no document cut that fits into a row, little padding.
#include "data/packing.h"

#include "base/philox.h"
#include "data/document_rows.h"
#include "datasets/dataset_testing.h"

namespace gangway::data {
namespace {

using test::expect_error;
using test::Folder;
using test::Row;

// Documents of these lengths one after another: token i of a document is 1 + i, and its last token is 0.
std::string documents_of_lengths(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> tokens;
  for (const int64_t length : lengths) {
    for (int64_t i = 1; i < length; ++i) tokens.push_back(i);
    tokens.push_back(0);
  }
  return test::bytes_of<uint32_t>(tokens);
}

DatasetOptions packed(const std::string& path, int64_t sequence) {
  DatasetOptions options = test::options_for(path, sequence);
  options.rows.packing = Packing::documents;
  options.rows.document_end = 0;
  options.shuffle = false;
  return options;
}

std::vector<Row> epoch_of(const DatasetOptions& options) {
  Dataset dataset(options);
  return test::take(dataset, dataset.rows_per_epoch());
}

std::vector<int64_t> random_lengths(size_t count, int64_t longest) {
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < count; ++i)
    lengths.push_back(1 + static_cast<int64_t>(philox(9, i)[0] % static_cast<uint64_t>(longest)));
  return lengths;
}

TEST(Packing, RegionsFillTheirRowsByBestFit) {
  // The documents have 5, 3, 4, 6 and 2 tokens, the rows 8: 6 + 2, 5 + 3, 4.
  const PackedRegion region = pack(100, 120, {100, 105, 108, 112, 118}, 8);
  ASSERT_EQ(region.rows(), 3u);
  EXPECT_EQ(region.bounds, (std::vector<uint32_t>{0, 2, 3, 5}));
  const std::vector<std::pair<uint32_t, uint32_t>> wanted = {{0, 5}, {5, 3}, {8, 4}, {12, 6}, {18, 2}};
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(region.pieces[i].first, wanted[i].first);
    EXPECT_EQ(region.pieces[i].count, wanted[i].second);
    EXPECT_FALSE(region.pieces[i].goes_on);
  }
}

TEST(Packing, LongDocumentsAreCutFromTheirBeginning) {
  const PackedRegion region = pack(0, 11, {0}, 4);
  ASSERT_EQ(region.pieces.size(), 3u);
  EXPECT_EQ(region.pieces[2].count, 3u);
  EXPECT_TRUE(region.pieces[0].goes_on && region.pieces[1].goes_on && !region.pieces[2].goes_on);
}

TEST(Packing, LabelsAndDocumentsStayInsideTheirDocuments) {
  const Folder folder;
  const std::vector<Row> rows =
      epoch_of(packed(folder.write("a.u32", documents_of_lengths({3, 6, 1, 2})), 4));
  const int64_t no = kNoLabel;
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0],
            (Row{{1, 2, 0, 0}, {2, 0, no, no}, {0, 0, 0, 1}}));         // 3 tokens, then the document of one
  EXPECT_EQ(rows[1], (Row{{1, 2, 3, 4}, {2, 3, 4, 5}, {0, 0, 0, 0}}));  // its last label is in the next row
  EXPECT_EQ(rows[2], (Row{{5, 0, 1, 0}, {0, no, 0, no}, {0, 0, 1, 1}}));
}

// Counts the documents of a file by their beginnings and their lengths.
TEST(Packing, EachDocumentComesOnceAndWholeUnlessItIsLongerThanARow) {
  const Folder folder;
  for (const int64_t sequence : {1, 2, 7, 64, 1000}) {
    const std::vector<int64_t> lengths = random_lengths(500, 150);
    const std::vector<Row> rows =
        epoch_of(packed(folder.write("a.u32", documents_of_lengths(lengths)), sequence));
    std::map<int64_t, int64_t> wanted, found;  // how many pieces there are of each length
    int64_t labels = 0, real = 0;
    for (const int64_t length : lengths) {
      for (int64_t rest = length; rest > 0; rest -= sequence) ++wanted[std::min(rest, sequence)];
      labels += length - 1;
    }
    for (const Row& row : rows) {
      for (int64_t i = 0, run = 0; i < sequence; ++i) {
        const auto at = static_cast<size_t>(i);
        real += row.labels[at] == kNoLabel ? 0 : 1;
        if (row.documents[at] == kNoDocument) {
          EXPECT_EQ(row.tokens[at], 0);
          EXPECT_EQ(row.labels[at], kNoLabel);
          continue;
        }
        ++run;
        if (i + 1 < sequence && row.documents[at + 1] == row.documents[at]) {
          EXPECT_EQ(row.labels[at], row.tokens[at + 1]);
          continue;
        }
        ++found[run];
        run = 0;
      }
    }
    EXPECT_EQ(found, wanted) << "rows of " << sequence;
    EXPECT_EQ(real, labels);
  }
}

TEST(Packing, LeavesLittlePadding) {
  const Folder folder;
  const std::vector<int64_t> lengths = random_lengths(2000, 900);
  int64_t tokens = 0;
  for (const int64_t length : lengths) tokens += length;
  const std::vector<Row> rows = epoch_of(packed(folder.write("a.u32", documents_of_lengths(lengths)), 1024));
  EXPECT_LT(static_cast<double>(rows.size()) * 1024, 1.03 * static_cast<double>(tokens));
}

// --- several regions

// A file of three regions: documents of about 100,000 tokens, one of which crosses each bound, and one that
// is longer than a region.
std::vector<int64_t> long_lengths() {
  std::vector<int64_t> lengths(15, 99'990);
  lengths.push_back(1'300'000);
  lengths.insert(lengths.end(), 3, 1000);
  return lengths;
}

TEST(Regions, NoDocumentIsCutAtTheirBoundsIfItIsShorterThanARegion) {
  const Folder folder;
  const std::string path = folder.write("a.u32", documents_of_lengths(long_lengths()));
  DatasetOptions options = packed(path, 131'072);
  Dataset dataset(options);
  std::vector<int64_t> runs;
  int64_t tokens = 0;
  for (int64_t i = 0; i < dataset.rows_per_epoch(); ++i) {
    const Row row = test::take(dataset, 1)[0];
    for (size_t at = 0, first = 0; at < row.tokens.size(); ++at) {
      const bool ends = at + 1 == row.tokens.size() || row.documents[at + 1] != row.documents[at];
      if (ends && row.documents[at] != kNoDocument) runs.push_back(static_cast<int64_t>(at + 1 - first));
      if (ends) first = at + 1;
      tokens += row.documents[at] != kNoDocument ? 1 : 0;
    }
  }
  EXPECT_EQ(std::count(runs.begin(), runs.end(), 99'990), 15);
  EXPECT_EQ(std::count(runs.begin(), runs.end(), 1000), 3);
  EXPECT_EQ(tokens, 15 * 99'990 + 1'300'000 + 3000);
}

TEST(Regions, TheirIndexIsKeptBesideTheFile) {
  const Folder folder;
  const std::string path = folder.write("a.u32", documents_of_lengths(long_lengths()));
  const std::string index = path + ".rows2048-end0";
  const auto first_rows = [&] {
    Dataset dataset(packed(path, 2048));
    EXPECT_GE(dataset.rows_per_epoch(), 2'802'850 / 2048);
    return test::take(dataset, 40);
  };
  const std::vector<Row> rows = first_rows();
  ASSERT_TRUE(std::filesystem::exists(index));
  EXPECT_EQ(std::filesystem::file_size(index), 40 + 3 * 8u);
  const auto made = std::filesystem::last_write_time(index);
  EXPECT_EQ(first_rows(), rows);
  EXPECT_EQ(std::filesystem::last_write_time(index), made) << "the index was made again";
  // A file that is newer than its index gets another index.
  std::filesystem::last_write_time(path, made + std::chrono::seconds(1));
  EXPECT_EQ(first_rows(), rows);
  EXPECT_NE(std::filesystem::last_write_time(index), made);
}

TEST(Regions, AnIndexThatCannotBeWrittenStaysInMemory) {
  const Folder folder;
  const std::string path = folder.write("a.u32", documents_of_lengths({3, 4, 5}));
  std::filesystem::create_directory(path + ".rows8-end0");  // a rename to this name fails, for root too
  EXPECT_EQ(epoch_of(packed(path, 8)).size(), 2u);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 2u) << "a temporary file is left";
}

TEST(Regions, AnIndexThatLiesIsRefusedWhereItsRowsAreRead) {
  const Folder folder;
  const std::string path = folder.write("a.u32", documents_of_lengths({3, 4, 5}));
  const auto header = std::vector<int64_t>{12, 0, 8, 1, 5};  // five rows instead of two
  folder.write("a.u32.rows8-end0", "GWROWS1\n" + test::bytes_of<int64_t>(header));
  expect_error(Code::corrupt,
               "data: " + path + ": the tokens from 0 on make 2 rows, but " + path +
                   ".rows8-end0 says 5; delete that index, and it is made again",
               [&] { epoch_of(packed(path, 8)); });
}

}  // namespace
}  // namespace gangway::data
