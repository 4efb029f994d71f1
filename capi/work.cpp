#include <gangway/work.h>

#include "gang_handle.h"

using namespace gangway;
using namespace gangway::capi;

void gw_work::settle() {
  {
    const std::lock_guard lock(mutex);
    if (attached == nullptr) return;
  }
  // Polls without the mutex: polling may free objects of other works, and their free functions may call the
  // library.
  if (!work->poll() || !work->poll_input()) return;
  std::shared_ptr<std::vector<CallerObject>> done;
  const std::lock_guard lock(mutex);
  done.swap(attached);
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
  work.gang->owner()->works()->settle();
}

}  // namespace

gw_status gw_work_poll(gw_work* work, int32_t* out_done) {
  return guarded([&] {
    int32_t& done = out(out_done, "out_done");
    gw_work& w = required(work, "work");
    if (!w.work->poll() || !w.work->poll_input()) return;
    w.settle();
    w.work->wait_input(Deadline::never());  // does not wait, because the work is over; throws its error
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
    w.work->order(EntryStream::of(w.gang->device(), stream));
  });
}

gw_status gw_work_error(gw_work* work) {
  return guarded([&] {
    if (const auto error = required(work, "work").work->error()) throw *error;
  });
}

gw_status gw_work_attach(gw_work* work, void* object, gw_free_fn free_object) {
  CallerObject owned(object, free_object);  // frees the object if this function fails
  return guarded([&] {
    gw_work& w = required(work, "work");
    {
      const std::lock_guard lock(w.mutex);
      if (w.attached == nullptr) w.attached = std::make_shared<std::vector<CallerObject>>();
      w.attached->push_back(std::move(owned));
    }
    w.settle();
  });
}

gw_work* gw_work_retain(gw_work* work) { return retain(work); }

void gw_work_release(gw_work* work) {
  if (work == nullptr || forked_child()) return;
  if (work->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // The rank's list of works keeps the attached objects until the work is over, so that this neither waits
  // nor frees them too early. `keep` does not go to the list: its object may own the rank that owns the list,
  // and passes its own memory to the list when it is destroyed.
  if (work->attached != nullptr) work->gang->owner()->works()->keep(work->work, std::move(work->attached));
  delete work;
}
