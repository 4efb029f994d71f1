#include "gang/local/fake.h"

#include <algorithm>
#include <mutex>

#include "gang/local/local_data.h"
#include "gang/local/local_engine.h"

namespace gangway {
namespace {

struct Records {
  std::mutex mutex;
  std::vector<RecordedCollective> all;
};

// A work that is done from the start. It records how its caller waits for it.
class RecordedWork : public Work {
 public:
  RecordedWork(std::shared_ptr<Records> records, size_t first, size_t last)
      : records_(std::move(records)), first_(first), last_(last) {}

  bool poll() override { return true; }
  bool poll_input() override { return true; }
  void wait(Deadline) override { note(&RecordedCollective::host_waited); }
  void wait_input(Deadline) override { note(&RecordedCollective::host_waited); }
  void order(Stream&) override { note(&RecordedCollective::ordered); }
  void order_input(Stream&) override { note(&RecordedCollective::input_ordered); }
  std::optional<Error> error() const override { return std::nullopt; }

 private:
  void note(bool RecordedCollective::*what) {
    const std::lock_guard lock(records_->mutex);
    for (size_t i = first_; i < last_; ++i) records_->all[i].*what = true;
  }

  std::shared_ptr<Records> records_;
  size_t first_, last_;
};

// Copies in host memory of the inputs and outputs that are in a device's memory. A record may read what an
// earlier one wrote, so its input is copied just before it runs. The input of a send is copied at the start,
// because its receive may be an earlier record.
class HostCopies {
 public:
  HostCopies(std::span<const Collective> span, int rank, int size, Stream& stream)
      : callers_(span),
        records_(span.begin(), span.end()),
        rank_(rank),
        size_(size),
        stream_(stream),
        on_device_(!is_on_host(stream.device().memory_kind()) &&
                   stream.device().memory_kind() != MemoryKind::meta) {
    for (size_t i = 0; on_device_ && i < records_.size(); ++i)
      if (records_[i].op == CollectiveOp::send) fetch(i);
  }
  std::span<const Collective> records() const { return records_; }

  void begin(size_t i) {
    if (on_device_ && records_[i].op != CollectiveOp::send) fetch(i);
  }
  // Copies the output back to the device.
  void end(size_t i) {
    const Collective& c = records_[i];
    if (!on_device_ || c.out == nullptr) return;
    stream_.device().copy(callers_[i].out, c.out, out_count(c, rank_, size_) * item_bytes(c.dtype), stream_);
    stream_.synchronize();
  }

 private:
  void fetch(size_t i) {
    Collective& c = records_[i];
    c.in = copy_of(c.in, in_count(c, rank_, size_) * item_bytes(c.dtype));
    c.out = copy_of(c.out, out_count(c, rank_, size_) * item_bytes(c.dtype));
    stream_.synchronize();
  }
  std::byte* copy_of(const void* from, size_t bytes) {
    if (from == nullptr) return nullptr;
    std::vector<std::byte>& here = bytes_.emplace_back(bytes);
    stream_.device().copy(here.data(), from, bytes, stream_);
    return here.data();
  }

  const std::span<const Collective> callers_;
  std::vector<Collective> records_;
  const int rank_, size_;
  Stream& stream_;
  const bool on_device_;
  std::vector<std::vector<std::byte>> bytes_;
};

class FakeEngine : public LocalEngine {
 public:
  FakeEngine(std::shared_ptr<Rank> rank, const EngineOptions& options, bool record)
      : LocalEngine(std::move(rank), options), records_(record ? std::make_shared<Records>() : nullptr) {}
  const char* name() const override { return "fake"; }

  WorkPtr run(Channel channel, std::span<const Collective> callers, Stream& stream) override {
    throw_if_broken();
    for (const Collective& c : callers) refuse_unknown_data(c);
    HostCopies copies(callers, rank(), size(), stream);
    const std::span<const Collective> span = copies.records();
    std::vector<RecordedCollective> launched;
    for (size_t i = 0; i < span.size(); ++i) {
      copies.begin(i);
      const Collective& c = span[i];
      const uint64_t bytes = received_bytes(c, rank(), size());
      count(channel, c, bytes);
      act_on_own_data(c, rank(), size());
      if (c.op == CollectiveOp::recv) receive(span, i);
      copies.end(i);
      launched.push_back({channel, c.op, c.dtype, c.reduce, c.count, bytes});
    }
    return records_ == nullptr ? finished_work() : keep(launched);
  }

  std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string& label) override {
    const auto place = std::find(ranks.begin(), ranks.end(), rank());
    if (place == ranks.end()) return nullptr;
    EngineOptions child = options_;
    child.rank = static_cast<int>(place - ranks.begin());
    child.size = static_cast<int>(ranks.size());
    child.label = label;
    return std::make_shared<FakeEngine>(rank_, child, records_ != nullptr);
  }
  std::shared_ptr<Engine> shrink(std::vector<int>& survivors) override {
    return create(survivors, options_.label);
  }

  // The simulated peers have the same data as this rank, so they count as having published already.
  void wait(const std::atomic<uint64_t>&, uint64_t, int, const char*) override { throw_if_broken(); }

  std::vector<RecordedCollective> records() const {
    if (records_ == nullptr) return {};
    const std::lock_guard lock(records_->mutex);
    return records_->all;
  }

 private:
  // Refuses a call whose result cannot be simulated: only a peer would have the data, or a peer would send
  // more than this rank has.
  void refuse_unknown_data(const Collective& c) const {
    const bool from_root = c.op == CollectiveOp::broadcast || c.op == CollectiveOp::scatter;
    if (from_root && c.peer != rank())
      fail(Code::invalid_argument, "gang.", gangway::name(c.op),
           ": the source of a fake gang must be its own rank ", rank(), ", but is ", c.peer);
    const bool gathers = c.op == CollectiveOp::all_gather || c.op == CollectiveOp::all_to_all ||
                         (c.op == CollectiveOp::gather && c.peer == rank());
    if (!gathers || c.counts == nullptr || c.out == nullptr) return;
    const size_t own = c.counts[rank()];
    const size_t* slots = c.op == CollectiveOp::all_to_all ? c.counts + size() : c.counts;
    for (int i = 0; i < size(); ++i)
      if (slots[i] > own)
        fail(Code::invalid_argument, "gang.", gangway::name(c.op), ": the peers of a fake gang hold ", own,
             " elements like rank ", rank(), ", but rank ", i, " is to give ", slots[i]);
  }

  // Every simulated rank makes the same calls, so the n-th receive gets the data of the n-th send, whichever
  // ranks the peers are. If there is no such send, the output stays as it is.
  static void receive(std::span<const Collective> span, size_t i) {
    size_t earlier = 0;
    for (size_t k = 0; k < i; ++k) earlier += span[k].op == CollectiveOp::recv ? 1 : 0;
    for (const Collective& send : span) {
      if (send.op != CollectiveOp::send || earlier-- != 0) continue;
      Collective copy = span[i];
      copy.op = CollectiveOp::broadcast;
      copy.in = send.in;
      if (send.count == copy.count && send.dtype == copy.dtype) act_on_own_data(copy, 0, 1);
      return;
    }
  }

  WorkPtr keep(const std::vector<RecordedCollective>& launched) {
    const std::lock_guard lock(records_->mutex);
    std::vector<RecordedCollective>& all = records_->all;
    all.insert(all.end(), launched.begin(), launched.end());
    return std::make_shared<RecordedWork>(records_, all.size() - launched.size(), all.size());
  }

  const std::shared_ptr<Records> records_;  // null: it does not record
};

}  // namespace

std::vector<RecordedCollective> recorded(const Engine& engine) {
  const auto* fake = dynamic_cast<const FakeEngine*>(&engine);
  return fake == nullptr ? std::vector<RecordedCollective>{} : fake->records();
}

std::shared_ptr<Engine> make_fake_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                         bool record) {
  return std::make_shared<FakeEngine>(rank, options, record);
}

}  // namespace gangway
