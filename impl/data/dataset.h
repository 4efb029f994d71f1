// A dataset: the batches of a training, and the place in it.
//
// Thread rule: any thread; calls run one after another.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "data/read_ahead.h"

namespace gangway::data {

class Dataset {
 public:
  // INVALID_ARGUMENT, IO, CORRUPT, NOT_FOUND as RowStream has them.
  explicit Dataset(const DatasetOptions& options);

  const DatasetOptions& options() const { return reader_.stream().options(); }
  int64_t rows_per_epoch() const { return static_cast<int64_t>(reader_.stream().rows_per_epoch()); }

  // Gives part `part` of `parts` of the next `global_batch` rows: consecutive rows, of which the first parts
  // have one more where they cannot be equal. `seconds` gets the time that the call waited for them. If the
  // call fails, no row is taken. INVALID_ARGUMENT: a number is out of range.
  DataBatchPtr next(int64_t global_batch, int part, int parts, DataBatchPtr reuse, double* seconds);

  int64_t rows_taken() const;
  int64_t batches_taken() const;
  void set_rows_taken(int64_t rows);  // INVALID_ARGUMENT: below 0

  // The place as JSON: the rows and batches taken, and what must be as it was for the rows that follow to be
  // the same ones (position.h).
  std::string position() const;
  // Takes over such a place. MISMATCH: a file or an option differs, unless `ignore_differences`.
  // INVALID_ARGUMENT: no such text.
  void restore(std::string_view position, bool ignore_differences);

 private:
  mutable std::mutex mutex_;
  ReadAhead reader_;
  int64_t rows_taken_ = 0, batches_taken_ = 0;
};

}  // namespace gangway::data
