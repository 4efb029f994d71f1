#include "gang/nccl/nccl_engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/interrupt.h"
#include "device/cuda/cuda_device.h"
#include "gang/backoff.h"
#include "gang/nccl/aborts.h"
#include "gang/nccl/control_gather.h"
#include "gang/nccl/event_work.h"
#include "gang/nccl/greeting.h"
#include "gang/nccl/one_rank_engine.h"
#include "gang/nccl/records.h"
#include "gang/nccl/registrations.h"
#include "gang/nccl/settings.h"
#include "gang/nccl/sums.h"

namespace gangway::nccl {
namespace {

// One channel: a communicator, and the high-priority stream on which its collectives run in the order of the
// program.
struct Lane {
  ncclComm_t comm = nullptr;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> ready;
  Deadline until = Deadline::never();  // by which the last launch must end
  // Registered memory for the temporaries of a launch, or null. The stream orders its uses.
  std::shared_ptr<Buffer> sums;
};

class NcclEngine final : public Engine, private cuda::Watch {
 public:
  NcclEngine(std::shared_ptr<Rank> owner, std::shared_ptr<Engine> control, EngineOptions options, Add add,
             const Settings& settings)
      : owner_(std::move(owner)),
        control_(std::move(control)),
        options_(std::move(options)),
        add_(add),
        settings_(settings),
        memory_(settings.memory),
        registrations_(memory_),
        dummy_(Buffer::allocate(owner_->device().allocator(), 1)) {
    api();
    cuda::watches(owner_->device()).add(*this);
  }

  // Waits a while for collectives in flight, and for the peers to release their engines, too. Then it aborts,
  // so that lost peers cannot block this rank's end. A process may exit next, so an abort gets time to end.
  ~NcclEngine() override {
    cuda::watches(owner_->device()).remove(*this);
    const cuda::OnDevice on(owner_->device().index(), std::nothrow);
    const auto given_up = std::chrono::steady_clock::now() + kPatience;
    while (!idle() && std::chrono::steady_clock::now() < given_up) std::this_thread::sleep_for(kNap);
    if (idle() && !failure_->get()) try_to_finalize(given_up);
    const bool rest = abort_comms();
    if (failure_->get() || rest) wait_for_aborts();
    if (memory_ != nullptr) memory_->reclaim(/*wait=*/false);
  }

  const char* name() const override { return "nccl"; }
  int rank() const override { return control_->rank(); }
  int size() const override { return control_->size(); }
  EngineFacts facts() const override {
    EngineFacts facts;
    facts.folds_in_rank_order = false;
    facts.moves_host_memory = false;
    facts.moves_device_memory = true;
    facts.takes_counts = false;
    facts.detects_failures = false;
    facts.opens_for_pairs = true;
    return facts;
  }
  void* native_handle() const override {
    const std::lock_guard lock(mutex_);
    failure_->throw_if();  // after an abort there is no communicator
    void* const comm = lane_of(Channel::user).comm;
    if (comm == nullptr)
      fail(Code::invalid_state,
           "engine \"nccl\" makes its communicator with the gang's first collective, and there was none");
    return comm;
  }

  void open(Channel channel) override {
    if (is_open(channel)) return;
    const cuda::OnDevice on(owner_->device().index());
    Lane lane;
    lane.stream = owner_->device().make_stream(StreamPriority::high);
    lane.ready = owner_->device().make_event();
    make_comm([&](ncclComm_t comm) {
      lane.comm = comm;
      lane_of(channel) = std::move(lane);
    });
  }

  WorkPtr run(Channel channel, std::span<const Collective> span, Stream& stream) override {
    if (const auto first = error()) throw *first;
    if (!is_open(channel)) open(channel);  // in a gang of two, both ranks are in this call
    // Allocates before it takes the mutex: a wait for memory may abort the communicators, which takes the
    // mutex.
    const std::shared_ptr<Sums> sums =
        temporaries(span, rank(), size(), lane_of(channel).sums, owner_->device());
    const std::lock_guard lock(mutex_);
    failure_->throw_if();  // after an abort in between there is no communicator
    Lane& lane = lane_of(channel);
    const cuda::OnDevice on(owner_->device().index());
    lane.ready->record(stream);
    lane.stream->wait(*lane.ready);
    auto sum = sums->all.begin();
    check(api().group_start(), "ncclGroupStart");
    try {
      for (const Collective& c : span) launch_one(lane, c, sum);
    } catch (...) {
      api().group_end();
      throw;
    }
    check(api().group_end(), "ncclGroupEnd");
    settle(lane.comm, "a launch", [] {});  // no interrupts: their hook must not run under the mutex
    lane.until = Deadline::after_ms(options_.timeout_ms);
    for (const Sums::One& sum : sums->all) add_(sum.dtype, sum.from, sum.to, sum.count, *lane.stream);
    auto work = std::make_shared<EventWork>(owner_->device(), failure_, sums);
    work->record(*lane.stream);
    return work;
  }

  std::shared_ptr<Allocator> registrable() override {
    return memory_ == nullptr ? nullptr : memory_->allocator();
  }
  void register_memory(Channel channel, std::span<const std::shared_ptr<Buffer>> buffers,
                       size_t sums) override {
    if (memory_ == nullptr) return;
    open(channel);
    register_together(channel, buffers);
    std::shared_ptr<Buffer>& own = lane_of(channel).sums;
    if (sums <= (own == nullptr ? 0 : own->bytes())) return;
    own = Buffer::allocate(memory_->allocator(), sums);
    register_together(channel, {&own, 1});
  }
  void release_memory() override {
    if (memory_ == nullptr) return;
    std::vector<uint8_t> freed;
    {
      const std::lock_guard lock(mutex_);
      for (size_t i = 0; i < registrations_.count(); ++i) freed.push_back(registrations_.is_freed(i) ? 1 : 0);
    }
    const std::vector<bool> on_all = on_all_ranks(*control_, owner_->host_stream(), freed);
    if (std::find(on_all.begin(), on_all.end(), true) != on_all.end()) {
      for (const Lane& lane : lanes_)
        if (lane.stream) lane.stream->synchronize();
      const std::lock_guard lock(mutex_);
      failure_->throw_if();
      const cuda::OnDevice on(owner_->device().index());
      registrations_.end(on_all);
    }
    memory_->reclaim(/*wait=*/true);
  }
  bool is_registered(const void* data) const override {
    return memory_ != nullptr && memory_->is_registered(data);
  }

  std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string& label) override {
    return over(control_->create(ranks, label));
  }

  void abort(const Error& error) noexcept override {
    failure_->keep(error);
    abort_comms();
  }
  std::optional<Error> error() const override { return failure_->get(); }
  // All ranks are in this call, so that they finalize together. ncclCommDestroy of a communicator that was
  // not finalized waits for the peers on this host, which may end much later. A communicator that finalizes
  // is in no lane, so that abort() cannot free it meanwhile; settle() notices the abort.
  void shutdown(Deadline deadline) override {
    for (const Lane& lane : lanes_)
      if (lane.stream) lane.stream->synchronize();
    const cuda::OnDevice on(owner_->device().index());
    for (Lane& lane : lanes_) {
      const ncclComm_t comm = take_comm(lane);
      if (comm == nullptr) continue;
      try {
        end_registrations(comm);
        check(api().finalize(comm), "ncclCommFinalize");
        settle(comm, "the end", deadline, poll_interrupt);
      } catch (...) {
        abort_soon({comm});
        throw;
      }
      check(api().destroy(comm), "ncclCommDestroy");
    }
  }
  std::shared_ptr<Engine> shrink(std::vector<int>&) override {
    fail(Code::internal, "engine \"nccl\" shrinks with its control engine alone");
  }
  std::shared_ptr<Engine> shrink_over(const std::shared_ptr<Engine>& control, std::vector<int>&) override {
    return over(control);
  }
  Traffic traffic() const override { return {calls_, bytes_, 0}; }
  std::vector<FlightEntry> flight_record() const override { return {}; }

 private:
  // Ranks agree on the ids of communicators over `control`, which is null for a rank that is not in the gang.
  std::shared_ptr<Engine> over(std::shared_ptr<Engine> control) const {
    if (control == nullptr) return nullptr;
    if (control->size() == 1) return make_one_rank_engine(owner_, add_);
    return std::make_shared<NcclEngine>(owner_, std::move(control), options_, add_, settings_);
  }

  // For cuda::Watch: a kernel waits forever for a lost peer, and the host waits for the kernel. A kernel can
  // also be stuck while all peers live, as when a link fails. NCCL may report this as the communicator's
  // error; otherwise only the deadline shows it.
  std::optional<Error> lost() override {
    if (failure_->get()) return std::nullopt;
    if (auto first = control_->error()) return first;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return std::nullopt;  // a thread is launching, and has a deadline of its own
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < kLook) return stuck_;
    looked_ = now;
    stuck_.reset();  // a late collective may have ended since
    for (const Lane& lane : lanes_)
      if (!stuck_ && lane.comm != nullptr) stuck_ = error_of(lane);
    return stuck_;
  }
  void give_up(const Error& error) noexcept override { abort(error); }

  // Returns why the lane's kernels may never end, if they have not ended.
  std::optional<Error> error_of(const Lane& lane) const {
    if (cudaStreamQuery(cuda::native(*lane.stream)) != cudaErrorNotReady) return std::nullopt;
    ncclResult_t state = ncclSuccess;
    if (api().get_async_error(lane.comm, &state) != ncclSuccess) state = ncclInternalError;
    if (state != ncclSuccess && state != ncclInProgress)
      return Error(Code::gang, text(options_.label, ": NCCL: ", api().get_error_string(state), " (rank ",
                                    rank(), " of ", size(), ")"));
    if (!lane.until.passed()) return std::nullopt;
    return Error(Code::timeout,
                 text(options_.label, ": a collective of NCCL did not end within ", options_.timeout_ms,
                      " ms on rank ", rank(), " of ", size(), ", and no rank is lost"));
  }

  ncclComm_t take_comm(Lane& lane) noexcept {
    const std::lock_guard lock(mutex_);
    return std::exchange(lane.comm, nullptr);
  }
  // Takes the communicators out of the lanes, so that nothing uses them any more, and aborts them. Returns
  // whether there was one. Memory counts as registered until the abort is under way, which then keeps it
  // (RegisteredMemory).
  bool abort_comms() noexcept {
    std::vector<ncclComm_t> comms;
    const std::lock_guard lock(mutex_);
    for (Lane& lane : lanes_)
      if (lane.comm != nullptr) comms.push_back(std::exchange(lane.comm, nullptr));
    abort_soon(comms);
    for (const ncclComm_t comm : comms) registrations_.forget(comm);
    return !comms.empty();
  }

  // Finalizes and destroys the communicators whose peers do so before `until`. The others stay in their
  // lanes.
  void try_to_finalize(std::chrono::steady_clock::time_point until) noexcept {
    for (const Lane& lane : lanes_) {
      if (lane.comm == nullptr) continue;
      end_registrations(lane.comm);
      const ncclResult_t begun = api().finalize(lane.comm);
      if (begun != ncclSuccess && begun != ncclInProgress) return;
    }
    for (Lane& lane : lanes_) {
      if (lane.comm == nullptr) continue;
      ncclResult_t state = ncclInProgress;
      while (api().get_async_error(lane.comm, &state) == ncclSuccess && state == ncclInProgress &&
             std::chrono::steady_clock::now() < until && !control_->error())
        std::this_thread::sleep_for(kNap);
      if (state == ncclSuccess) api().destroy(std::exchange(lane.comm, nullptr));
    }
  }

  static constexpr std::chrono::seconds kPatience{5};
  static constexpr std::chrono::microseconds kNap{50};
  static constexpr std::chrono::milliseconds kLook{5};  // between two looks at the lanes

  Lane& lane_of(Channel channel) { return lanes_[static_cast<size_t>(channel)]; }
  const Lane& lane_of(Channel channel) const { return lanes_[static_cast<size_t>(channel)]; }
  bool is_open(Channel channel) const {
    const std::lock_guard lock(mutex_);
    return lane_of(channel).comm != nullptr;
  }

  // Returns the id of a new communicator, which rank 0 makes. Ranks that NCCL cannot connect are refused.
  ncclUniqueId agreed_id() {
    ncclUniqueId id{};
    if (rank() == 0) check(api().get_unique_id(&id), "ncclGetUniqueId");
    Greeting mine;
    static_assert(sizeof mine.id == sizeof id.internal);
    std::memcpy(mine.id, id.internal, sizeof mine.id);
    mine.identity = own_identity();
    mine.version = api().version;
    mine.cta_policy = settings_.cta_policy;
    mine.least_registered = memory_ == nullptr ? 0 : memory_->least();
    const std::vector<Greeting> all = exchange(*control_, mine, owner_->host_stream());
    check(all, options_.label);
    uneven_ = uneven_hosts(all);
    hosts_ = count_hosts(all);
    std::memcpy(id.internal, all[0].id, sizeof id.internal);
    return id;
  }

  // Makes a communicator of all ranks, and passes it to take() under the mutex.
  template <typename Take>
  void make_comm(Take take) {
    const ncclUniqueId id = agreed_id();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // lets a lost peer or a deadline end every call
    set_cta_policy(config, settings_.cta_policy);
    ncclComm_t comm = nullptr;
    try {
      check(api().init_rank(&comm, size(), id, rank(), &config), "ncclCommInitRankConfig");
      settle(comm, "the communicator", poll_interrupt);
      const std::lock_guard lock(mutex_);
      failure_->throw_if();  // abort() does not know this communicator yet
      take(comm);
    } catch (...) {
      if (comm != nullptr) abort_soon({comm});
      throw;
    }
  }

  // Waits until the communicator is ready for the next call, and calls each() meanwhile. `what` names the
  // call in errors. A launch is ready within microseconds, so that the thread sleeps only after a millisecond.
  template <typename Each>
  void settle(ncclComm_t comm, const char* what, Each each) {
    settle(comm, what, Deadline::after_ms(options_.timeout_ms), each);
  }
  template <typename Each>
  void settle(ncclComm_t comm, const char* what, Deadline deadline, Each each) {
    const auto start = std::chrono::steady_clock::now();
    Backoff backoff{};
    for (ncclResult_t state = ncclInProgress;;) {
      check(api().get_async_error(comm, &state), "ncclCommGetAsyncError");
      if (state != ncclInProgress) return check(state, what);
      if (const auto first = error()) throw *first;
      if (const auto first = control_->error()) throw *first;
      if (deadline.passed()) fail_late(what, start);
      each();
      if (!backoff.yields()) backoff.sleep();
    }
  }
  [[noreturn]] void fail_late(const char* what, std::chrono::steady_clock::time_point start) const {
    using Ms = std::chrono::milliseconds;
    const auto waited = std::chrono::duration_cast<Ms>(std::chrono::steady_clock::now() - start);
    fail(Code::timeout, options_.label, ": NCCL ", version_text(api().version), " did not finish ", what,
         " of ", size(), " ranks within ", waited.count(), " ms",
         uneven_.empty() ? "" : "; some versions hang where hosts have different numbers of ranks, ",
         uneven_.empty() ? "" : text("here ", uneven_));
  }

  // Registers buffers in the best way that succeeds on all ranks. Small ones have plain memory, on all ranks
  // alike.
  void register_together(Channel channel, std::span<const std::shared_ptr<Buffer>> buffers) {
    Registrations::Batch batch;
    for (const auto& buffer : buffers)
      if (memory_->bytes_of(buffer->data()) != 0) batch.data.push_back(buffer->data());
    if (batch.data.empty()) return;
    const cuda::OnDevice on(owner_->device().index());
    // An abort would end the collectives in flight. Besides, a failed communicator with work looks stuck.
    lane_of(channel).stream->synchronize();
    for (const Registered how : {Registered::windows, Registered::buffers}) {
      if (how == Registered::windows && !may_make_windows(channel, batch)) continue;
      const Verdict verdict = register_on_all_ranks(channel, batch, how);
      if (verdict.failed >= 0) tell_failure(how, verdict, size());
      if (verdict.failed >= 0 && how == Registered::windows) {
        replace_comm(channel, batch);
        continue;
      }
      const std::lock_guard lock(mutex_);
      failure_->throw_if();
      if (verdict.is_made) {
        registrations_.keep(batch);
        return tell(how);
      }
      registrations_.undo(batch);
    }
    tell(Registered::none);
  }
  bool may_make_windows(Channel channel, Registrations::Batch& batch) {
    if (windows_fail_ || Registrations::windows_are_plain(hosts_)) return false;
    if (!Registrations::window_space_shrinks()) return true;
    const uint8_t lasts = [&] {
      const std::lock_guard lock(mutex_);
      batch.comm = lane_of(channel).comm;
      return registrations_.window_space_lasts(batch) ? uint8_t{1} : uint8_t{0};
    }();
    return on_all_ranks(*control_, owner_->host_stream(), {&lasts, 1}).front();
  }

  // NCCL waits without an end for a rank whose registration has failed. So the ranks tell one another how far
  // they are, until one has failed or none is pending. A lost peer breaks the gang as anywhere else.
  Verdict register_on_all_ranks(Channel channel, Registrations::Batch& batch, Registered how) {
    constexpr const char* kWhat = "a registration (GANGWAY_NCCL_REGISTER=0 makes none)";
    constexpr std::chrono::milliseconds kFirst{1}, kLongest{100};
    const auto start = std::chrono::steady_clock::now();
    const Deadline deadline = Deadline::after_ms(options_.timeout_ms);
    try {
      Vote vote = locked([&] {
        batch.comm = lane_of(channel).comm;
        return registrations_.begin(batch, how);
      });
      for (auto pause = kFirst;; pause = std::min(2 * pause, kLongest)) {
        if (vote == kPending) vote = locked([&] { return Registrations::look(batch, pause); });
        const Verdict verdict = verdict_of(gather(*control_, owner_->host_stream(), {&vote, 1}));
        if (verdict.is_over) return verdict;
        if (deadline.passed()) fail_late(kWhat, start);
      }
    } catch (...) {
      Registrations::leave(batch);
      throw;
    }
  }
  template <typename Step>
  Vote locked(Step step) {
    const std::lock_guard lock(mutex_);
    failure_->throw_if();  // after an abort there is no communicator
    return step();
  }
  // NCCL allows no use of a communicator after an error but its abort. Its registrations end with it.
  void replace_comm(Channel channel, Registrations::Batch& batch) {
    windows_fail_ = true;
    Registrations::leave(batch);
    {
      const std::lock_guard lock(mutex_);
      failure_->throw_if();
      const ncclComm_t comm = std::exchange(lane_of(channel).comm, nullptr);
      abort_soon({comm});
      registrations_.forget(comm);
    }
    make_comm([&](ncclComm_t comm) { lane_of(channel).comm = comm; });
  }

  void end_registrations(ncclComm_t comm) noexcept {
    const std::lock_guard lock(mutex_);
    registrations_.end(comm);
  }

  // `sum` points to the temporary of the next record that accumulates.
  void launch_one(Lane& lane, const Collective& c, std::vector<Sums::One>::iterator& sum) {
    const Place place = {lane.comm, cuda::native(*lane.stream), rank(), size()};
    const size_t out = out_count(c, rank(), size());
    ++calls_;
    bytes_ += out * item_bytes(c.dtype);
    if (!adds(c) || out == 0) return launch(place, c, dummy_->data());
    Collective aside = c;
    aside.accumulate = false;
    aside.out = sum++->from;
    launch(place, aside, dummy_->data());
  }

  bool idle() const {
    for (const Lane& lane : lanes_)
      if (lane.stream && cudaStreamQuery(cuda::native(*lane.stream)) == cudaErrorNotReady) return false;
    return true;
  }

  const std::shared_ptr<Rank> owner_;
  const std::shared_ptr<Engine> control_;
  const EngineOptions options_;
  const Add add_;
  const Settings settings_;
  const std::shared_ptr<RegisteredMemory> memory_;  // null: nothing is registered
  Registrations registrations_;                     // guarded by mutex_
  const std::shared_ptr<Buffer> dummy_;
  const std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
  std::atomic<uint64_t> calls_ = 0, bytes_ = 0;
  mutable std::mutex mutex_;
  std::array<Lane, kChannels> lanes_;
  std::chrono::steady_clock::time_point looked_ = {};
  std::optional<Error> stuck_;  // what the last look at the lanes found
  std::string uneven_;          // the numbers of ranks on each host, if they differ
  int hosts_ = 1;               // known from the first communicator on
  bool windows_fail_ = false;   // on every rank: one of them failed to make windows
};

}  // namespace

std::vector<std::shared_ptr<Engine>> make_data_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                       std::span<const std::shared_ptr<Engine>> control,
                                                       const EngineOptions& options, Add add) {
  std::vector<std::shared_ptr<Engine>> engines;
  for (size_t i = 0; i < ranks.size(); ++i)
    engines.push_back(control[i]->size() == 1 ? make_one_rank_engine(ranks[i], add)
                                              : std::make_shared<NcclEngine>(ranks[i], control[i], options,
                                                                             add, settings_for(*ranks[i])));
  return engines;
}

}  // namespace gangway::nccl
