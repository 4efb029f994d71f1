// The engine of one rank. Results are copies of the rank's own data. On each channel, the sends of the rank
// to itself are matched with its receives in the order of the calls, in the same span or in a later one.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>

#include "base/interrupt.h"
#include "gang/local/local_data.h"
#include "gang/local/local_engine.h"

namespace gangway {
namespace {

constexpr auto kNap = std::chrono::milliseconds(50);  // the interrupt hook must be asked every 100 ms

class SelfWork : public OneEndWork {
 public:
  SelfWork(std::shared_ptr<LocalState> state, std::string what, int64_t timeout_ms)
      : state_(std::move(state)), what_(std::move(what)), timeout_ms_(timeout_ms) {}

  bool poll() override {
    const std::lock_guard lock(state_->mutex);
    return open == 0 || state_->error.has_value();
  }
  void wait(Deadline deadline) override {
    const Deadline own = Deadline::after_ms(timeout_ms_);
    std::unique_lock lock(state_->mutex);
    while (open != 0) {
      if (state_->error) throw *state_->error;
      if (own.passed()) {
        state_->error =
            Error(Code::timeout, text(what_, " of a gang of one met no counterpart in ", timeout_ms_,
                                      " ms; a rank that sends to itself must receive from itself"));
        continue;
      }
      if (deadline.passed()) fail(Code::not_ready, what_, " is not done yet");
      state_->changed.wait_for(lock, std::min<std::chrono::milliseconds>(
                                         kNap, std::chrono::milliseconds(deadline.left_ms(kNap.count()))));
      lock.unlock();
      poll_interrupt();
      lock.lock();
    }
  }
  std::optional<Error> error() const override {
    const std::lock_guard lock(state_->mutex);
    return open == 0 ? std::nullopt : state_->error;
  }

  int open = 0;  // sends and receives that have no counterpart yet; under state_->mutex

 private:
  std::shared_ptr<LocalState> state_;
  std::string what_;
  int64_t timeout_ms_;
};

struct Half {  // one side of a transfer from the rank to itself
  Collective record;
  std::shared_ptr<SelfWork> work;
};

class SelfEngine : public LocalEngine {
 public:
  using LocalEngine::LocalEngine;
  const char* name() const override { return "self"; }

  WorkPtr run(Channel channel, std::span<const Collective> span, Stream&) override {
    throw_if_broken();
    std::shared_ptr<SelfWork> work;
    for (const Collective& c : span) {
      count(channel, c, 0);
      if (c.op != CollectiveOp::send && c.op != CollectiveOp::recv) {
        act_on_own_data(c, 0, 1);
        continue;
      }
      if (!work)
        work = std::make_shared<SelfWork>(state_, text("gang.", gangway::name(c.op)), options_.timeout_ms);
      transfer(channel, {c, work});
    }
    return work ? WorkPtr(work) : finished_work();
  }

  // Refuses a call that would wait for a counterpart: the rank waits in this call and cannot make the other.
  WorkPtr run_now(Channel channel, std::span<const Collective> span, Stream& stream) override {
    throw_if_broken();
    refuse_half(channel, span);
    return run(channel, span, stream);
  }

  std::optional<Message> probe(Channel channel, int) override {
    throw_if_broken();
    const std::lock_guard lock(state_->mutex);
    const auto& sends = sends_[static_cast<size_t>(channel)];
    if (sends.empty()) return std::nullopt;
    return Message{sends.front().record.count, sends.front().record.dtype};
  }

  std::shared_ptr<Engine> create(std::span<const int>, const std::string& label) override {
    EngineOptions child = options_;
    child.label = label;
    return make_self_engine(rank_, child);
  }
  std::shared_ptr<Engine> shrink(std::vector<int>&) override { return make_self_engine(rank_, options_); }

  // Another thread of the rank may publish the counter.
  void wait(const std::atomic<uint64_t>& counter, uint64_t at_least, int, const char* what) override {
    const Deadline deadline = Deadline::after_ms(options_.timeout_ms);
    std::unique_lock lock(state_->mutex);
    while (counter.load(std::memory_order_acquire) < at_least) {
      if (state_->error) throw *state_->error;
      if (deadline.passed())
        state_->error = Error(Code::timeout, text(what, ": counter is ", counter.load(), ", not ", at_least,
                                                  ", after ", options_.timeout_ms, " ms"));
      else
        state_->changed.wait_for(lock, kNap);
      lock.unlock();
      poll_interrupt();
      lock.lock();
    }
  }

 private:
  void refuse_half(Channel channel, std::span<const Collective> span) {
    const std::lock_guard lock(state_->mutex);
    size_t sends = sends_[static_cast<size_t>(channel)].size();
    size_t receives = receives_[static_cast<size_t>(channel)].size();
    bool sending = false, receiving = false;
    for (const Collective& c : span) {
      sending = sending || c.op == CollectiveOp::send;
      receiving = receiving || c.op == CollectiveOp::recv;
      sends += c.op == CollectiveOp::send;
      receives += c.op == CollectiveOp::recv;
    }
    if ((!receiving || receives <= sends) && (!sending || sends <= receives)) return;
    const bool is_send = sending && sends > receives;
    fail(
        Code::invalid_state, "gang.", is_send ? "send" : "recv", ": in a gang of one the rank ",
        is_send ? "sends to itself, but has begun no receive" : "receives from itself, but has begun no send",
        ": begin that one first, without waiting for it, or both in one batch");
  }

  void transfer(Channel channel, Half half) {
    const std::lock_guard lock(state_->mutex);
    const bool is_send = half.record.op == CollectiveOp::send;
    auto& mine = (is_send ? sends_ : receives_)[static_cast<size_t>(channel)];
    auto& others = (is_send ? receives_ : sends_)[static_cast<size_t>(channel)];
    if (others.empty()) {
      ++half.work->open;
      mine.push_back(std::move(half));
      return;
    }
    const Half other = std::move(others.front());
    others.pop_front();
    const Collective& from = is_send ? half.record : other.record;
    const Collective& to = is_send ? other.record : half.record;
    if (from.count != to.count || from.dtype != to.dtype) {
      state_->error = Error(Code::mismatch,
                            text("gang.recv of ", to.count, " ", gangway::name(to.dtype), " meets send of ",
                                 from.count, " ", gangway::name(from.dtype), " on rank 0 of a gang of one"));
      state_->changed.notify_all();
      throw *state_->error;
    }
    if (to.out != nullptr && from.in != nullptr)
      std::memmove(to.out, from.in, from.count * item_bytes(from.dtype));
    --other.work->open;
    state_->changed.notify_all();
  }

  std::array<std::deque<Half>, kChannels> sends_, receives_;  // under state_->mutex
};

}  // namespace

std::shared_ptr<Engine> make_self_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options) {
  EngineOptions alone = options;
  alone.rank = 0;
  alone.size = 1;
  return std::make_shared<SelfEngine>(rank, alone);
}

}  // namespace gangway
