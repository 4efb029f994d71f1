// Reads batches: on the caller's thread, or on a thread of its own that is some batches ahead.
//
// Thread rule: one thread at a time calls it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "data/row_stream.h"

namespace gangway::data {

// Which rows a batch has: [first, last) of the rows of the training, out of a global batch of `global` rows
// that begins at `global_first`.
struct BatchRows {
  int64_t global_first = 0, global = 0, first = 0, last = 0;
  bool operator==(const BatchRows&) const = default;
  BatchRows next() const { return {global_first + global, global, first + global, last + global}; }
};

struct DataBatch {
  BatchRows rows;
  std::vector<int64_t> tokens, labels;  // [rows, sequence]
  std::vector<int32_t> documents;       // the same; empty with Packing::stream
  int64_t label_count = 0;              // labels other than kNoLabel
};
using DataBatchPtr = std::unique_ptr<DataBatch>;

class ReadAhead {
 public:
  explicit ReadAhead(const DatasetOptions& options);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  const RowStream& stream() const { return stream_; }

  // Gives a batch. If it is the next one after the last that was taken, it may be there already; else what
  // was read ahead is dropped. `reuse`, which may be null: a batch whose memory is free. What reading threw
  // is thrown here, and the next call reads again. TIMEOUT: a read took longer than the time-out of gangs
  // (GANGWAY_TIMEOUT_MS).
  DataBatchPtr take(const BatchRows& rows, DataBatchPtr reuse);

 private:
  void start();
  void run();
  // Reads a batch. Returns false if it is no longer wanted.
  bool fill(DataBatch& batch, const BatchRows& rows, uint64_t order);
  DataBatchPtr wait(std::unique_lock<std::mutex>& lock);
  void recycle(DataBatchPtr batch);

  RowStream stream_;  // used by the thread alone, once that has started
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable wanted_, made_;
  // --- protected by mutex_
  bool stop_ = false;
  uint64_t order_ = 0;                      // counts changes of plan
  std::optional<BatchRows> planned_;        // what the thread reads next; absent: nothing, or it has failed
  std::vector<DataBatchPtr> ready_, free_;  // with room from the start: the thread must not throw
  std::optional<Error> failure_;
  std::optional<BatchRows> expected_;  // what the next take() should ask for
  // --- not protected
  std::atomic<uint64_t> current_order_{0};  // a copy of order_, which the thread looks at between rows
};

}  // namespace gangway::data
