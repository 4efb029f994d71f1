#include "data/read_ahead.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>

#include "base/config.h"
#include "base/deadline.h"
#include "base/fork.h"
#include "base/interrupt.h"
#include "base/refusal.h"

namespace gangway::data {
namespace {

constexpr int64_t kNapMs = 50;

}  // namespace

ReadAhead::ReadAhead(const DatasetOptions& options) : stream_(options) {
  const auto ahead = static_cast<size_t>(options.read_ahead);
  ready_.reserve(ahead + 1);
  free_.reserve(ahead + 4);
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    current_order_.store(++order_, std::memory_order_relaxed);
  }
  wanted_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ReadAhead::start() {
  arm_fork_guard();  // a child has no such thread
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // a caller's signal handlers never run on this thread
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    fail(Code::out_of_memory, "data: no thread to read ahead: ", error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "gw-data");
}

bool ReadAhead::fill(DataBatch& batch, const BatchRows& rows, uint64_t order) {
  const size_t sequence = static_cast<size_t>(stream_.options().rows.sequence);
  const size_t count = static_cast<size_t>(rows.last - rows.first) * sequence;
  const bool documents = stream_.options().rows.packing == Packing::documents;
  batch.rows = rows;
  batch.tokens.resize(count);
  batch.labels.resize(count);
  batch.documents.resize(documents ? count : 0);
  size_t at = 0;
  for (int64_t row = rows.first; row < rows.last; ++row, at += sequence) {
    if (current_order_.load(std::memory_order_relaxed) != order) return false;
    if (stream_.options().read_ahead == 0) poll_interrupt_throttled();
    stream_.read(static_cast<uint64_t>(row), {batch.tokens.data() + at, batch.labels.data() + at,
                                              documents ? batch.documents.data() + at : nullptr});
  }
  batch.label_count = std::count_if(batch.labels.begin(), batch.labels.end(),
                                    [](int64_t label) { return label != kNoLabel; });
  return true;
}

DataBatchPtr ReadAhead::take(const BatchRows& rows, DataBatchPtr reuse) {
  if (reuse == nullptr) reuse = std::make_unique<DataBatch>();
  if (stream_.options().read_ahead == 0) {
    fill(*reuse, rows, 0);
    return reuse;
  }
  if (!thread_.joinable()) start();
  std::unique_lock lock(mutex_);
  recycle(std::move(reuse));
  if (expected_ != rows || failure_) {
    for (DataBatchPtr& batch : ready_) recycle(std::move(batch));
    ready_.clear();
    current_order_.store(++order_, std::memory_order_relaxed);
    planned_ = rows;
    failure_.reset();
  }
  expected_.reset();  // a call that ends with an error has taken nothing
  wanted_.notify_all();
  DataBatchPtr batch = wait(lock);
  expected_ = rows.next();
  wanted_.notify_all();
  return batch;
}

DataBatchPtr ReadAhead::wait(std::unique_lock<std::mutex>& lock) {
  const int64_t timeout_ms = config().timeout_ms;
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  while (ready_.empty()) {
    if (failure_) throw Error(*failure_);
    if (deadline.passed())
      fail(Code::timeout, "data: reading a batch took longer than ", timeout_ms, " ms (GANGWAY_TIMEOUT_MS)");
    made_.wait_for(lock, std::chrono::milliseconds(kNapMs));
    lock.unlock();
    poll_interrupt();  // without the mutex, because the hook may take long
    lock.lock();
  }
  DataBatchPtr batch = std::move(ready_.front());
  ready_.erase(ready_.begin());
  return batch;
}

void ReadAhead::recycle(DataBatchPtr batch) {
  if (batch != nullptr && free_.size() < free_.capacity()) free_.push_back(std::move(batch));
}

void ReadAhead::run() {
  const size_t ahead = static_cast<size_t>(stream_.options().read_ahead);
  std::unique_lock lock(mutex_);
  while (true) {
    wanted_.wait(lock, [&] { return stop_ || (planned_ && ready_.size() < ahead); });
    if (stop_) return;
    const BatchRows rows = *planned_;
    const uint64_t order = order_;
    DataBatchPtr batch;
    if (!free_.empty()) {
      batch = std::move(free_.back());
      free_.pop_back();
    }
    lock.unlock();
    std::optional<Error> failure;
    bool whole = false;
    try {
      if (batch == nullptr) batch = std::make_unique<DataBatch>();
      whole = fill(*batch, rows, order);
    } catch (const std::exception&) {
      failure = current_error();
    }
    lock.lock();
    if (order != order_ || (!whole && !failure)) {
      recycle(std::move(batch));
      continue;
    }
    if (failure) {
      failure_ = std::move(failure);
      planned_.reset();
    } else {
      ready_.push_back(std::move(batch));
      planned_ = rows.next();
    }
    made_.notify_all();
  }
}

}  // namespace gangway::data
