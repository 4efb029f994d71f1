// What the tests of impl/data share: files that a test writes byte by byte in a folder of its own, and rows
// read through a dataset.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/expect_error.h"
#include "data/dataset.h"

namespace gangway::test {

// A folder that ends with the test.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path().string() + "/gangway-data-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no folder for the test";
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  std::string path_;
};

// The bytes of numbers, little-endian.
template <typename T, typename List>
std::string bytes_of(const List& numbers) {
  std::string out;
  for (const auto number : numbers) {
    const T value = static_cast<T>(number);
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return out;
}

// The numbers first, first + 1, ...: each token tells its place.
inline std::vector<int64_t> counting(int64_t count, int64_t first = 0) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = first + static_cast<int64_t>(i);
  return numbers;
}

inline data::DatasetOptions options_for(const std::string& path, int64_t sequence) {
  data::DatasetOptions options;
  options.sources = {{path, "", 1}};
  options.rows.sequence = sequence;
  return options;
}

struct Row {
  std::vector<int64_t> tokens, labels;
  std::vector<int32_t> documents;
  bool operator==(const Row&) const = default;
  bool operator<(const Row& other) const { return tokens < other.tokens; }
};

inline std::vector<Row> rows_of(const data::DataBatch& batch, int64_t sequence) {
  std::vector<Row> rows;
  const auto part = [&](const auto& all, int64_t row) {
    if (all.empty()) return all;
    return std::decay_t<decltype(all)>(all.begin() + row * sequence, all.begin() + (row + 1) * sequence);
  };
  for (int64_t r = 0; r < batch.rows.last - batch.rows.first; ++r)
    rows.push_back({part(batch.tokens, r), part(batch.labels, r), part(batch.documents, r)});
  return rows;
}

// The next `count` rows, all of them.
inline std::vector<Row> take(data::Dataset& dataset, int64_t count, int part = 0, int parts = 1) {
  double seconds = 0;
  const data::DataBatchPtr batch = dataset.next(count, part, parts, nullptr, &seconds);
  EXPECT_GE(seconds, 0);
  return rows_of(*batch, dataset.options().rows.sequence);
}

}  // namespace gangway::test
