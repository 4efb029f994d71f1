#include "gang/mpi/mpi_work.h"

#include <cstring>

#include "gang/backoff.h"
#include "gang/mpi/runtime.h"

namespace gangway::mpi {

MpiWork::~MpiWork() {
  if (!over_) static_cast<void>(memory_.release());
}

MPI_Request* MpiWork::next() {
  requests_.push_back(MPI_REQUEST_NULL);
  return &requests_.back();
}

const int* MpiWork::keep(std::vector<int> numbers) {
  memory_->numbers.push_back(std::move(numbers));
  return memory_->numbers.back().data();
}

bool MpiWork::poll() {
  if (over_ || broken_->load(std::memory_order_acquire)) return true;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || over_) return over_;
  try {
    if (!have_ended()) return false;
  } catch (const Error& error) {
    error_ = error;
    over_ = true;
    return true;
  }
  for (const CopyBack& copy : memory_->copies_back)
    if (copy.bytes != 0) std::memcpy(copy.to, copy.from.data(), copy.bytes);
  over_ = true;
  return true;
}

bool MpiWork::have_ended() {
  int done = 1;
  if (!requests_.empty())
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
          "MPI_Testall");
  std::erase_if(memory_->split, [](const auto& call) { return call->poll(); });
  return done != 0 && memory_->split.empty();
}

void MpiWork::wait(Deadline deadline) {
  Backoff backoff;
  while (!poll()) {
    if (deadline.passed()) fail(Code::not_ready, "the call is not done yet");
    if (!backoff.yields()) backoff.sleep();
  }
  if (const auto failed = error()) throw *failed;
}

std::optional<Error> MpiWork::error() const {
  const std::lock_guard lock(mutex_);
  if (!over_ && broken_->load(std::memory_order_acquire)) return Error(Code::gang, "the gang was broken");
  return error_;
}

}  // namespace gangway::mpi
