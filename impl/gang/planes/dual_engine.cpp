#include "gang/planes/dual_engine.h"

#include <sched.h>

#include <algorithm>

#include "base/interrupt.h"
#include "gang/backoff.h"
#include "gang/call_log.h"
#include "gang/planes/dual_call.h"

namespace gangway {
namespace dual {

constexpr int kSpins = 200;  // how often a call is polled without a pause
// How long a call that moves when it is polled is polled without a sleep, which would hold up its peers:
// 0.25 GB/s.
constexpr int64_t kNsPerByte = 4, kLong = 64 << 10;  // a shorter call is done in one piece
constexpr int kPatienceMs = 1000;  // how long an engine that is destroyed waits for its calls

// The state that calls share. It may outlive the engine.
class Planes final : public Progressive, public std::enable_shared_from_this<Planes> {
 public:
  Planes(std::shared_ptr<Engine> data, std::shared_ptr<Engine> control, std::shared_ptr<Rank> owner,
         const EngineOptions& options)
      : data(std::move(data)),
        control(std::move(control)),
        owner(std::move(owner)),
        options(options),
        runs_in_order(this->data->facts().runs_in_order),
        moves_when_polled(this->data->facts().moves_when_polled) {}

  WorkPtr run(Channel channel, std::span<const Collective> span, Stream& stream) {
    throw_if_broken();
    check_opened(channel, span);
    const int size = control->size(), rank = control->rank();
    std::shared_ptr<Call> call;
    try {
      open(channel, span);
      call = std::make_shared<Call>(shared_from_this(), counter(channel), channel, span, stream, size, rank);
      if (!runs_in_order) call->note_memory(rank, size);
      call->notes_work = control->run(channel, call->notes.records(), owner->host_stream());
      call->number = log_begin(channel, span);
      if (data->facts().aborts_in_flight) launch(*call);
      add(call);
    } catch (const Error& error) {
      fail_with(error);
      throw;
    } catch (const std::bad_alloc&) {  // breaks the engine, because peers wait for this rank's part
      fail_with(Error(Code::out_of_memory, "no memory"));
      throw;
    }
    advance();
    return call;
  }

  // For a caller who blocks. If no call is outstanding, the call need not be queued.
  WorkPtr run_now(Channel channel, std::span<const Collective> span, Stream& stream) {
    const bool pairs = std::any_of(span.begin(), span.end(), is_pair);
    // The peer of a pair may be waiting for another call, and records of one launch for each other.
    if (pairs || outstanding() || (span.size() > 1 && !runs_in_order)) return run(channel, span, stream);
    throw_if_broken();
    try {
      open(channel, span);
      const Announcement notes(counter(channel), span, control->rank(), control->size());
      if (const WorkPtr notes_work = control->run_now(channel, notes.records(), owner->host_stream()))
        notes_work->wait_input(Deadline::never());
      notes.check(options);
      const uint64_t number = log_begin(channel, span);
      WorkPtr rest = data->run_now(channel, span, stream);
      if (rest == nullptr) {
        log.end(number, "done");
        return nullptr;
      }
      auto call = std::make_shared<Call>(shared_from_this(), unused_, channel, std::span<const Collective>(),
                                         stream, control->size(), control->rank());
      call->records.assign(span.begin(), span.end());
      if (!runs_in_order) call->note_memory(control->rank(), control->size());
      call->set_launched(std::move(rest), number);
      add(call);
      return call;
    } catch (const Error& error) {
      if (error.code() != Code::caller) fail_with(error);  // the gang reports an interrupt itself
      throw;
    } catch (const std::bad_alloc&) {
      fail_with(Error(Code::out_of_memory, "no memory"));
      throw;
    }
  }

  // Runs a collective set-up of the data engine. A failure breaks both engines, because peers are in it.
  template <typename SetUp>
  void set_up(SetUp&& step) {
    throw_if_broken();
    try {
      step();
    } catch (const Error& error) {
      fail_with(error);
      throw;
    } catch (const std::bad_alloc&) {
      fail_with(Error(Code::out_of_memory, "no memory"));
      throw;
    }
  }
  void register_memory(Channel channel, std::span<const std::shared_ptr<Buffer>> buffers, size_t sums) {
    set_up([&] {
      const Collective barrier;
      open(channel, {&barrier, 1});
      data->register_memory(channel, buffers, sums);
    });
  }

  // Drives every call as far as possible now. Returns false if another thread is doing that.
  bool advance() {
    if (busy_.exchange(true, std::memory_order_acquire)) return false;
    struct Turn {
      std::atomic<bool>& busy;
      ~Turn() { busy.store(false, std::memory_order_release); }
    } const turn{busy_};
    std::vector<std::shared_ptr<Call>> calls;
    try {
      const std::lock_guard lock(mutex_);
      calls = calls_;
    } catch (const std::bad_alloc&) {
      return false;  // left to the next turn
    }
    for (size_t i = 0; i < calls.size() && !broken(); ++i) {
      try {
        step(*calls[i], std::span(calls).first(i));
      } catch (const Error& error) {
        fail_with(error);
      } catch (const std::bad_alloc&) {
        fail_with(Error(Code::out_of_memory, "no memory"));
      }
    }
    const std::lock_guard lock(mutex_);
    std::erase_if(calls_, [&](const auto& call) { return broken() || call->state.load() == Call::over; });
    return true;
  }
  bool progress() override {  // Progressive
    if (!advance()) return false;
    const std::lock_guard lock(mutex_);
    listed_ = !calls_.empty();
    return !listed_;
  }
  void end() noexcept override {
    const std::lock_guard lock(mutex_);
    calls_.clear();
  }

  void wait(Call& call, Call::State want, Deadline deadline) {
    wait_announced(call, deadline);
    wait_data(call, want, deadline);
  }

  void shutdown(Deadline deadline) {
    for (;;) {
      std::shared_ptr<Call> first;
      {
        const std::lock_guard lock(mutex_);
        if (!calls_.empty()) first = calls_.front();
      }
      if (first == nullptr) break;
      wait(*first, Call::over, deadline);
      advance();
    }
    control->shutdown(deadline);
    data->shutdown(deadline);
  }

  // Called as the engine object is destroyed. It waits a while for the outstanding calls, because possibly
  // nothing else drives the rank's list, in which they are, any more. After that they go on.
  void leave() noexcept {
    const Deadline patience = Deadline::after_ms(kPatienceMs);
    for (Backoff backoff; outstanding() && !patience.passed();) {
      end_what_is_lost();
      advance();
      if (!backoff.yields()) backoff.sleep();
    }
    try {
      owner->works()->progress();
    } catch (...) {  // an error of another engine, whose own calls report it
    }
    if (!outstanding()) owner->works()->remove(this);
  }

  void fail_with(const Error& error) noexcept {
    {
      const std::lock_guard lock(error_mutex_);
      keep_first(error_, error);
    }
    broken_.store(true, std::memory_order_release);
    control->abort(error);
    data->abort(error);
  }
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  std::optional<Error> error() {
    if (broken()) {
      const std::lock_guard lock(error_mutex_);
      return error_;
    }
    if (auto error = control->error()) return error;
    return data->error();
  }
  // Aborts the data engine after a peer's failure, because its kernels on the device would wait forever. A
  // waiting thread would do this as well, but possibly no thread waits.
  void end_what_is_lost() noexcept {
    try {
      if (const auto lost = control->error()) fail_with(*lost);
    } catch (const std::bad_alloc&) {
    }
  }
  void throw_if_broken() {
    if (!broken()) return;
    const std::lock_guard lock(error_mutex_);
    throw *error_;
  }

  const std::shared_ptr<Engine> data, control;
  const std::shared_ptr<Rank> owner;
  const EngineOptions options;
  const bool runs_in_order, moves_when_polled;  // what the data engine says
  CallLog log;

 private:
  CallCounter& counter(Channel channel) { return counters_[static_cast<size_t>(channel)]; }

  void open(Channel channel, std::span<const Collective> span) {
    bool& opened = opened_[static_cast<size_t>(channel)];
    if (opened || std::all_of(span.begin(), span.end(), is_pair)) return;
    const Collective barrier;
    if (const WorkPtr come = control->run_now(channel, {&barrier, 1}, owner->host_stream()))
      come->wait_input(Deadline::never());
    data->open(channel);
    opened = true;
  }

  // Refuses a send or receive on a channel that is not open yet. The first call of a channel opens it, for
  // which all ranks would have to make the call.
  void check_opened(Channel channel, std::span<const Collective> span) {
    if (opened_[static_cast<size_t>(channel)] || control->size() == 2 || !data->facts().opens_for_pairs)
      return;
    if (std::all_of(span.begin(), span.end(), is_pair))
      fail(Code::invalid_state, options.label, ".", name(span[0].op), ": engine \"", data->name(),
           "\" has no communicator of the ", control->size(),
           " ranks yet; let all ranks call a collective, like all_reduce, before the first send");
  }

  uint64_t log_begin(Channel channel, std::span<const Collective> span) {
    const int rank = control->rank(), size = control->size();
    uint64_t number = 0;
    for (const Collective& c : span.first(1))
      number = log.begin(channel, c, std::max(in_count(c, rank, size), out_count(c, rank, size)), 0);
    return number;
  }

  bool outstanding() {
    const std::lock_guard lock(mutex_);
    return !calls_.empty();
  }

  void add(const std::shared_ptr<Call>& call) {
    bool list = false;
    {
      const std::lock_guard lock(mutex_);
      calls_.push_back(call);
      list = !std::exchange(listed_, true);
    }
    if (list) owner->works()->add(shared_from_this());
  }

  // `before` are the earlier calls that have not ended.
  void step(Call& call, std::span<const std::shared_ptr<Call>> before) {
    if (!call.checked && call.notes_work->poll()) {
      if (const auto error = call.notes_work->error()) throw *error;
      call.notes.check(options);
      call.checked = true;
    }
    if (!call.checked) return;
    if (call.state == Call::announced) {
      if (std::any_of(before.begin(), before.end(),
                      [&](const auto& other) { return holds_back(*other, call); }))
        return;
      launch(call);
    }
    if (call.state == Call::launched && call.data->poll()) {
      if (const auto error = call.data->error()) throw *error;
      if (!call.is_all_started()) {
        if (call.data->poll_input()) launch(call);
        return;
      }
      log.end(call.number, "done");
      call.state = Call::output;
    }
    if (call.state == Call::output && call.data->poll_input() && call.notes_work->poll_input())
      call.state = Call::over;
  }

  void launch(Call& call) {
    const std::span<const Collective> records = call.records;
    const size_t first = call.started, end = call.end_of_run(first);
    call.data = data->run(call.channel, records.subspan(first, end - first), call.stream);
    call.started = end;
    call.state = Call::launched;
  }

  bool holds_back(const Call& earlier, const Call& later) const {
    if (earlier.channel != later.channel) return false;
    if (earlier.state == Call::announced || !earlier.is_all_started())
      return earlier.notes.precedes(later.notes);
    return earlier.state != Call::over && later.depends_on(earlier);
  }

  // Returns the earliest call, up to this one, whose notes are awaited: this one may have to run after it.
  std::shared_ptr<Call> awaited(const Call& call) {
    const std::lock_guard lock(mutex_);
    for (const auto& other : calls_)
      if (!other->checked && (other.get() == &call || holds_back(*other, call))) return other;
    return nullptr;
  }

  // Returns the earliest call with which the data engine is busy and that holds this one back.
  std::shared_ptr<Call> in_the_way(const Call& call) {
    const std::lock_guard lock(mutex_);
    for (const auto& other : calls_) {
      if (other.get() == &call) break;
      if (other->state != Call::announced && holds_back(*other, call)) return other;
    }
    return nullptr;
  }

  // Blocks in the control engine, which handles deadlines, interrupts and lost ranks.
  void wait_announced(Call& call, Deadline deadline) {
    while (!call.checked || call.state == Call::announced) {
      advance();
      throw_if_broken();
      const std::shared_ptr<Call> first = awaited(call);
      if (first == nullptr) {
        if (const auto other = in_the_way(call)) wait_data(*other, Call::over, deadline);
      } else {
        try {
          first->notes_work->wait(deadline);
        } catch (const Error& error) {
          if (error.code() != Code::not_ready && error.code() != Code::caller) fail_with(error);
          throw;
        }
      }
      if (!call.checked || call.state == Call::announced)
        sched_yield();  // another thread may be driving the call
    }
  }

  // All ranks have announced the call, so the data engine is polled until it is done.
  void wait_data(Call& call, Call::State want, Deadline deadline) {
    for (int i = 0; i < kSpins && call.state < want && !broken(); ++i) advance();
    if (call.state >= want) return;
    throw_if_broken();
    struct Waited {
      Works& works;
      Backoff backoff{};
      ~Waited() { works.add_wait(backoff.since_start_ns()); }
    } waited{*owner->works()};
    const Deadline own = Deadline::after_ms(options.timeout_ms);
    const int64_t bytes = moves_when_polled ? call.bytes(control->rank(), control->size()) : 0;
    const int polls = bytes >= kLong ? kSpins : 1;
    const int64_t awake_ns = bytes >= kLong ? bytes * kNsPerByte : 0;
    while (call.state < want) {
      owner->works()->progress();
      for (int i = 0; i < polls && call.state < want && !broken(); ++i) advance();
      throw_if_broken();
      if (call.state >= want) return;
      if (waited.backoff.yields()) continue;
      if (const auto error = control->error()) {
        fail_with(*error);
        throw *error;
      }
      if (own.passed()) {
        fail_with(
            Error(Code::timeout, text(options.label, ".", call.what(), ": all ranks called it, but engine \"",
                                      data->name(), "\" did not finish in ", options.timeout_ms, " ms")));
        continue;
      }
      if (deadline.passed()) fail(Code::not_ready, options.label, ".", call.what(), " is not done yet");
      poll_interrupt();
      if (waited.backoff.since_start_ns() < awake_ns)
        sched_yield();
      else
        waited.backoff.sleep();
    }
  }

  std::array<CallCounter, kChannels> counters_;  // each under the order of its channel
  std::array<bool, kChannels> opened_{};         // the same
  CallCounter unused_;                           // for launches that were announced already
  std::atomic<bool> busy_ = false, broken_ = false;
  std::mutex mutex_;  // guards the list
  std::vector<std::shared_ptr<Call>> calls_;
  bool listed_ = false;
  std::mutex error_mutex_;
  std::optional<Error> error_;
};

bool Call::poll() {
  planes_->advance();
  return state >= output || planes_->broken();
}
bool Call::poll_input() {
  planes_->advance();
  return state == over || planes_->broken();
}
void Call::wait(Deadline deadline) { planes_->wait(*this, output, deadline); }
void Call::wait_input(Deadline deadline) { planes_->wait(*this, over, deadline); }
void Call::order(Stream& to) {
  planes_->wait(*this, launched, Deadline::never());
  if (state == launched && to.native() != nullptr) return data->order(to);
  wait(Deadline::never());
}
void Call::order_input(Stream& to) {
  order(to);
  if (state < over && to.native() != nullptr) return data->order_input(to);
  wait_input(Deadline::never());
}
std::optional<Error> Call::error() const {
  return state < output && planes_->broken() ? planes_->error() : std::nullopt;
}

class DualEngine final : public Engine {
 public:
  explicit DualEngine(std::shared_ptr<Planes> planes)
      : planes_(std::move(planes)), announces_(!planes_->data->facts().detects_failures) {}

  ~DualEngine() override { planes_->leave(); }

  const char* name() const override { return planes_->data->name(); }
  int rank() const override { return planes_->control->rank(); }
  int size() const override { return planes_->control->size(); }
  EngineFacts facts() const override {
    EngineFacts facts = planes_->data->facts();
    facts.detects_failures = true;
    return facts;
  }
  void* native_handle() const override { return planes_->data->native_handle(); }
  SharedMemory* shared_memory() override { return planes_->data->shared_memory(); }
  std::shared_ptr<Allocator> registrable() override { return planes_->data->registrable(); }
  void register_memory(Channel channel, std::span<const std::shared_ptr<Buffer>> buffers,
                       size_t sums) override {
    planes_->register_memory(channel, buffers, sums);
  }
  void release_memory() override {
    planes_->set_up([&] { planes_->data->release_memory(); });
  }
  bool is_registered(const void* data) const override { return planes_->data->is_registered(data); }
  Engine& control() override { return *planes_->control; }

  WorkPtr run(Channel channel, std::span<const Collective> span, Stream& stream) override {
    return announces_ ? planes_->run(channel, span, stream) : planes_->data->run(channel, span, stream);
  }
  WorkPtr run_now(Channel channel, std::span<const Collective> span, Stream& stream) override {
    return announces_ ? planes_->run_now(channel, span, stream)
                      : planes_->data->run_now(channel, span, stream);
  }

  std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string& label) override {
    auto control = planes_->control->create(ranks, label);
    return over(planes_->data->create(ranks, label), std::move(control), ranks, label);
  }
  std::shared_ptr<Engine> shrink(std::vector<int>& survivors) override {
    if (const auto error = planes_->error()) planes_->fail_with(*error);  // before the survivors meet
    const auto control = planes_->control->shrink(survivors);
    auto data = planes_->data->shrink_over(control, survivors);
    return over(std::move(data), control, survivors, planes_->options.label);
  }
  void abort(const Error& error) noexcept override { planes_->fail_with(error); }
  std::optional<Error> error() const override { return planes_->error(); }
  void shutdown(Deadline deadline) override { planes_->shutdown(deadline); }
  Traffic traffic() const override { return planes_->data->traffic(); }
  std::vector<FlightEntry> flight_record() const override {
    return announces_ ? planes_->log.flight_record() : planes_->data->flight_record();
  }

 private:
  std::shared_ptr<Engine> over(std::shared_ptr<Engine> data, std::shared_ptr<Engine> control,
                               std::span<const int> ranks, const std::string& label) const {
    if (control == nullptr) return nullptr;
    const EngineOptions options = child_options(planes_->options, ranks, control->rank(), label);
    return make_dual_engine(std::move(data), std::move(control), planes_->owner, options);
  }

  const std::shared_ptr<Planes> planes_;
  const bool announces_;
};

}  // namespace dual

std::shared_ptr<Engine> make_dual_engine(std::shared_ptr<Engine> data, std::shared_ptr<Engine> control,
                                         std::shared_ptr<Rank> owner, const EngineOptions& options) {
  return std::make_shared<dual::DualEngine>(
      std::make_shared<dual::Planes>(std::move(data), std::move(control), std::move(owner), options));
}

}  // namespace gangway
