// The place in a training as text.
#include "data/position.h"

#include <regex>

#include "datasets/dataset_testing.h"

namespace gangway::data {
namespace {

using test::bytes_of;
using test::counting;
using test::expect_error;
using test::Folder;
using test::options_for;
using test::take;

constexpr const char* kAdvice =
    " now, so that the rows that follow would be others; restore with ignore_differences to go on with them";

TEST(Position, IsAFewBytesOfJson) {
  const Folder folder;
  Dataset dataset(options_for(folder.write("a.u8", "0123456789"), 4));
  take(dataset, 2);
  take(dataset, 3);
  EXPECT_EQ(dataset.batches_taken(), 2);
  const std::string position = std::regex_replace(dataset.position(), std::regex("[0-9a-f]{16}"), "HASH");
  EXPECT_EQ(
      position,
      R"({"version":1,"rows":5,"batches":2,"sequence":4,"packing":"stream","document_end":-1,"seed":0,)"
      R"("shuffle":true,"sources":[{"weight":65536,"rows":3,"files":[{"name":"a.u8","bytes":10,"sample":"HASH"}]}]})");
}

TEST(Position, InTheMiddleOfAPackedEpochGivesTheSameRest) {
  const Folder folder;
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < 5000; ++i) tokens.push_back(i % (3 + i % 40) == 0 ? 0 : i);
  folder.write("a.u32", bytes_of<uint32_t>(tokens));
  folder.write("b.u32", bytes_of<uint32_t>(counting(700, 100'000)));
  for (const Packing packing : {Packing::stream, Packing::documents}) {
    DatasetOptions options = options_for(folder.path("a.u32"), 64);
    options.sources.push_back({folder.path("b.u32"), "", 0.4});
    options.rows.packing = packing;
    options.rows.document_end = packing == Packing::documents ? 0 : -1;
    Dataset before(options);
    for (int k = 0; k < 7; ++k) take(before, 5);
    const std::string position = before.position();
    // Other sizes of batches and other ranks go on from the same row.
    Dataset after(options);
    after.restore(position, false);
    EXPECT_EQ(after.rows_taken(), 35);
    EXPECT_EQ(after.batches_taken(), 7);
    EXPECT_EQ(after.position(), position);
    const std::vector<test::Row> rest = take(before, 90);
    std::vector<test::Row> parts = take(after, 40, 0, 2);
    after.set_rows_taken(35);
    const std::vector<test::Row> second = take(after, 40, 1, 2);
    parts.insert(parts.end(), second.begin(), second.end());
    const std::vector<test::Row> third = take(after, 50);
    parts.insert(parts.end(), third.begin(), third.end());
    EXPECT_EQ(parts, rest);
  }
}

TEST(Position, DoesNotCountWhatWasOnlyReadAhead) {
  const Folder folder;
  DatasetOptions options = options_for(folder.write("a.u32", bytes_of<uint32_t>(counting(1000))), 4);
  options.read_ahead = 20;
  Dataset dataset(options);
  take(dataset, 3);
  EXPECT_EQ(dataset.rows_taken(), 3);
  EXPECT_NE(dataset.position().find("\"rows\":3,"), std::string::npos);
}

TEST(Position, RefusesOtherFilesAndOptionsUnlessItIsTold) {
  const Folder folder;
  DatasetOptions options = options_for(folder.write("a.u8", "0123456789"), 4);
  Dataset dataset(options);
  take(dataset, 2);
  const std::string position = dataset.position();
  const auto differs = [&](const std::string& what, const DatasetOptions& other) {
    Dataset changed(other);
    expect_error(Code::mismatch, "position: " + what + kAdvice, [&] { changed.restore(position, false); });
    EXPECT_EQ(changed.rows_taken(), 0);
    changed.restore(position, true);
    EXPECT_EQ(changed.rows_taken(), 2);
  };
  DatasetOptions other = options;
  other.rows.sequence = 5;
  differs("sequence was 4 and is 5", other);
  other = options;
  other.seed = 1;
  differs("seed was 0 and is 1", other);
  other = options;
  other.shuffle = false;
  differs("shuffle was true and is false", other);
  other = options;
  other.sources.push_back(options.sources[0]);
  differs("sources[0].weight was 65536 and is 32768", other);
  other = options_for(folder.write("b.u8", "0123456789"), 4);
  differs("sources[0].files[0].name was \"a.u8\" and is \"b.u8\"", other);
  differs("sources[0].files[0].bytes was 10 and is 11", options_for(folder.write("a.u8", "0123456789X"), 4));
}

TEST(Position, RefusesAFileOfTheSameNameAndSizeWithOtherContents) {
  const Folder folder;
  const std::string before(100'000, 'a');
  Dataset dataset(options_for(folder.write("a.u8", before), 4));
  const std::string position = dataset.position();
  for (const size_t changed : {size_t{0}, before.size() / 3, before.size() - 1}) {
    std::string other = before;
    other[changed] = 'b';
    Dataset now(options_for(folder.write("a.u8", other), 4));
    try {
      now.restore(position, false);
      ADD_FAILURE() << "byte " << changed;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::mismatch);
      EXPECT_NE(std::string(error.what()).find("sources[0].files[0] has other contents than before"),
                std::string::npos)
          << error.what();
    }
    now.restore(position, true);
  }
}

TEST(Position, AcceptsAnEarlierReleasesTextWithoutSamples) {
  const Folder folder;
  Dataset dataset(options_for(folder.write("a.u8", "0123456789"), 4));
  take(dataset, 2);
  const std::string before =
      std::regex_replace(dataset.position(), std::regex(",\"sample\":\"[0-9a-f]{16}\""), "");
  Dataset now(options_for(folder.path("a.u8"), 4));
  now.restore(before, false);
  EXPECT_EQ(now.rows_taken(), 2);
}

TEST(Position, FilesMayMoveToAnotherFolder) {
  const Folder folder, elsewhere;
  Dataset before(options_for(folder.write("a.u8", "0123456789"), 4));
  Dataset after(options_for(elsewhere.write("a.u8", "0123456789"), 4));
  take(before, 2);
  after.restore(before.position(), false);
  EXPECT_EQ(after.rows_taken(), 2);
}

TEST(Position, RefusesTextsThatAreNone) {
  const Folder folder;
  Dataset dataset(options_for(folder.write("a.u8", "0123456789"), 4));
  const std::string good = dataset.position();
  for (const std::string& bad :
       {std::string(), std::string("[]"), std::string("{"), good.substr(0, good.size() - 1), good + good,
        std::string("[[[[[[[[[[[[[[[["), "{\"rows\":1," + good.substr(1)})
    expect_error(Code::invalid_argument, "position: the text is not that of gw_dataset_position",
                 [&] { dataset.restore(bad, true); });
  expect_error(Code::invalid_argument, "position: the text has no number \"version\"",
               [&] { dataset.restore("{}", true); });
  expect_error(Code::invalid_argument, "position: the text has no number \"rows\"",
               [&] { dataset.restore(R"({"version":1,"rows":"many"})", true); });
  expect_error(Code::not_supported, "position: its version is 2, this library knows 1",
               [&] { dataset.restore(R"({"version":2})", true); });
  expect_error(Code::invalid_argument, "position: -1 rows and 0 batches is no place in a training",
               [&] { dataset.restore(R"({"version":1,"rows":-1,"batches":0})", true); });
}

TEST(Position, NamesThatAreNotUtf8AreCompared) {
  const Folder folder;
  Dataset dataset(options_for(folder.write("a\xff.u8", "0123456789"), 4));
  dataset.restore(dataset.position(), false);
  EXPECT_EQ(dataset.rows_taken(), 0);
  EXPECT_NE(dataset.position().find(R"("a\u0000ff.u8")"), std::string::npos) << dataset.position();
  Dataset other(options_for(folder.write("a\xfe.u8", "0123456789"), 4));
  expect_error(
      Code::mismatch,
      "position: sources[0].files[0].name was \"a\\xfe.u8\" and is \"a\\xff.u8\" now, so that the rows "
      "that follow would be others; restore with ignore_differences to go on with them",
      [&] { dataset.restore(other.position(), false); });
  expect_error(Code::invalid_argument, "position: the text is not that of gw_dataset_position",
               [&] { dataset.restore(dataset.position() + std::string("\0x", 2), false); });
}

}  // namespace
}  // namespace gangway::data
