// A work that consists of some MPI requests. It detects neither deadlines nor lost peers; its owner polls it
// and checks for both.
//
// Thread rule: that of a Work (gang/work.h).
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "gang/mpi/split_all_reduce.h"
#include "gang/work.h"

namespace gangway::mpi {

// A result that a collective writes to a buffer of its own, `from`. It is copied to `to` when the collective
// has ended.
struct CopyBack {
  std::vector<char> from;
  size_t bytes;
  void* to;
};

class MpiWork final : public OneEndWork {
 public:
  explicit MpiWork(std::shared_ptr<const std::atomic<bool>> broken) : broken_(std::move(broken)) {}
  // Keeps the memory of calls that have not ended, because MPI may still use it: it cannot cancel them.
  ~MpiWork() override;

  MPI_Request* next();  // the place for the next request
  void copy_when_done(CopyBack copy) { memory_->copies_back.push_back(std::move(copy)); }
  void add(std::unique_ptr<SplitAllReduce> call) { memory_->split.push_back(std::move(call)); }
  // Keeps counts or offsets that MPI reads until the requests have ended.
  const int* keep(std::vector<int> numbers);

  bool poll() override;
  void wait(Deadline deadline) override;
  std::optional<Error> error() const override;

 private:
  bool have_ended();

  // shared with the engine; if set, MPI is no longer called
  const std::shared_ptr<const std::atomic<bool>> broken_;
  mutable std::mutex mutex_;
  std::vector<MPI_Request> requests_;
  struct Memory {
    std::vector<CopyBack> copies_back;
    std::vector<std::vector<int>> numbers;
    std::vector<std::unique_ptr<SplitAllReduce>> split;
  };
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  std::atomic<bool> over_ = false;
  std::optional<Error> error_;
};

}  // namespace gangway::mpi
