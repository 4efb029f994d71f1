#include "gang/planes/lowering.h"

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <type_traits>

#include "gang/planes/lowered_work.h"

namespace gangway {
namespace {

bool is_narrow(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

// The features of one record that the engine does not have.
struct Needs {
  bool counts = false, mean = false, wide = false, add = false;
  bool any() const { return counts || mean || wide || add; }
};

Needs needs_of(const Collective& c, const EngineFacts& facts) {
  Needs needs;
  needs.counts = c.counts != nullptr && !facts.takes_counts;
  needs.mean = c.reduce == Reduce::mean && !facts.takes_mean;
  // A mean is rounded once, so a sum that is divided here must not have been rounded before.
  needs.wide =
      gangway::facts(c.op).reduces && is_narrow(c.dtype) && (needs.mean || !facts.takes_narrow_reductions);
  // A result that is in a temporary must be added to the output here as well.
  needs.add = c.accumulate && (!facts.takes_accumulate || needs.counts || needs.mean || needs.wide);
  return needs;
}

const char* at(const void* base, size_t bytes) { return static_cast<const char*>(base) + bytes; }
char* at(void* base, size_t bytes) { return static_cast<char*>(base) + bytes; }

// One call while it is lowered: its temporaries, its native records, and the work that is left when those
// have ended.
class Plan {
 public:
  Plan(Engine& engine, const EngineFacts& facts, Device& device, Stream& stream)
      : engine_(engine), facts_(facts), device_(device), stream_(stream) {}

  void add(const Collective& c) {
    const Needs needs = needs_of(c, facts_);
    if (!needs.any()) return native_.push_back(c);
    if (c.op == CollectiveOp::all_to_all) return exchange(c);
    reshaped(c, needs);
  }

  const std::vector<Collective>& native() const { return native_; }
  Remainder take_remainder() { return std::move(rest_); }

 private:
  // A run of elements in the caller's memory, and its place in a temporary.
  struct Piece {
    size_t callers, temporary, count;
  };

  // Runs the record with temporaries in place of buffers that the native record cannot use directly.
  void reshaped(const Collective& c, const Needs& needs) {
    const int rank = engine_.rank(), size = engine_.size();
    Collective n = c;
    n.accumulate = c.accumulate && !needs.add;
    if (needs.mean) n.reduce = Reduce::sum;
    if (needs.wide) n.dtype = DType::f32;
    if (needs.counts) {
      n.count = *std::max_element(c.counts, c.counts + size);
      n.counts = nullptr;
    }
    const size_t in = in_count(n, rank, size), out = out_count(n, rank, size);
    if (in != 0 && (needs.counts || needs.wide)) n.in = staged(c, n, in, pieces(c, n, in));
    const bool through = needs.counts || needs.wide || needs.add;  // a mean alone is divided in place
    if (out != 0 && through) n.out = temporary(out * item_bytes(n.dtype));
    native_.push_back(n);
    if (!through && !needs.mean) return;
    for (const Piece& p : pieces(c, n, out))
      rest_.finishes.push_back({at(n.out, p.temporary * item_bytes(n.dtype)), n.dtype,
                                at(c.out, p.callers * item_bytes(c.dtype)), c.dtype, p.count,
                                needs.mean ? size : 1, needs.add});
  }

  // Returns the runs of a native record's input or output of `elements` elements: one for each padded part,
  // or a single one.
  std::vector<Piece> pieces(const Collective& c, const Collective& n, size_t elements) const {
    if (elements == 0) return {};
    if (c.counts == nullptr || n.counts != nullptr) return {{0, 0, elements}};
    if (elements == n.count) return {{0, 0, c.counts[engine_.rank()]}};  // this rank's own part
    std::vector<Piece> all;
    size_t before = 0;
    for (size_t k = 0; k < static_cast<size_t>(engine_.size()); ++k) {
      all.push_back({before, k * n.count, c.counts[k]});
      before += c.counts[k];
    }
    return all;
  }

  const void* staged(const Collective& c, const Collective& n, size_t elements,
                     const std::vector<Piece>& pieces) {
    const size_t item = item_bytes(n.dtype);
    char* const staging = temporary(elements * item);
    if (gangway::facts(c.op).reduces && pieces.size() > 1)
      device_.zero(staging, elements * item, stream_);  // the padding is reduced as well
    for (const Piece& p : pieces)
      finish({at(c.in, p.callers * item_bytes(c.dtype)), c.dtype, at(staging, p.temporary * item), n.dtype,
              p.count, 1, false},
             device_, stream_);
    return staging;
  }

  // Only the two ranks of a pair know how much they exchange, so nothing can be padded.
  void exchange(const Collective& c) {
    const int rank = engine_.rank(), size = engine_.size();
    const size_t item = item_bytes(c.dtype);
    size_t sent = 0, got = 0;
    for (int r = 0; r < size; ++r) {
      const size_t out = c.counts[r], in = c.counts[size + r];
      Collective half;
      half.dtype = c.dtype;
      half.peer = r;
      half.async_input = c.async_input;
      if (r == rank) {
        if (out != 0) device_.copy(at(c.out, got * item), at(c.in, sent * item), out * item, stream_);
      } else {
        half.op = CollectiveOp::recv;
        half.out = at(c.out, got * item);
        half.count = in;
        if (in != 0) native_.push_back(half);
        half.op = CollectiveOp::send;
        half.in = at(c.in, sent * item);
        half.out = nullptr;
        half.count = out;
        if (out != 0) native_.push_back(half);
      }
      sent += out;
      got += in;
    }
  }

  char* temporary(size_t bytes) {
    rest_.temporaries.push_back(Buffer::allocate(device_.allocator(), bytes));
    return static_cast<char*>(rest_.temporaries.back()->data());
  }

  Engine& engine_;
  const EngineFacts& facts_;
  Device& device_;
  Stream& stream_;
  std::vector<Collective> native_;
  Remainder rest_;
};

// The calls of one channel that may not have ended, and what they touch. The engine below keeps the order
// of its own collectives, but neither that of the copies that a lowered call begins with, nor that of the
// arithmetic with which it ends.
class InFlight {
 public:
  // Returns what the records touch. The list is valid until the next call, so that a call needs no memory for it.
  std::span<const Touched> touched_by(std::span<const Collective> records, int rank, int size) {
    memory_.clear();
    for (const Collective& c : records) memory_.push_back(touched(c, rank, size));
    return memory_;
  }
  // Orders `stream` after the earlier calls that the records depend on. A native record needs that only after
  // lowered calls.
  void order(std::span<const Touched> memory, bool is_native, Stream& stream) const {
    for (const Entry& entry : entries_) {
      if (is_native && entry.native != nullptr) continue;
      const bool waits = std::any_of(memory.begin(), memory.end(),
                                     [&](const Touched& own) { return is_order_seen(entry.memory, own); });
      const WorkPtr work = waits ? entry.work() : nullptr;
      if (work != nullptr) work->order_input(stream);
    }
  }
  // Notes a call that begins, and drops those that have ended: a channel's calls end in order, and a work
  // may hold memory of the device.
  void add(std::span<const Touched> memory, const WorkPtr& work, bool is_native) {
    while (!entries_.empty()) {
      const WorkPtr first = entries_.front().work();
      if (first != nullptr && !first->poll_input()) break;
      entries_.pop_front();
    }
    for (const Touched& one : memory) entries_.push_back({one, is_native ? work : nullptr, work});
  }

 private:
  struct Entry {
    Touched memory;
    WorkPtr native;
    std::weak_ptr<Work> begun;
    WorkPtr work() const { return begun.lock(); }
  };
  std::deque<Entry> entries_;
  std::vector<Touched> memory_;
};

class LoweredEngine final : public Engine {
 public:
  LoweredEngine(std::shared_ptr<Engine> engine, std::shared_ptr<Rank> owner)
      : engine_(std::move(engine)), owner_(std::move(owner)), below_(engine_->facts()) {}

  const char* name() const override { return engine_->name(); }
  int rank() const override { return engine_->rank(); }
  int size() const override { return engine_->size(); }
  EngineFacts facts() const override {
    EngineFacts facts = below_;
    facts.takes_counts = facts.takes_accumulate = facts.takes_mean = facts.takes_batches =
        facts.takes_narrow_reductions = true;
    return facts;
  }
  void* native_handle() const override { return engine_->native_handle(); }
  SharedMemory* shared_memory() override { return engine_->shared_memory(); }
  std::shared_ptr<Allocator> registrable() override { return engine_->registrable(); }
  void register_memory(Channel channel, std::span<const std::shared_ptr<Buffer>> buffers,
                       size_t sums) override {
    engine_->register_memory(channel, buffers, sums);
  }
  void release_memory() override { engine_->release_memory(); }
  bool is_registered(const void* data) const override { return engine_->is_registered(data); }

  void open(Channel channel) override { engine_->open(channel); }
  WorkPtr run(Channel channel, std::span<const Collective> span, Stream& stream) override {
    const bool native = is_native(span);
    if (!below_.runs_in_order)  // the dual engine starts calls that depend on each other one after another
      return native ? engine_->run(channel, span, stream) : run_lowered(channel, span, stream);
    InFlight& before = in_flight_[static_cast<size_t>(channel)];
    const std::span<const Touched> memory = before.touched_by(span, rank(), size());
    before.order(memory, native, stream);
    WorkPtr work = native ? engine_->run(channel, span, stream) : run_lowered(channel, span, stream);
    before.add(memory, work, native);
    return work;
  }
  WorkPtr run_now(Channel channel, std::span<const Collective> span, Stream& stream) override {
    return is_native(span) && !below_.runs_in_order ? engine_->run_now(channel, span, stream)
                                                    : run(channel, span, stream);
  }

  std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string& label) override {
    return wrap(engine_->create(ranks, label));
  }
  void abort(const Error& error) noexcept override { engine_->abort(error); }
  std::optional<Error> error() const override { return engine_->error(); }
  void shutdown(Deadline deadline) override { engine_->shutdown(deadline); }
  std::shared_ptr<Engine> shrink(std::vector<int>& survivors) override {
    return wrap(engine_->shrink(survivors));
  }
  std::shared_ptr<Engine> shrink_over(const std::shared_ptr<Engine>& control,
                                      std::vector<int>& survivors) override {
    return wrap(engine_->shrink_over(control, survivors));
  }
  Traffic traffic() const override { return engine_->traffic(); }
  std::vector<FlightEntry> flight_record() const override { return engine_->flight_record(); }

 private:
  WorkPtr run_lowered(Channel channel, std::span<const Collective> span, Stream& stream) {
    try {
      Plan plan(*engine_, below_, owner_->device(), stream);
      for (const Collective& c : span) plan.add(c);
      std::vector<WorkPtr> works;
      const std::span<const Collective> native = plan.native();
      if (below_.takes_batches) {
        if (!native.empty()) works.push_back(engine_->run(channel, native, stream));
      } else {
        for (const Collective& c : native) works.push_back(engine_->run(channel, {&c, 1}, stream));
      }
      return make_lowered_work(owner_, std::move(works), plan.take_remainder(), side());
    } catch (const std::bad_alloc&) {  // breaks the engine, because peers may wait for this rank's part
      engine_->abort(Error(Code::out_of_memory, "no memory"));
      throw;
    } catch (const Error& error) {
      engine_->abort(error);
      throw;
    }
  }
  bool is_native(std::span<const Collective> span) const {
    if (span.size() > 1 && !below_.takes_batches) return false;
    return std::none_of(span.begin(), span.end(),
                        [&](const Collective& c) { return needs_of(c, below_).any(); });
  }
  // One side stream for all calls, made with the first of them.
  std::shared_ptr<Stream> side() {
    const std::lock_guard lock(mutex_);
    if (side_ == nullptr) side_ = owner_->device().make_stream(StreamPriority::high);
    return side_;
  }
  std::shared_ptr<Engine> wrap(std::shared_ptr<Engine> made) const {
    return made == nullptr ? nullptr : std::make_shared<LoweredEngine>(std::move(made), owner_);
  }

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Rank> owner_;
  const EngineFacts below_;
  std::array<InFlight, kChannels> in_flight_;
  std::mutex mutex_;  // guards side_: calls of two channels may come at once
  std::shared_ptr<Stream> side_;
};

}  // namespace

std::shared_ptr<Engine> lowered(std::shared_ptr<Engine> engine, std::shared_ptr<Rank> owner) {
  const EngineFacts facts = engine->facts();
  const bool reduces_all = facts.takes_mean && facts.takes_accumulate && facts.takes_narrow_reductions;
  if (reduces_all && facts.takes_counts && facts.takes_batches) return engine;
  if (!reduces_all && !is_on_host(owner->device().memory_kind()))
    fail(Code::not_supported, "engine \"", engine->name(),
         "\" does not average, accumulate and reduce 16-bit floats "
         "by itself, and the host does not reach the memory of device ",
         owner->device().name(), " to do it");
  return std::make_shared<LoweredEngine>(std::move(engine), std::move(owner));
}

}  // namespace gangway
