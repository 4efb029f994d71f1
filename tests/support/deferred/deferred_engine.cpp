// The data engine of gangs on the deferred device. Each channel of a gang has its own stream on each rank,
// like a communicator on an accelerator: a collective starts when that stream reaches it, and blocks the
// stream until all ranks have arrived. The engine of threads moves the bytes there. Each channel has one,
// which its first use opens.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "gang/registry.h"
#include "support/deferred/deferred.h"

namespace gangway::deferred {
namespace {

// What the ranks of one gang share.
class Group {
 public:
  Group(int size, EngineOptions options) : size_(size), options_(std::move(options)) {
    options_.arena_bytes = 1 << 28;
  }
  int size() const { return size_; }

  // Returns the engine that moves the bytes of one rank's channel.
  std::shared_ptr<Engine> open(Channel channel, int rank) {
    const std::lock_guard lock(mutex_);
    auto& engines = channels_[static_cast<size_t>(channel)];
    if (engines.empty()) {
      std::vector<std::shared_ptr<Rank>> ranks;
      for (int r = 0; r < size_; ++r)
        ranks.push_back(std::make_shared<Rank>(cpu::make_cpu_device({.threads = 1})));
      engines = make_thread_engines(ranks, options_);
    }
    std::shared_ptr<Engine> own = std::move(engines[static_cast<size_t>(rank)]);
    if (error_) own->abort(*error_);
    return own;
  }

  // Also aborts channels that this rank has not opened, since peers may wait for it there.
  void abort(int rank, const Error& error) noexcept {
    const std::lock_guard lock(mutex_);
    if (!error_) aborted_by_ = rank;
    keep_first(error_, error);
    for (const auto& engines : channels_)
      if (!engines.empty() && engines[static_cast<size_t>(rank)] != nullptr)
        engines[static_cast<size_t>(rank)]->abort(error);
  }

  // Returns why a rank has aborted, in the form that its peers get.
  std::optional<Error> error() {
    const std::lock_guard lock(mutex_);
    if (!error_) return std::nullopt;
    return Error(Code::aborted, text("aborted by rank ", aborted_by_, ": ", error_->message()));
  }

  // Returns the group of the gang that this gang's collective call number `call` made.
  std::shared_ptr<Group> child(uint64_t call, std::span<const int> ranks) {
    const std::lock_guard lock(mutex_);
    auto& group = children_[{call, std::vector<int>(ranks.begin(), ranks.end())}];
    if (group == nullptr) group = std::make_shared<Group>(static_cast<int>(ranks.size()), options_);
    return group;
  }

 private:
  const int size_;
  EngineOptions options_;
  std::mutex mutex_;
  std::array<std::vector<std::shared_ptr<Engine>>, kChannels> channels_;
  std::map<std::pair<uint64_t, std::vector<int>>, std::shared_ptr<Group>> children_;
  std::optional<Error> error_;  // the first abort
  int aborted_by_ = -1;
};

// The first failure of a rank's collectives. Queued tasks hold it, since they may outlive the engine.
struct Failure {
  std::mutex mutex;
  std::optional<Error> error;
  void keep(const Error& first) noexcept {
    const std::lock_guard lock(mutex);
    keep_first(error, first);
  }
  std::optional<Error> get() {
    const std::lock_guard lock(mutex);
    return error;
  }
};

class DeferredWork final : public Work {
 public:
  DeferredWork(Rank& owner, std::shared_ptr<Failure> failure)
      : output(owner.device().make_event()),
        input(owner.device().make_event()),
        failure_(std::move(failure)),
        works_(owner.works()),
        device_(owner.device()) {}
  bool poll() override { return output->done(); }
  bool poll_input() override { return input->done(); }
  void wait(Deadline deadline) override { wait_for(*output, deadline); }
  void wait_input(Deadline deadline) override { wait_for(*input, deadline); }
  void order(Stream& stream) override { order_after(stream, *output); }
  void order_input(Stream& stream) override { order_after(stream, *input); }
  std::optional<Error> error() const override { return failure_->get(); }

  const std::unique_ptr<Event> output, input;

 private:
  void wait_for(Event& event, Deadline deadline) {
    count_synchronization(device_);
    while (!event.done()) {
      if (deadline.passed()) fail(Code::not_ready, "the collective is not done yet");
      works_->progress();  // every wait advances the rank's other work too
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (const auto first = failure_->get()) throw *first;
  }
  void order_after(Stream& stream, Event& event) {
    if (const auto first = failure_->get()) throw *first;
    if (&stream.device() == &device_)
      stream.wait(event);
    else
      wait_for(event, Deadline::never());
  }

  const std::shared_ptr<Failure> failure_;
  const std::shared_ptr<Works> works_;
  Device& device_;
};

class DeferredEngine final : public Engine {
 public:
  DeferredEngine(std::shared_ptr<Rank> owner, std::shared_ptr<Group> group, int rank)
      : owner_(std::move(owner)), group_(std::move(group)), rank_(rank) {}

  // Gives up after a while, so that peers that never come cannot keep this rank from ending.
  ~DeferredEngine() override {
    constexpr auto kPatience = std::chrono::seconds(5);
    const auto given_up = std::chrono::steady_clock::now() + kPatience;
    while (!idle() && std::chrono::steady_clock::now() < given_up)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (!idle()) abort(Error(Code::aborted, "the gang ended before its collectives"));
  }

  const char* name() const override { return "deferred"; }
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  // The facts of the engines of threads, except that ranks share no memory.
  EngineFacts facts() const override {
    EngineFacts facts;
    facts.has_peers = size() > 1;
    facts.moves_device_memory = true;
    facts.takes_counts = false;  // like NCCL
    return facts;
  }

  WorkPtr run(Channel channel, std::span<const Collective> span, Stream& stream) override {
    if (const auto first = error()) throw *first;
    started_ += span.size();
    Lane& lane = lane_of(channel);
    auto work = std::make_shared<DeferredWork>(*owner_, failure_);
    lane.ready->record(stream);
    lane.stream->wait(*lane.ready);
    auto records = std::make_shared<std::vector<Collective>>(span.begin(), span.end());
    for (Collective& c : *records) {
      c.in = host_address(c.in);
      c.out = host_address(c.out);
    }
    auto moving = std::make_shared<WorkPtr>();
    enqueue_guarded(lane, [records, moving, engine = lane.engine](Worker& worker) {
      *moving = engine->run(Channel::user, *records, worker.cpu.stream());
      (*moving)->wait(Deadline::never());
    });
    work->output->record(*lane.stream);
    enqueue_guarded(lane, [records, moving](Worker&) {
      if (*moving) (*moving)->wait_input(Deadline::never());
    });
    work->input->record(*lane.stream);
    return work;
  }

  std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string&) override {
    return member_of(group_->child(calls_++, ranks), ranks);
  }

  void abort(const Error& error) noexcept override {
    failure_->keep(error);
    {
      const std::lock_guard lock(mutex_);
      for (const auto& lane : lanes_)
        if (lane) lane->engine->abort(error);
    }
    group_->abort(rank(), error);
  }
  std::optional<Error> error() const override {
    const auto own = failure_->get();
    return own ? own : group_->error();
  }
  void shutdown(Deadline) override {
    for (const auto& lane : lanes_)
      if (lane) lane->stream->synchronize();
  }
  std::shared_ptr<Engine> shrink(std::vector<int>& survivors) override {
    return member_of(group_->child(uint64_t{1} << 63, survivors), survivors);
  }
  Traffic traffic() const override {
    Traffic sum;
    sum.calls = started_;
    for (const auto& lane : lanes_) {
      if (!lane) continue;
      const Traffic more = lane->engine->traffic();
      sum.bytes_moved += more.bytes_moved;
      sum.bytes_staged += more.bytes_staged;
    }
    return sum;
  }
  std::vector<FlightEntry> flight_record() const override { return {}; }

 private:
  struct Lane {
    std::shared_ptr<Engine> engine;
    std::unique_ptr<Event> ready;
    std::unique_ptr<Stream> stream;  // destroyed first, with all its tasks
  };

  Lane& lane_of(Channel channel) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Lane>& lane = lanes_[static_cast<size_t>(channel)];
    if (lane == nullptr)
      lane = std::make_unique<Lane>(Lane{group_->open(channel, rank()), owner_->device().make_event(),
                                         owner_->device().make_stream(StreamPriority::high)});
    return *lane;
  }

  // A failure breaks the gang, but the stream continues, as a device's stream does.
  template <typename Task>
  void enqueue_guarded(Lane& lane, Task task) {
    enqueue(*lane.stream, [task = std::move(task), failure = failure_](Worker& worker) {
      try {
        task(worker);
      } catch (const Error& error) {
        failure->keep(error);
      }
    });
  }

  bool idle() const {
    const std::lock_guard lock(mutex_);
    for (const auto& lane : lanes_)
      if (lane && !is_idle(*lane->stream)) return false;
    return true;
  }

  // Returns null for a rank that is not in the list.
  std::shared_ptr<Engine> member_of(std::shared_ptr<Group> group, std::span<const int> ranks) const {
    const auto own = std::find(ranks.begin(), ranks.end(), rank_);
    if (own == ranks.end()) return nullptr;
    return std::make_shared<DeferredEngine>(owner_, std::move(group), static_cast<int>(own - ranks.begin()));
  }

  const std::shared_ptr<Rank> owner_;
  const std::shared_ptr<Group> group_;
  const int rank_;
  const std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
  std::atomic<uint64_t> calls_ = 0;    // calls that made gangs
  std::atomic<uint64_t> started_ = 0;  // records of collectives
  mutable std::mutex mutex_;
  std::array<std::unique_ptr<Lane>, kChannels> lanes_;
};

std::vector<std::shared_ptr<Engine>> make_data_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                       std::span<const std::shared_ptr<Engine>> control,
                                                       const EngineOptions& options) {
  const auto group = std::make_shared<Group>(static_cast<int>(ranks.size()), options);
  std::vector<std::shared_ptr<Engine>> data;
  for (size_t r = 0; r < ranks.size(); ++r)
    data.push_back(std::make_shared<DeferredEngine>(ranks[r], group, control[r]->rank()));
  return data;
}

[[maybe_unused]] const bool registered = [] {
  register_data_engines(DeviceKind::extension, make_data_engines);
  return true;
}();

}  // namespace
}  // namespace gangway::deferred
