#include "data/dataset.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "data/position.h"

namespace gangway::data {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 60;
constexpr int64_t kMostTokens = int64_t{1} << 40;  // of a batch
constexpr int kMostReadAhead = 1024;

const DatasetOptions& checked(const DatasetOptions& options) {
  if (options.read_ahead < 0 || options.read_ahead > kMostReadAhead)
    fail(Code::invalid_argument, "read_ahead is ", options.read_ahead, ", not from 0 to ", kMostReadAhead);
  return options;
}

}  // namespace

Dataset::Dataset(const DatasetOptions& options) : reader_(checked(options)) {}

DataBatchPtr Dataset::next(int64_t global_batch, int part, int parts, DataBatchPtr reuse, double* seconds) {
  const std::lock_guard lock(mutex_);
  const int64_t most = kMostTokens / options().rows.sequence;
  if (global_batch < 1 || global_batch > most)
    fail(Code::invalid_argument, "global_batch is ", global_batch, ", not from 1 to ", most);
  if (parts < 1 || part < 0 || part >= parts)
    fail(Code::invalid_argument, "part ", part, " of ", parts, " parts does not exist");
  if (rows_taken_ > kMostRows - global_batch)
    fail(Code::invalid_argument, "no more rows after ", rows_taken_, " and a batch of ", global_batch);
  const int64_t each = global_batch / parts, more = global_batch % parts;
  const auto bound = [&](int64_t i) { return rows_taken_ + i * each + std::min(i, more); };
  const BatchRows rows = {rows_taken_, global_batch, bound(part), bound(part + 1)};
  const auto start = std::chrono::steady_clock::now();
  DataBatchPtr batch = reader_.take(rows, std::move(reuse));
  *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  rows_taken_ += global_batch;
  ++batches_taken_;
  return batch;
}

int64_t Dataset::rows_taken() const {
  const std::lock_guard lock(mutex_);
  return rows_taken_;
}

int64_t Dataset::batches_taken() const {
  const std::lock_guard lock(mutex_);
  return batches_taken_;
}

void Dataset::set_rows_taken(int64_t rows) {
  if (rows < 0 || rows > kMostRows)
    fail(Code::invalid_argument, "rows is ", rows, ", not from 0 to ", kMostRows);
  const std::lock_guard lock(mutex_);
  rows_taken_ = rows;
}

std::string Dataset::position() const {
  const std::lock_guard lock(mutex_);
  return write_position(reader_.stream(), {rows_taken_, batches_taken_});
}

void Dataset::restore(std::string_view position, bool ignore_differences) {
  const std::lock_guard lock(mutex_);
  const Position found = read_position(reader_.stream(), position, ignore_differences);
  if (found.rows < 0 || found.rows > kMostRows || found.batches < 0)
    fail(Code::invalid_argument, "position: ", found.rows, " rows and ", found.batches,
         " batches is no place in a training");
  rows_taken_ = found.rows;
  batches_taken_ = found.batches;
}

}  // namespace gangway::data
