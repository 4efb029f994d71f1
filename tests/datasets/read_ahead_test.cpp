// The thread that reads ahead: the same batches, errors where they belong, and an end at any time.
#include "data/read_ahead.h"

#include <set>
#include <thread>

#include "base/interrupt.h"
#include "datasets/dataset_testing.h"

namespace gangway::data {
namespace {

using test::bytes_of;
using test::counting;
using test::error_of;
using test::expect_error;
using test::Folder;
using test::options_for;
using test::Row;
using test::take;

TEST(ReadAhead, GivesTheSameBatchesAsReadingInTheCaller) {
  const Folder folder;
  DatasetOptions options = options_for(folder.write("a.u32", bytes_of<uint32_t>(counting(5000))), 16);
  options.read_ahead = 0;
  Dataset plain(options);
  std::vector<std::vector<Row>> wanted;
  for (int k = 0; k < 30; ++k) wanted.push_back(take(plain, 1 + k % 5));
  for (const int ahead : {1, 2, 7}) {
    options.read_ahead = ahead;
    Dataset dataset(options);
    for (int k = 0; k < 30; ++k) EXPECT_EQ(take(dataset, 1 + k % 5), wanted[static_cast<size_t>(k)]) << ahead;
  }
}

TEST(ReadAhead, UsesTheMemoryThatItIsGivenAgain) {
  const Folder folder;
  DatasetOptions options = options_for(folder.write("a.u32", bytes_of<uint32_t>(counting(5000))), 16);
  options.read_ahead = 2;
  Dataset dataset(options);
  double seconds = 0;
  std::set<const int64_t*> memory;
  DataBatchPtr batch, before;
  for (int k = 0; k < 40; ++k) {
    DataBatchPtr next = dataset.next(4, 0, 1, std::move(before), &seconds);
    memory.insert(next->tokens.data());
    before = std::move(batch);
    batch = std::move(next);
  }
  EXPECT_LE(memory.size(), 8u);
}

TEST(ReadAhead, AnErrorComesWithItsOwnBatchAndTakesNoRows) {
  const Folder folder;
  std::vector<int64_t> tokens = counting(100);
  tokens[50] = 5000;
  for (const int ahead : {0, 1, 8}) {
    DatasetOptions options = options_for(folder.write("a.u32", bytes_of<uint32_t>(tokens)), 4);
    options.shuffle = false;
    options.vocab = 1000;
    options.read_ahead = ahead;
    Dataset dataset(options);
    for (int k = 0; k < 6; ++k) take(dataset, 2);  // tokens 0 to 48
    for (int again = 0; again < 2; ++again) {
      expect_error(
          Code::corrupt,
          "data: " + folder.path("a.u32") + ": token 50 is 5000, but the vocabulary has the ids 0 to 999",
          [&] { take(dataset, 2); });
      EXPECT_EQ(dataset.rows_taken(), 12);
      EXPECT_EQ(dataset.batches_taken(), 6);
    }
    dataset.set_rows_taken(14);
    EXPECT_EQ(take(dataset, 1)[0].tokens, counting(4, 56));
  }
}

TEST(ReadAhead, AFileThatIsCutShortMeanwhileIsNamed) {
  const Folder folder;
  const std::string path = folder.write("a.u32", bytes_of<uint32_t>(counting(1000)));
  DatasetOptions options = options_for(path, 4);
  options.shuffle = false;
  options.read_ahead = 1;
  Dataset dataset(options);
  take(dataset, 2);
  std::filesystem::resize_file(path, 800);
  dataset.set_rows_taken(48);
  take(dataset, 1);  // tokens 192 to 196
  dataset.set_rows_taken(60);
  expect_error(Code::io,
               "data: " + path +
                   " was truncated while it is in use: byte 960 is behind its end now, and it had 4000 bytes",
               [&] { take(dataset, 1); });
}

TEST(ReadAhead, AFileOfAnotherSizeIsRefusedWhereItIsOpened) {
  const Folder folder;
  const std::string path = folder.write("a.u32", bytes_of<uint32_t>(counting(1000)));
  DatasetOptions options = options_for(path, 4);
  Dataset dataset(options);
  folder.write("a.u32", "more or less");
  expect_error(Code::io,
               "data: " + path +
                   " had 4000 bytes and now has 12; a dataset's files must not change while it is in use",
               [&] { take(dataset, 1); });
  std::filesystem::remove(path);
  const Error gone = error_of([&] { take(dataset, 1); });
  EXPECT_EQ(gone.message(), "data: opening " + path + ": No such file or directory");
}

TEST(ReadAhead, AnInterruptEndsAWaitAndLosesNothing) {
  const Folder folder;
  const std::string path = folder.path("a.u32");
  folder.write("a.u32", bytes_of<uint32_t>(counting(4'000'000)));
  DatasetOptions options = options_for(path, 4);
  Dataset dataset(options), other(options);
  bool stop = true;
  set_interrupt([](void* user) { return *static_cast<bool*>(user) ? 1 : 0; }, &stop, nullptr);
  const Error error = error_of([&] { take(dataset, 500'000); });  // longer than one look at the hook
  stop = false;
  set_interrupt(nullptr, nullptr, nullptr);
  EXPECT_EQ(error.code(), Code::caller);
  EXPECT_EQ(dataset.rows_taken(), 0);
  EXPECT_EQ(take(dataset, 10), take(other, 10));
}

TEST(ReadAhead, EndsInTheMiddleOfABatch) {
  const Folder folder;
  DatasetOptions options = options_for(folder.write("a.u32", bytes_of<uint32_t>(counting(2'000'000))), 4);
  options.read_ahead = 4;
  const auto start = std::chrono::steady_clock::now();
  {
    Dataset dataset(options);
    take(dataset, 1);
    double seconds = 0;
    dataset.next(20'000, 0, 1, nullptr, &seconds);  // the next ones are being read
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(ReadAhead, SeveralThreadsMayTakeBatches) {
  const Folder folder;
  Dataset dataset(options_for(folder.write("a.u32", bytes_of<uint32_t>(counting(4001))), 4));
  std::vector<std::vector<Row>> taken(4);
  std::vector<std::thread> threads;
  for (std::vector<Row>& rows : taken)
    threads.emplace_back([&] {
      for (int k = 0; k < 25; ++k)
        for (Row& row : take(dataset, 10)) rows.push_back(std::move(row));
    });
  for (std::thread& thread : threads) thread.join();
  std::set<Row> once;
  for (const std::vector<Row>& rows : taken) once.insert(rows.begin(), rows.end());
  EXPECT_EQ(once.size(), 1000u);
  EXPECT_EQ(dataset.rows_taken(), 1000);
  EXPECT_EQ(dataset.batches_taken(), 100);
}

}  // namespace
}  // namespace gangway::data
