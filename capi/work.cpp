#include "gang_handle.h"

using namespace gangway;
using namespace gangway::capi;

void gw_work::settle() {
  {
    const std::lock_guard lock(mutex);
    if (attached.empty()) return;
  }
  if (!work->poll()) return;  // without the mutex: it may free other works' objects, whose functions may call in
  std::vector<CallerObject> done;
  const std::lock_guard lock(mutex);
  done.swap(attached);
}

namespace {

// Releasing a work in flight neither waits nor frees what is attached too early: the leftovers wait for the
// work in the rank's list of things to drive.
class Leftover final : public Progressive {
 public:
  Leftover(WorkPtr work, std::shared_ptr<void> keep, std::vector<CallerObject> attached)
      : work_(std::move(work)), keep_(std::move(keep)), attached_(std::move(attached)) {
    count.fetch_add(1, std::memory_order_relaxed);
  }
  ~Leftover() override { count.fetch_sub(1, std::memory_order_relaxed); }
  Leftover(const Leftover&) = delete;
  Leftover& operator=(const Leftover&) = delete;
  bool progress() override { return work_->poll(); }

  static inline std::atomic<int> count{0};  // of all ranks: a wait that finds none has nothing to do

 private:
  WorkPtr work_;
  std::shared_ptr<void> keep_;  // not the gang: its rank holds this list
  std::vector<CallerObject> attached_;
};

}  // namespace

void gangway::capi::settle_released(Gang& gang) {
  if (Leftover::count.load(std::memory_order_relaxed) != 0) gang.owner()->works()->progress();
}

namespace {

void wait_for(gw_work& work, Deadline deadline) {
  try {
    work.work->wait_input(deadline);
  } catch (const Error& error) {
    if (error.code() != Code::not_ready) work.settle();
    throw;
  }
  work.settle();
  settle_released(*work.gang);
}

}  // namespace

gw_status gw_work_poll(gw_work* work, int32_t* out_done) {
  return guarded([&] {
    int32_t& done = out(out_done, "out_done");
    gw_work& w = required(work, "work");
    if (!w.work->poll()) return;
    try {
      w.work->wait_input(Deadline::after_ms(0));
    } catch (const Error& error) {
      if (error.code() == Code::not_ready) return;
      w.settle();
      throw;
    }
    w.settle();
    done = 1;
  });
}

gw_status gw_work_wait(gw_work* work, int64_t timeout_ms) {
  return guarded([&] { wait_for(required(work, "work"), Deadline::after_ms(timeout_ms)); });
}

gw_status gw_work_wait_many(gw_work* const* works, size_t work_count, int64_t timeout_ms) {
  return guarded([&] {
    if (work_count > 0) required(works, "works");
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    for (size_t i = 0; i < work_count; ++i) wait_for(required(works[i], "works[i]"), deadline);
  });
}

gw_status gw_work_order(gw_work* work, void* stream) {
  return guarded([&] {
    gw_work& w = required(work, "work");
    check_stream(stream, w.gang->device());
    w.work->order(w.gang->device().stream());
  });
}

gw_status gw_work_error(gw_work* work) {
  return guarded([&] {
    if (const auto error = required(work, "work").work->error()) throw *error;
  });
}

gw_status gw_work_attach(gw_work* work, void* object, gw_free_fn free_object) {
  CallerObject owned(object, free_object);  // freed on every refusal
  return guarded([&] {
    gw_work& w = required(work, "work");
    {
      const std::lock_guard lock(w.mutex);
      w.attached.push_back(std::move(owned));
    }
    w.settle();
  });
}

void gw_work_release(gw_work* work) {
  if (work == nullptr || forked_child()) return;
  if (work->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  try {
    work->settle();
    if (!work->attached.empty())
      work->gang->owner()->works()->add(
          std::make_shared<Leftover>(work->work, work->keep, std::move(work->attached)));
  } catch (...) {
    // A broken gang: its work reads nothing any more.
  }
  delete work;
}
