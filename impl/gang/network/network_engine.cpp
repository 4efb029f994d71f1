#include "gang/network/network_engine.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <tuple>

#include "base/interfaces.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/open_files.h"
#include "device/cuda_module.h"
#include "gang/backoff.h"
#include "gang/byte_gather.h"
#include "gang/call_log.h"
#include "gang/local/local_data.h"
#include "gang/network/host_memory.h"
#include "gang/network/mesh.h"
#include "gang/network/network.h"
#include "gang/network/plan.h"
#include "gang/rendezvous/resolve.h"

namespace gangway::network {
namespace {

constexpr int64_t kDrivingNapMs = 2;  // a waiting thread also drives the works of other engines
// A rank that does not know which rank is late waits so much longer than its deadline, so that a rank that
// knows can tell it.
constexpr int64_t kHearsayMs = 1000;

uint64_t hash_of(uint64_t parent, uint64_t number, std::span<const int> ranks) {
  uint64_t h = parent + 0x9e3779b97f4a7c15ull * (number + 1);
  const auto mix = [&](uint64_t word) { h = (h ^ word) * 0xff51afd7ed558ccdull, h ^= h >> 32; };
  mix(ranks.size());
  for (const int r : ranks) mix(static_cast<uint64_t>(r) + 1);
  return h;
}

// The number of records of one launch that have not ended. The network's thread counts them down.
struct Open {
  std::atomic<int> records = 0;
};

class State;

class Call final : public OneEndWork {
 public:
  explicit Call(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool poll() override;
  void wait(Deadline deadline) override;
  std::optional<Error> error() const override;

  const std::shared_ptr<Open> open = std::make_shared<Open>();
  std::vector<Key> keys;  // of its records

 private:
  const std::shared_ptr<State> state_;
};

// The state of an engine. It is a separate object because its calls may outlive the engine.
class State final : public Progressive, public std::enable_shared_from_this<State> {
 public:
  State(std::shared_ptr<Network> network, std::shared_ptr<Group> group, std::shared_ptr<Works> works)
      : network(std::move(network)), group(std::move(group)), works(std::move(works)) {
    this->network->add(this->group);
  }
  ~State() override { network->remove(*group); }

  const EngineOptions& options() const { return group->options; }

  std::shared_ptr<Call> run(Channel channel, std::span<const Collective> span) {
    auto call = std::make_shared<Call>(shared_from_this());
    if (const auto broken = network->error_of(*group)) throw *broken;
    call->open->records = static_cast<int>(span.size());
    try {
      for (const Collective& c : span) begin(channel, c, *call);
      compute();
      if (call->open->records != 0) list(call->open);
    } catch (const std::bad_alloc&) {  // breaks the gang, because peers may wait for this rank's part
      network->break_group(*group, Error(Code::out_of_memory, "no memory"));
      finish_arithmetic();
      throw;
    } catch (const Error&) {  // the gang is broken
      finish_arithmetic();
      throw;
    }
    return call;
  }

  // Runs the arithmetic that has become possible. A thread that finds another one at it returns.
  void compute() {
    const std::unique_lock lock(compute_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    while (const TransferPtr next = network->next_to_compute(*group)) {
      next->last();
      next->last = nullptr;
      network->computed(group, next);
    }
  }

  bool progress() override {
    compute();
    const std::lock_guard lock(listed_mutex_);
    std::erase_if(outstanding_, [](const std::weak_ptr<Open>& one) {
      const auto open = one.lock();
      return open == nullptr || open->records == 0;
    });
    is_listed_ = !outstanding_.empty() && !network->error_of(*group);
    return !is_listed_;
  }
  void leave() noexcept { works->remove(this); }  // the rank's list would keep this object alive

  // True when the call has ended, or has failed and nothing touches its memory any more.
  bool is_over(const Call& call) {
    compute();
    if (call.open->records == 0) return true;
    if (!network->error_of(*group)) return false;
    const std::unique_lock quiet(compute_mutex_, std::try_to_lock);
    return quiet.owns_lock();
  }

  void wait(const Call& call, Deadline deadline) {
    Backoff backoff;
    const Deadline own = Deadline::after_ms(options().timeout_ms);
    const Deadline last =
        Deadline::after_ms(options().timeout_ms + std::min(kHearsayMs, options().timeout_ms / 4));
    for (;;) {
      const uint64_t seen = network->version();
      compute();
      works->progress();
      if (call.open->records == 0) break;
      if (const auto broken = network->error_of(*group)) {
        finish_arithmetic();
        if (call.open->records == 0) break;
        throw *broken;
      }
      if (backoff.yields()) {
        network->drive(seen, 0);
        continue;
      }
      if (own.passed() && (last.passed() || !awaited(call).is_hearsay)) {
        network->break_group(*group, timeout_of(call));
        continue;
      }
      if (deadline.passed()) fail(Code::not_ready, options().label, ".", awaited(call).words, " yet");
      poll_interrupt();
      network->drive(seen, kDrivingNapMs);
    }
    works->add_wait(backoff.since_start_ns());
  }

  std::optional<Message> probe(Channel channel, int peer) {
    compute();
    works->progress();
    const std::lock_guard lock(sequence_mutex_);
    const Key key{channel, Lane::to_me, peer, sequences_[{channel, Lane::to_me, peer}]};
    const auto note = network->waiting_note(*group, key);
    if (!note) return std::nullopt;
    return Message{static_cast<size_t>(note->count), static_cast<DType>(note->dtype)};
  }

  const std::shared_ptr<Network> network;
  const std::shared_ptr<Group> group;
  const std::shared_ptr<Works> works;
  const std::shared_ptr<CallLog> log = std::make_shared<CallLog>();

 private:
  void begin(Channel channel, const Collective& c, Call& call) {
    const int rank = options().rank, size = options().size;
    Key key{channel,
            c.op == CollectiveOp::send   ? Lane::from_me
            : c.op == CollectiveOp::recv ? Lane::to_me
                                         : Lane::collective,
            is_pair(c) ? c.peer : -1};
    {
      const std::lock_guard lock(sequence_mutex_);
      key.sequence = sequences_[{channel, key.lane, key.peer}]++;
    }
    const uint64_t number =
        log->begin(channel, c, std::max(in_count(c, rank, size), out_count(c, rank, size)),
                   received_bytes(c, rank, size));
    const auto ended = [open = call.open, log = log, number] {
      log->end(number, "done");
      --open->records;
    };
    call.keys.push_back(key);
    const Touched memory = touched(c, rank, size);
    const auto plan = [key, memory, ended, &of = *group](const Collective& record) {
      const TransferPtr t = plan_transfer(record, of.options.rank, of.topology);
      t->key = key;
      t->memory = memory;
      t->note.sequence = key.sequence;
      t->note.channel = static_cast<uint8_t>(key.channel);
      t->note.lane = static_cast<uint8_t>(key.lane);
      t->ended = ended;
      return t;
    };
    if (!network->must_wait(*group, key, memory)) return network->begin(group, plan(c));
    std::vector<size_t> counts;
    if (c.counts != nullptr)
      counts.assign(c.counts, c.counts + (c.op == CollectiveOp::all_to_all ? 2 * size : size));
    network->hold(group, {key, memory, [plan, c, counts = std::move(counts)] {
                            Collective own = c;
                            if (c.counts != nullptr) own.counts = counts.data();
                            return plan(own);
                          }});
  }

  // Of a broken gang: on return no thread reads or writes the memory of its calls any more.
  void finish_arithmetic() { const std::lock_guard quiet(compute_mutex_); }

  // From now on the rank's waits drive the call.
  void list(const std::shared_ptr<Open>& open) {
    const std::lock_guard lock(listed_mutex_);
    outstanding_.push_back(open);
    if (!std::exchange(is_listed_, true)) works->add(shared_from_this());
  }

  Awaited awaited(const Call& call) {
    Awaited one{"run: it did not end"};
    for (const Key& key : call.keys) {
      one = network->awaited(*group, key);
      if (one.is_active) break;
    }
    return one;
  }

  Error timeout_of(const Call& call) {
    Error error(Code::timeout,
                text(options().label, ".", awaited(call).words, " in ", options().timeout_ms, " ms"));
    error.gang = options().label;
    error.rank = options().rank;
    return error;
  }

  std::mutex compute_mutex_, sequence_mutex_, listed_mutex_;
  std::map<std::tuple<Channel, Lane, int>, uint64_t> sequences_;
  std::vector<std::weak_ptr<Open>> outstanding_;
  bool is_listed_ = false;
};

bool Call::poll() { return state_->is_over(*this); }
void Call::wait(Deadline deadline) { state_->wait(*this, deadline); }
std::optional<Error> Call::error() const {
  return open->records == 0 ? std::nullopt : state_->network->error_of(*state_->group);
}

class NetworkEngine final : public Engine {
 public:
  NetworkEngine(std::shared_ptr<Rank> owner, std::shared_ptr<State> state, bool is_root)
      : owner_(std::move(owner)), state_(std::move(state)), is_root_(is_root) {}
  ~NetworkEngine() override { state_->leave(); }

  const char* name() const override { return "network"; }
  int rank() const override { return state_->options().rank; }
  int size() const override { return state_->options().size; }
  EngineFacts facts() const override { return {}; }
  WorkPtr run(Channel channel, std::span<const Collective> span, Stream&) override {
    return state_->run(channel, span);
  }
  std::optional<Message> probe(Channel channel, int peer) override { return state_->probe(channel, peer); }

  std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string& label) override {
    const uint64_t id = hash_of(state_->group->id, children_++, ranks);
    agree(id, ".create_gang");
    const auto own = std::find(ranks.begin(), ranks.end(), rank());
    if (own == ranks.end()) return nullptr;
    return engine_over(ranks, static_cast<int>(own - ranks.begin()), label, id);
  }

  void abort(const Error& error) noexcept override { state_->network->break_group(*state_->group, error); }
  std::optional<Error> error() const override { return state_->network->error_of(*state_->group); }
  void shutdown(Deadline deadline) override {
    const Collective barrier;
    state_->run(Channel::control, {&barrier, 1})->wait(deadline);
    if (is_root_) state_->network->end_in_order(deadline);
  }
  std::shared_ptr<Engine> shrink(std::vector<int>& survivors) override;
  Traffic traffic() const override { return state_->log->traffic(); }
  std::vector<FlightEntry> flight_record() const override { return state_->log->flight_record(); }

 private:
  // All ranks make the same gang next, or all fail.
  void agree(uint64_t id, const char* call) {
    std::vector<uint64_t> ids(static_cast<size_t>(size()));
    const Collective c = gather_of_bytes(&id, ids.data(), sizeof id);
    try {
      state_->run(Channel::control, {&c, 1})->wait(Deadline::never());
    } catch (const Error& error) {
      abort(error);
      throw;
    } catch (...) {  // no memory, or the thread ends inside the interrupt hook; the peers wait for this rank
      abort(Error(Code::aborted, "the thread ended in the call"));
      throw;
    }
    for (int r = 0; r < size(); ++r)
      if (ids[static_cast<size_t>(r)] != id)
        fail(Code::mismatch, state_->options().label, call, ": ", rank_text(state_->options(), rank()),
             " and ", rank_text(state_->options(), r), " name other members");
  }

  // Another rank may tell of a loss before this rank sees it, so that this waits for a while.
  bool sees_gone(int lost) const {
    const Deadline deadline = Deadline::after_ms(state_->options().timeout_ms);
    while (!state_->network->is_gone(*state_->group, lost)) {
      if (lost == rank() || deadline.passed()) return false;
      poll_interrupt();
      state_->network->drive(state_->network->version(), kDrivingNapMs);
    }
    return true;
  }

  std::shared_ptr<NetworkEngine> engine_over(std::span<const int> ranks, int own, const std::string& label,
                                             uint64_t id) const {
    std::vector<int> members, hosts;
    for (const int r : ranks) {
      members.push_back(state_->group->members[static_cast<size_t>(r)]);
      hosts.push_back(state_->group->hosts[static_cast<size_t>(r)]);
    }
    auto group = std::make_shared<Group>(id, std::move(members), std::move(hosts),
                                         child_options(state_->options(), ranks, own, label));
    return std::make_shared<NetworkEngine>(
        owner_, std::make_shared<State>(state_->network, std::move(group), owner_->works()), false);
  }

  const std::shared_ptr<Rank> owner_;
  const std::shared_ptr<State> state_;
  const bool is_root_;
  uint64_t children_ = 0, shrinks_ = 0;
};

// A rank that is lost is seen by all others. So those that wait for it in the first meeting fail, leave it
// out, and meet the others in the next.
std::shared_ptr<Engine> NetworkEngine::shrink(std::vector<int>& survivors) {
  if (std::find(survivors.begin(), survivors.end(), rank()) == survivors.end())
    fail(Code::invalid_argument, state_->options().label, ".shrink: rank ", rank(),
         " is not among the survivors");
  ++shrinks_;
  for (std::vector<int> left = survivors;;) {
    std::erase_if(left, [&](int r) { return r != rank() && state_->network->is_gone(*state_->group, r); });
    const auto own = static_cast<int>(std::find(left.begin(), left.end(), rank()) - left.begin());
    const uint64_t id = hash_of(~state_->group->id, shrinks_, left);
    auto engine = engine_over(left, own, state_->options().label, id);
    try {
      if (left.size() > 1) engine->agree(id, ".shrink");
      survivors = left;
      return engine;
    } catch (const Error& error) {
      if (error.code() != Code::peer_lost || error.peer < 0 ||
          !sees_gone(left[static_cast<size_t>(error.peer)]))
        throw;
    }
  }
}

// Makes NCCL use the interface of this rank's connections to other hosts. By default NCCL takes the first
// interface that it finds, and other hosts may not reach that one.
void lead_nccl(const std::string& device, const std::list<Link>& links, const std::vector<int>& hosts,
               int rank) {
  for (const Link& link : links)
    if (hosts[static_cast<size_t>(link.rank)] != hosts[static_cast<size_t>(rank)])
      return cuda_module(device).tell_nccl(interface_with(local_number(link.control.get())));
}

// Gives the links to other hosts a wire over the fabric. Links within a host use its memory.
void connect_wires(Meeting& meeting, Fabric& fabric, std::list<Link>& links, const std::vector<int>& hosts,
                   int rank) {
  log(LogLevel::info, text("network: libfabric moves data between hosts, provider ", fabric.provider()));
  for (Link& link : links)
    if (hosts[static_cast<size_t>(link.rank)] != hosts[static_cast<size_t>(rank)])
      link.wire = fabric.connect(rank, link.rank, meeting.fabric_address_of(link.rank));
}

std::shared_ptr<Engine> make_root(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                  Meeting& meeting) {
  // One connection to each for control. Those for data open when they are needed.
  check_open_files(static_cast<size_t>(options.size - 1), text("gang.create: rank ", options.rank),
                   text("the connections to ", options.size - 1, options.size == 2 ? " rank" : " ranks"));
  const std::shared_ptr<HostMemory> memory = HostMemory::share(meeting, options);
  Connections connections = connect_all(meeting, options);
  std::list<Link>& links = connections.links;
  for (Link& link : links) link.memory = HostMemory::wire_to(memory, link.rank);
  std::vector<int> hosts = meeting.hosts();
  if (rank->device().kind() == DeviceKind::cuda) lead_nccl(rank->device().name(), links, hosts, options.rank);
  std::unique_ptr<Fabric> fabric = meeting.take_fabric();
  if (fabric != nullptr) connect_wires(meeting, *fabric, links, hosts, options.rank);
  auto network = Network::start(options.liveness_ms, std::move(connections), std::move(fabric));
  meeting.clean_up();
  std::vector<int> members(static_cast<size_t>(options.size));
  std::iota(members.begin(), members.end(), 0);
  auto group = std::make_shared<Group>(1, std::move(members), std::move(hosts), options);
  return std::make_shared<NetworkEngine>(
      rank, std::make_shared<State>(std::move(network), std::move(group), rank->works()), true);
}

}  // namespace
}  // namespace gangway::network

namespace gangway {

std::shared_ptr<Engine> make_network_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                            const std::shared_ptr<Store>& store, OneHostEngine one_host) {
  network::Meeting meeting(store, options, Deadline::after_ms(options.timeout_ms));
  try {
    meeting.exchange();
    if (one_host == nullptr || !meeting.on_one_host()) return network::make_root(rank, options, meeting);
  } catch (const Error& error) {
    meeting.give_up(error);
    throw;
  } catch (const std::bad_alloc&) {
    meeting.give_up(Error(Code::out_of_memory, "no memory"));
    throw;
  }
  auto engine = one_host(rank, options, store);
  meeting.clean_up();
  return engine;
}

std::shared_ptr<Engine> make_network_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                            void (*gather)(const void* mine, size_t bytes, void* all)) {
  network::Meeting meeting(gather, options, Deadline::after_ms(options.timeout_ms));
  meeting.exchange();
  return network::make_root(rank, options, meeting);
}

}  // namespace gangway
