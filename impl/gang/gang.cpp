#include "gang/gang.h"

#include "base/fork.h"
#include "gang/traced.h"

namespace gangway {
namespace {

const char* call_name(std::span<const Collective> records) {
  return records.size() == 1 ? name(records[0].op) : "run";
}

int call_peer(std::span<const Collective> records) {
  return records.size() == 1 && (facts(records[0].op).has_root || facts(records[0].op).is_pair)
             ? records[0].peer
             : -1;
}

}  // namespace

WorkPtr Gang::run(Channel channel, std::span<const Collective> records, Stream* stream) {
  return named(records, [&] {
    admit(channel, records, stream);
    if (records.empty()) return finished_work();
    if (channel == Channel::control) return start(control_, channel, records, rank_->host_stream());
    return start(*engine_, channel, records, stream != nullptr ? *stream : device().stream());
  });
}

WorkPtr Gang::start(Engine& engine, Channel channel, std::span<const Collective> records, Stream& stream) {
  const bool trace = rank_->tracer().on();
  const int64_t start_ns = trace ? Tracer::now_ns() : 0;
  const std::lock_guard lock(channel_mutex_[static_cast<size_t>(channel)]);
  WorkPtr work = engine.run(channel, records, stream);
  if (trace) [[unlikely]]
    return traced(std::move(work), rank_->works(), trace_name(records), trace_detail(name_, channel, records),
                  start_ns);
  return work;
}

void Gang::run_now(Channel channel, std::span<const Collective> records, Stream* stream) {
  named(records, [&] {
    admit(channel, records, stream);
    if (records.empty()) return;
    if (channel == Channel::control) return block_on(control_, channel, records, rank_->host_stream());
    block_on(*engine_, channel, records, stream != nullptr ? *stream : device().stream());
  });
}

std::optional<Message> Gang::probe(Channel channel, int peer) {
  return named("probe", [&] {
    if (shut_down_ || forked_child()) check_usable("probe");
    abort_request_.wait();
    if (peer < 0 || peer >= size_)
      fail(Code::invalid_argument, "gang.probe: peer rank ", peer, " is outside [0, ", size_, ")");
    const std::lock_guard lock(channel_mutex_[static_cast<size_t>(channel)]);
    return engine_->probe(channel, peer);
  });
}

void Gang::run_host(Channel channel, const Collective& record) {
  const std::span<const Collective> records(&record, 1);
  named(records, [&] {
    admit(Channel::control, records, nullptr);  // whatever the channel is, the values are in host memory
    block_on(control_, channel, records, rank_->host_stream());
  });
}

WorkPtr Gang::start_host(Channel channel, const Collective& record) {
  const std::span<const Collective> records(&record, 1);
  return named(records, [&] {
    admit(Channel::control, records, nullptr);
    return start(control_, channel, records, rank_->host_stream());
  });
}

void Gang::block_on(Engine& engine, Channel channel, std::span<const Collective> records, Stream& stream) {
  const bool trace = rank_->tracer().on();
  const int64_t start_ns = trace ? Tracer::now_ns() : 0;
  try {
    std::unique_lock order(channel_mutex_[static_cast<size_t>(channel)]);
    const WorkPtr rest = engine.run_now(channel, records, stream);
    order.unlock();  // other calls on the channel need not wait for the end of this one
    if (rest != nullptr) rest->wait_input(Deadline::never());
    if (trace) [[unlikely]]
      rank_->tracer().add(TraceRow::collective, "collective", trace_name(records), start_ns, Tracer::now_ns(),
                          trace_detail(name_, channel, records));
  } catch (Error& error) {
    if (error.code() == Code::caller) {
      place(error, records);
      abort(error);
    }
    throw;
  } catch (const std::bad_alloc&) {  // breaks the gang, unless the rank has no peers that wait for it
    if (size_ > 1) abort(Error(Code::out_of_memory, "no memory"));
    throw;
  } catch (...) {  // the thread ends inside the interrupt hook, and with it the caller's memory
    abort(Error(Code::aborted, text("rank ", rank(), " ended its thread in the call")));
    throw;
  }
}

void Gang::admit(Channel channel, std::span<const Collective> records, const Stream* stream) const {
  if (shut_down_ || forked_child()) check_usable(call_name(records));
  abort_request_.wait();
  try {
    check_records(channel, records, stream);
  } catch (const Error&) {
    check_usable(
        call_name(records));  // a broken gang throws its first error, even if the arguments are wrong
    throw;
  }
}

void Gang::check_records(Channel channel, std::span<const Collective> records, const Stream* stream) const {
  for (const Collective& record : records) check(channel, record);
  if (stream == nullptr) return;
  const Device& other = const_cast<Stream*>(stream)->device();
  if (other.kind() != device().kind() || other.index() != device().index())
    fail(Code::invalid_argument, "gang.", call_name(records), ": the stream is of device ", other.name(),
         ", but the gang of ", device().name());
}

void Gang::check_usable(const char* call) const {
  check_fork();
  if (shut_down_) fail(Code::invalid_state, "gang.", call, ": gang \"", name_, "\" was shut down");
  abort_request_.wait();  // a program that ends because of this error must not end before its peers are told
  if (const std::optional<Error> first = error()) throw *first;
}

void Gang::place(Error& error, const char* op, int peer) const {
  if (error.gang.empty()) {
    error.gang = name_;
    if (error.rank < 0) error.rank = rank();
    if (error.peer < 0) error.peer = peer;
  }
  if (error.op.empty()) error.op = op;
}

void Gang::place(Error& error, std::span<const Collective> records) const {
  place(error, call_name(records), call_peer(records));
}

void Gang::barrier(Channel channel) { run_host(channel, Collective{}); }

void Gang::open(Channel channel) {
  if (engine_->facts().opens_for_pairs) run_now(channel, Collective{});
}

std::shared_ptr<Allocator> Gang::allocator() const {
  SharedMemory* const shared = shared_memory();
  return shared != nullptr ? shared->allocator() : device().allocator();
}

// The ranks agree over the control channel, too, so no other call may come between.
void Gang::register_memory(Channel channel, std::span<const std::shared_ptr<Buffer>> buffers, size_t sums) {
  collective("register_memory", [&] {
    const std::lock_guard lock(channel_mutex_[static_cast<size_t>(channel)]);
    const std::lock_guard control(channel_mutex_[static_cast<size_t>(Channel::control)]);
    engine_->register_memory(channel, buffers, sums);
  });
}

void Gang::release_memory() {
  collective("release_memory", [&] {
    const std::lock_guard control(channel_mutex_[static_cast<size_t>(Channel::control)]);
    engine_->release_memory();
  });
}

void Gang::shutdown(int64_t timeout_ms) {
  named("shutdown", [&] {
    check_usable("shutdown");
    engine_->shutdown(Deadline::after_ms(timeout_ms));
    shut_down_ = true;
    rank_->tracer().flush();
  });
}

void Gang::abort(const char* reason) {
  check_fork();
  request_abort(reason);
  abort_request_.wait_a_while();
}

void Gang::request_abort(const char* reason) noexcept {
  const auto act = [](void* object, const char* why) noexcept {
    const auto gang = static_cast<Gang*>(object);
    try {
      Error error(Code::aborted, why);  // the engine adds which rank aborted
      gang->place(error, "abort", -1);
      gang->abort(error);
    } catch (const std::bad_alloc&) {
      gang->abort(Error(Code::aborted, "no memory"));
    }
  };
  if (!forked_child()) abort_request_.make(*abort_thread_, weak_from_this().lock(), act, reason);
}

void Gang::abort(const Error& error) noexcept {
  if (!forked_child()) engine_->abort(error);
}

std::optional<Error> Gang::error() const {
  if (const char* const reason = forked_child() ? nullptr : abort_request_.pending())
    return Error(Code::aborted, text(name_, ": aborted by rank ", rank(), ": ", reason));
  return engine_->error();
}

}  // namespace gangway
