#include "gang/rank.h"

#include <utility>

#include "base/interrupt.h"
#include "gang/work.h"

namespace gangway {

namespace {

std::shared_ptr<Device> host_for(const std::shared_ptr<Device>& device) {
  const bool runs_at_once = device->kind() == DeviceKind::cpu || device->kind() == DeviceKind::meta;
  return runs_at_once ? device : make_device("cpu", DeviceOptions{0, 1});
}

}  // namespace

Rank::Rank(std::shared_ptr<Device> device)
    : device_(std::move(device)), host_(host_for(device_)), works_(std::make_shared<Works>()) {}

Rank::~Rank() {
  works_->end();
  try {
    tracer().end();
  } catch (...) {  // no caller is left to get the error
  }
}

class Works::Kept final : public Progressive {
 public:
  Kept(Works& works, std::shared_ptr<Work> work, std::shared_ptr<void> object)
      : works_(works), work_(std::move(work)), object_(std::move(object)) {
    works_.kept_.fetch_add(1, std::memory_order_relaxed);
  }
  ~Kept() override { works_.kept_.fetch_sub(1, std::memory_order_relaxed); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  bool progress() override { return work_->poll() && work_->poll_input(); }

 private:
  Works& works_;  // the list that holds this object
  const std::shared_ptr<Work> work_;
  const std::shared_ptr<void> object_;
};

void Works::keep(std::shared_ptr<Work> work, std::shared_ptr<void> object) noexcept {
  try {
    if (work->poll() && work->poll_input()) return;
    add(std::make_shared<Kept>(*this, work, object));
  } catch (...) {  // without memory for the list, this wait keeps `object` alive
    const InterruptShield shield;
    try {
      work->wait_input(Deadline::never());
    } catch (...) {  // the gang is broken, and no peer reads the memory any more
    }
  }
}

void Works::add(std::shared_ptr<Progressive> work) {
  const std::lock_guard lock(mutex_);
  works_.push_back(std::move(work));
}

size_t Works::size() const {
  const std::lock_guard lock(mutex_);
  return works_.size();
}

void Works::progress() {
  if (driven_.exchange(true, std::memory_order_acquire)) return;
  struct Turn {
    std::atomic<bool>& driven;
    ~Turn() { driven.store(false, std::memory_order_release); }
  } const turn{driven_};
  for (size_t i = 0;;) {
    std::shared_ptr<Progressive> work;  // released without the mutex
    {
      const std::lock_guard lock(mutex_);
      if (i >= works_.size()) return;
      work = works_[i];
    }
    if (!work->progress()) {
      ++i;
      continue;
    }
    // Other threads append to the list, and remove works that have ended.
    const std::lock_guard lock(mutex_);
    if (i < works_.size() && works_[i] == work) works_.erase(works_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void Works::remove(const Progressive* work) noexcept {
  std::shared_ptr<Progressive> over;  // released without the mutex
  const std::lock_guard lock(mutex_);
  for (auto& listed : works_) {
    if (listed.get() != work) continue;
    over = std::move(listed);
    std::erase(works_, nullptr);
    return;
  }
}

void Works::end() noexcept {
  std::vector<std::shared_ptr<Progressive>> works;
  {
    const std::lock_guard lock(mutex_);
    works.swap(works_);
  }
  for (const auto& work : works) work->end();
}

}  // namespace gangway
