#include "gang/planes/lowered_work.h"

#include <atomic>
#include <mutex>
#include <type_traits>

#include "base/interrupt.h"
#include "gang/backoff.h"

namespace gangway {
namespace {

float load(float x) { return x; }
double load(double x) { return x; }
float load(bf16_t x) { return to_f32(x); }
float load(f16_t x) { return to_f32(x); }

template <typename T, typename A>
T store(A a) {
  if constexpr (std::is_same_v<T, bf16_t>) {
    return to_bf16(static_cast<float>(a));
  } else if constexpr (std::is_same_v<T, f16_t>) {
    return to_f16(static_cast<float>(a));
  } else {
    return static_cast<T>(a);
  }
}

template <typename From, typename To>
void finish_as(const Finish& f) {
  const From* const from = static_cast<const From*>(f.from);
  To* const to = static_cast<To*>(f.to);
  using Accumulator = decltype(load(From{}));
  const Accumulator divisor = static_cast<Accumulator>(f.divisor);
  for (size_t i = 0; i < f.count; ++i) {
    const Accumulator x = f.divisor == 1 ? load(from[i]) : load(from[i]) / divisor;
    to[i] = store<To>(f.add ? static_cast<Accumulator>(load(to[i])) + x : x);
  }
}

template <typename From>
void finish_from(const Finish& f) {
  if (f.to_type == DType::f64) return finish_as<From, double>(f);
  if (f.to_type == DType::f32) return finish_as<From, float>(f);
  if (f.to_type == DType::bf16) return finish_as<From, bf16_t>(f);
  if (f.to_type == DType::f16) return finish_as<From, f16_t>(f);
  fail(Code::internal, "a lowered reduction to ", name(f.to_type), " passed the checks");
}

class LoweredWork final : public Work, public Progressive {
 public:
  LoweredWork(const std::shared_ptr<Rank>& owner, std::vector<WorkPtr> works, Remainder rest,
              std::shared_ptr<Stream> side)
      : list_(owner->works()),
        device_(owner->device_ptr()),
        side_(std::move(side)),
        works_(std::move(works)),
        rest_(std::move(rest)) {}

  bool poll() override { return advance(false); }
  bool poll_input() override { return advance(true); }
  void wait(Deadline deadline) override {
    for (const WorkPtr& work : works_) work->wait(deadline);
    end_output(*side_);
    for (Backoff backoff; !done();) {
      list_->progress();
      if (backoff.yields()) continue;
      if (const auto failure = error()) throw *failure;
      if (deadline.passed()) fail(Code::not_ready, "the collective is not done yet");
      poll_interrupt();
      backoff.sleep();
    }
  }
  void wait_input(Deadline deadline) override {
    wait(deadline);
    for (const WorkPtr& work : works_) work->wait_input(deadline);
    leave();
  }
  void order(Stream& stream) override {
    for (const WorkPtr& work : works_) work->order(stream);
    end_output(stream);
    const std::lock_guard lock(mutex_);
    if (end_ != nullptr) stream.wait(*end_);  // the finishes may have run on another stream
  }
  void order_input(Stream& stream) override {
    order(stream);
    for (const WorkPtr& work : works_) work->order_input(stream);
  }
  std::optional<Error> error() const override {
    for (const WorkPtr& work : works_)
      if (auto error = work->error()) return error;
    return std::nullopt;
  }

  bool progress() override { return advance(true); }

 private:
  // Returns true if the input is free (`input`) or the output is ready, or if the work has failed.
  bool advance(bool input) {
    for (const WorkPtr& work : works_)
      if (!(input ? work->poll() && work->poll_input() : work->poll())) return false;
    if (!error()) {
      end_output(*side_);
      if (!done()) return false;
    }
    if (input) leave();
    return true;
  }

  // Removes the work from the rank's list as soon as its output is ready and its input is free, instead of at
  // the list's next progress().
  void leave() {
    if (!left_.exchange(true)) list_->remove(this);
  }

  void end_output(Stream& stream) {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    for (const Finish& f : rest_.finishes) finish(f, *device_, stream);
    if (!rest_.finishes.empty()) {
      end_ = device_->make_event();
      end_->record(stream);
    }
    ended_ = true;
  }

  bool done() {
    const std::lock_guard lock(mutex_);
    return ended_ && (end_ == nullptr || end_->done());
  }

  const std::shared_ptr<Works> list_;
  const std::shared_ptr<Device> device_;
  const std::shared_ptr<Stream> side_;
  const std::vector<WorkPtr> works_;
  const Remainder rest_;
  std::mutex mutex_;
  bool ended_ = false;
  std::unique_ptr<Event> end_;  // after the finishes, on the stream that they ran on
  std::atomic<bool> left_ = false;
};

}  // namespace

void finish(const Finish& f, Device& device, Stream& stream) {
  if (f.count == 0) return;
  if (f.from_type == f.to_type && f.divisor == 1 && !f.add)
    return device.copy(f.to, f.from, f.count * item_bytes(f.to_type), stream);
  if (f.from_type == DType::f64) return finish_from<double>(f);
  if (f.from_type == DType::f32) return finish_from<float>(f);
  if (f.from_type == DType::bf16) return finish_from<bf16_t>(f);
  if (f.from_type == DType::f16) return finish_from<f16_t>(f);
  fail(Code::internal, "a lowered reduction of ", name(f.from_type), " passed the checks");
}

WorkPtr make_lowered_work(const std::shared_ptr<Rank>& owner, std::vector<WorkPtr> works, Remainder rest,
                          std::shared_ptr<Stream> side) {
  auto work = std::make_shared<LoweredWork>(owner, std::move(works), std::move(rest), std::move(side));
  owner->works()->add(work);
  return work;
}

}  // namespace gangway
