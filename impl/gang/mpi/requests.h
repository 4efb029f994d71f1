// A work that is a few MPI requests. It notices neither deadlines nor lost peers: who holds it asks again and again.
// Thread rule: a Work's (gang/work.h).
#pragma once

#include <mpi.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "gang/work.h"

namespace gangway::mpi {

// Goes to where a collective cannot write itself, when it has ended.
struct Landing {
  std::vector<char> from;
  size_t bytes;
  void* to;
};

class Requests final : public OneEndWork {
 public:
  explicit Requests(std::shared_ptr<const std::atomic<bool>> broken) : broken_(std::move(broken)) {}

  MPI_Request* next();  // where the next one goes
  void land(Landing landing) { landings_.push_back(std::move(landing)); }
  // Counts and the like, which MPI reads until the end.
  const int* keep(std::vector<int> numbers);

  bool poll() override;
  void wait(Deadline deadline) override;
  std::optional<Error> error() const override;

 private:
  const std::shared_ptr<const std::atomic<bool>> broken_;  // the engine: MPI is not asked any more
  mutable std::mutex mutex_;
  std::vector<MPI_Request> requests_;
  std::vector<Landing> landings_;
  std::vector<std::vector<int>> kept_;
  std::atomic<bool> over_ = false;
  std::optional<Error> error_;
};

}  // namespace gangway::mpi
