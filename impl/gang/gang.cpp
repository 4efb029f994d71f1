#include "gang/gang.h"

#include <xxhash.h>

#include <cstring>
#include <numeric>

#include "base/facts.h"
#include "base/fork.h"
#include "gang/traced.h"

namespace gangway {
namespace {

// What one rank contributes to an agreement.
struct Vote {
  int32_t code = 0;
  int32_t unused = 0;
  uint64_t arguments = 0;  // a hash of the arguments, which must be equal on all ranks
};
static_assert(sizeof(Vote) == 16);

Collective gather_of_bytes(const void* in, void* out, size_t count) {
  Collective c;
  c.op = CollectiveOp::all_gather;
  c.in = in;
  c.out = out;
  c.count = count;
  c.dtype = DType::u8;
  return c;
}

// An Error as bytes: its numbers, then its four texts, each after its length.
std::string pack(const Error& error) {
  const int32_t numbers[4] = {static_cast<int32_t>(error.code()), error.rank, error.peer, error.system_error};
  std::string bytes(reinterpret_cast<const char*>(numbers), sizeof numbers);
  for (const std::string* words : {&error.gang, &error.op, &error.path, &error.message()}) {
    const uint32_t length = static_cast<uint32_t>(words->size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += *words;
  }
  return bytes;
}

Error unpack(const std::string& bytes) {
  int32_t numbers[4];
  std::memcpy(numbers, bytes.data(), sizeof numbers);
  size_t at = sizeof numbers;
  std::string words[4];
  for (std::string& w : words) {
    uint32_t length;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    w = bytes.substr(at + sizeof length, length);
    at += sizeof length + length;
  }
  Error error(static_cast<Code>(numbers[0]), std::move(words[3]));
  error.gang = std::move(words[0]);
  error.op = std::move(words[1]);
  error.path = std::move(words[2]);
  error.rank = numbers[1];
  error.peer = numbers[2];
  error.system_error = numbers[3];
  return error;
}

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
    return traced(std::move(work), rank_->works(), trace_name(records), trace_detail(*this, channel, records),
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
    if (peer < 0 || peer >= size_)
      fail(Code::invalid_argument, "gang.probe: peer rank ", peer, " is outside [0, ", size_, ")");
    const std::lock_guard lock(channel_mutex_[static_cast<size_t>(channel)]);
    return engine_->probe(channel, peer);
  });
}

void Gang::tell(Channel channel, const Collective& record) {
  const std::span<const Collective> records(&record, 1);
  named(records, [&] {
    admit(Channel::control, records, nullptr);  // values of the host on any channel
    block_on(control_, channel, records, rank_->host_stream());
  });
}

WorkPtr Gang::tell_later(Channel channel, const Collective& record) {
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
                          trace_detail(*this, channel, records));
  } catch (Error& error) {
    if (error.code() == Code::caller) {
      place(error, records);
      abort(error);
    }
    throw;
  } catch (const std::bad_alloc&) {  // a rank without peers works on
    if (size_ > 1) abort(Error(Code::out_of_memory, "no memory"));
    throw;
  } catch (...) {  // the thread ends inside the interrupt hook, and with it the caller's memory
    abort(Error(Code::aborted, text("rank ", rank(), " ended its thread in the call")));
    throw;
  }
}

void Gang::admit(Channel channel, std::span<const Collective> records, const Stream* stream) const {
  if (shut_down_ || forked_child()) check_usable(call_name(records));
  try {
    check_records(channel, records, stream);
  } catch (const Error&) {
    check_usable(call_name(records));  // a broken gang reports its first error, whatever the arguments are
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
  if (const std::optional<Error> first = engine_->error()) throw *first;
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

void Gang::barrier(Channel channel) { tell(channel, Collective{}); }

void Gang::open(Channel channel) {
  if (engine_->facts().opens_for_pairs) run_now(channel, Collective{});
}

std::vector<std::string> Gang::all_gather_bytes(Channel channel, const std::string& mine) {
  const std::lock_guard lock(channel_mutex_[static_cast<size_t>(channel)]);
  const uint64_t own = mine.size();
  std::vector<uint64_t> sizes(static_cast<size_t>(size()));
  tell(channel, gather_of_bytes(&own, sizes.data(), sizeof own));
  std::string packed;
  const std::vector<size_t> counts = in_mid_call([&] {
    packed.resize(std::accumulate(sizes.begin(), sizes.end(), size_t{0}));
    return std::vector<size_t>(sizes.begin(), sizes.end());
  });
  if (!packed.empty()) {
    Collective bytes = gather_of_bytes(mine.data(), packed.data(), mine.size());
    bytes.counts = counts.data();
    tell(channel, bytes);
  }
  std::vector<std::string> all;
  size_t at = 0;
  for (const size_t count : counts) {
    all.push_back(packed.substr(at, count));
    at += count;
  }
  return all;
}

std::string Gang::broadcast_bytes(Channel channel, const std::string& value, int root) {
  const std::lock_guard lock(channel_mutex_[static_cast<size_t>(channel)]);
  uint64_t bytes = value.size();
  Collective c;
  c.op = CollectiveOp::broadcast;
  c.in = c.out = &bytes;
  c.count = 1;
  c.dtype = DType::u64;
  c.peer = root;
  tell(channel, c);
  std::string result = in_mid_call([&] { return rank() == root ? value : std::string(bytes, '\0'); });
  c.in = c.out = result.data();
  c.count = bytes;
  c.dtype = DType::u8;
  if (bytes != 0) tell(channel, c);
  return result;
}

double Gang::all_sum(Channel channel, double value) {
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.in = c.out = &value;
  c.count = 1;
  c.dtype = DType::f64;
  c.reduce = Reduce::sum;
  tell(channel, c);
  return value;
}

void Gang::agree(const std::optional<Error>& refusal, const std::string& arguments) {
  in_mid_call([&] { vote(refusal, arguments); });
}

// A rank may end with its refusal. Its peers would then report a lost rank instead of the text.
void Gang::throw_when_all_know(Error error) {
  try {
    barrier(Channel::control);
  } catch (const Error& broken) {  // the gang reports it in its next call
    if (broken.code() == Code::caller) throw;
  }
  throw std::move(error);
}

void Gang::vote(const std::optional<Error>& refusal, const std::string& arguments) {
  const std::lock_guard lock(channel_mutex_[static_cast<size_t>(Channel::control)]);
  Vote mine;
  if (refusal) mine.code = static_cast<int32_t>(refusal->code());
  mine.arguments = XXH3_64bits(arguments.data(), arguments.size());
  std::vector<Vote> votes(static_cast<size_t>(size()));
  run_now(Channel::control, gather_of_bytes(&mine, votes.data(), sizeof mine));

  for (int r = 0; r < size(); ++r) {
    if (votes[static_cast<size_t>(r)].code == 0) continue;
    std::string bytes;
    if (refusal) {  // of several refusals the one of the lowest rank counts
      Error own = *refusal;
      place(own, "", -1);
      bytes = pack(own);
    }
    if (!has_peers()) throw unpack(bytes);  // every rank refused as this one did
    throw_when_all_know(unpack(broadcast_bytes(Channel::control, bytes, r)));
  }
  for (int r = 1; r < size(); ++r) {
    if (votes[static_cast<size_t>(r)].arguments == votes[0].arguments) continue;
    const std::vector<std::string> all = all_gather_bytes(Channel::control, arguments);
    Error error(Code::mismatch, difference(name_, all[0], all[static_cast<size_t>(r)], r));
    place(error, "agree", r);
    throw_when_all_know(std::move(error));
  }
}

std::shared_ptr<Allocator> Gang::allocator() const {
  SharedMemory* const shared = shared_memory();
  return shared != nullptr ? shared->allocator() : device().allocator();
}

SharedRegion Gang::allocate_shared(size_t bytes) {
  return collective("allocate_shared", [&] {
    agree_on(
        [&] {
          if (shared_memory() == nullptr)
            fail(Code::not_supported, "gang.allocate_shared: the ", size(), " ranks of gang \"", name_,
                 "\" share no memory (engine \"", engine_name(), "\")");
        },
        text("a shared region of ", bytes, " bytes"));
    const std::lock_guard lock(channel_mutex_[static_cast<size_t>(Channel::control)]);
    return shared_memory()->allocate(bytes);
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

void Gang::abort(const std::string& reason) {
  check_fork();
  Error error(Code::aborted, reason);  // the engine adds which rank aborted
  place(error, "abort", -1);
  abort(error);
}

void Gang::abort(const Error& error) noexcept {
  if (!forked_child()) engine_->abort(error);
}

std::optional<Error> Gang::error() const { return engine_->error(); }

}  // namespace gangway
