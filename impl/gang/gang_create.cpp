// Creates gangs: root gangs from the environment, from threads, and fake ones; then child gangs and shared
// regions.
#include "gang/gang.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/config.h"
#include "base/cores.h"
#include "base/fork.h"
#include "gang/agreement.h"
#include "gang/begin_trace.h"
#include "gang/local/fake.h"
#include "gang/registry.h"
#include "gang/rendezvous/startup.h"

namespace gangway {
namespace {

// Each rank of a host has a GPU of its own: "cuda" means the GPU with the rank's number on the host.
std::shared_ptr<Rank> make_rank(const GangOptions& options, int local_rank, int local_size) {
  DeviceOptions device;
  device.index = local_rank;
  device.threads = options.threads > 0 ? options.threads : config().num_threads;
  if (device.threads == 0) device.threads = std::max(1, usable_cores() / std::max(1, local_size));
  return std::make_shared<Rank>(make_device(options.device, device));
}

EngineOptions engine_options(const GangOptions& options, int rank, int size) {
  EngineOptions e;
  e.rank = rank;
  e.size = size;
  e.timeout_ms = options.timeout_ms != 0 ? options.timeout_ms : config().timeout_ms;
  e.liveness_ms = options.liveness_ms != 0 ? options.liveness_ms : config().liveness_ms;
  e.arena_bytes = options.arena_bytes != 0 ? options.arena_bytes : config().arena_bytes;
  e.memory_limit = options.memory_limit != 0 ? options.memory_limit : config().memory_limit;
  e.high_priority = options.high_priority;
  e.label = options.name;
  return e;
}

constexpr int64_t kLongestTimeoutMs = INT64_MAX / 1'000'000;  // engines count nanoseconds

void check_time(const char* field, int64_t ms) {
  if (ms < 0) fail(Code::invalid_argument, "gang.create: ", field, " is ", ms, ", below 0");
  if (ms > kLongestTimeoutMs)
    fail(Code::invalid_argument, "gang.create: ", field, " is ", ms, ", above ", kLongestTimeoutMs);
}

constexpr int64_t kLeastLivenessMs = 50;  // with a shorter limit a rank on a busy core would count as dead

void check_liveness(const char* field, int64_t ms) {
  check_time(field, ms);
  if (ms > 0 && ms < kLeastLivenessMs)
    fail(Code::invalid_argument, "gang.create: ", field, " is ", ms, ", neither 0 (off) nor at least ",
         kLeastLivenessMs);
}

void check_options(const GangOptions& o) {
  check_time("timeout_ms", o.timeout_ms);
  check_liveness("liveness_ms", o.liveness_ms);
  if (o.threads < 0) fail(Code::invalid_argument, "gang.create: threads is ", o.threads, ", below 0");
  if (o.expected_size < 0)
    fail(Code::invalid_argument, "gang.create: expected_size is ", o.expected_size, ", below 0");
}

void check_place(int rank, int size) {
  if (size < 1) fail(Code::invalid_argument, "gang.create: size is ", size, ", below 1");
  if (rank < 0 || rank >= size)
    fail(Code::invalid_argument, "gang.create: rank ", rank, " is outside [0, ", size, ")");
}

// Returns rank and size from the explicit options, else from the environment.
Environment find_place(const GangOptions& options, const EngineRow& engine) {
  Environment e;
  if (options.rank < 0 && options.size == 0) {
    e = read_environment();
  } else {
    check_place(options.rank, options.size);
    const bool meets_otherwise = engine.simulates_peers || engine.launcher != nullptr;
    if (options.size > 1 && !options.store && options.id.empty() && !meets_otherwise)
      fail(Code::invalid_argument, "gang.create: rank ", options.rank, " of ", options.size,
           " was given without a store to meet at");
    e.rank = options.rank;
    e.size = options.size;
    e.local_size = options.size;
    e.launcher = "options";
  }
  const bool by_option = options.expected_size != 0;
  const int expected = by_option ? options.expected_size : config().expected_size;
  if (expected != 0) check_expected_size(e, expected, by_option ? "expected_size" : "GANGWAY_EXPECTED_SIZE");
  return e;
}

// Returns how many root gangs this process has made from one job's environment before. The number is part of
// the store's keys.
int next_generation(const Environment& e) {
  static std::mutex mutex;
  static std::map<std::string, int> made;
  const std::lock_guard lock(mutex);
  return made[text(e.launcher, "/", e.job, "/", e.restart, "/", e.host, "/", e.port)]++;
}

bool is_meta(const GangOptions& options) {
  return options.device == "meta" || options.device.starts_with("meta:");
}

void refuse_meta(const GangOptions& options, int size, const char* call) {
  if (is_meta(options) && size > 1)
    fail(Code::invalid_argument, "gang.", call, ": device ", options.device,
         " has no memory to move, but the gang has ", size, " ranks (a fake gang can stand for them)");
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::string list(std::span<const int> ranks) {
  std::string s = "[";
  for (size_t i = 0; i < ranks.size(); ++i) s += text(i == 0 ? "" : ", ", ranks[i]);
  return s + "]";
}

// Refuses a list of ranks, in this order: duplicates, the first rank outside of the gang, an empty list.
void check_list(const char* call, std::span<const int> ranks, int size) {
  for (size_t i = 0; i < ranks.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (ranks[i] == ranks[k])
        fail(Code::invalid_argument, "gang.", call, ": rank ", ranks[i], " stands twice in ", list(ranks));
  for (const int rank : ranks)
    if (rank < 0 || rank >= size)
      fail(Code::invalid_argument, "gang.", call, ": rank ", rank, " is outside [0, ", size, ")");
  if (ranks.empty()) fail(Code::invalid_argument, "gang.", call, ": the list of ranks is empty");
}

}  // namespace

Gang::Gang(std::shared_ptr<Rank> rank, std::shared_ptr<Engine> engine, const EngineOptions& options,
           std::vector<int> members, bool is_root)
    : abort_thread_(AbortThread::shared()),
      rank_(std::move(rank)),
      engine_(std::move(engine)),
      control_(engine_->control()),
      own_(engine_->rank()),
      size_(engine_->size()),
      options_(options),
      members_(std::move(members)),
      name_(options.label),
      is_root_(is_root) {}

std::shared_ptr<Gang> Gang::make(std::shared_ptr<Rank> rank, std::shared_ptr<Engine> engine,
                                 const EngineOptions& options, std::vector<int> members, bool is_root) {
  arm_fork_guard();
  return std::shared_ptr<Gang>(
      new Gang(std::move(rank), std::move(engine), options, std::move(members), is_root));
}

std::shared_ptr<Gang> Gang::create(const GangOptions& options) {
  check_fork();
  check_options(options);
  const Environment place = find_place(options, engine_row(options.engine));
  const bool takes_mpi =
      options.engine == "auto" && !options.store && options.id.empty() && meets_by_mpi(place);
  const EngineRow& row = engine_row(takes_mpi ? "mpi" : options.engine);
  if (row.simulates_peers) return create_fake(place.rank, place.size, options, /*record=*/false);
  check_engine(row, options.engine, place.size);
  refuse_meta(options, place.size, "create");
  if (place.size > 1 && options.liveness_ms == 0) check_liveness("GANGWAY_LIVENESS_MS", config().liveness_ms);
  const EngineOptions engine = engine_options(options, place.rank, place.size);
  std::shared_ptr<Rank> rank = make_rank(options, place.local_rank, place.local_size);
  std::shared_ptr<Store> store;
  if (needs_store(row, place.size)) {  // after all local checks: peers wait for a rank once it has connected
    const Deadline deadline = Deadline::after_ms(engine.timeout_ms);
    store = options.store        ? options.store
            : options.id.empty() ? connect(place, next_generation(place), deadline)
                                 : connect_by_id(options.id, place.rank, place.size, deadline);
  }
  std::shared_ptr<Engine> made = make_engine(row, rank, engine, store);
  std::shared_ptr<Gang> gang = make(std::move(rank), std::move(made), engine, all_ranks(place.size));
  const std::string& folder = config().trace_folder;
  const bool is_private =
      place.size == 1 && !folder.empty() && read_environment().size > 1;  // it is no rank of the job
  if (!folder.empty() && !is_private) begin_trace(*gang, folder);
  return gang;
}

std::shared_ptr<Gang> Gang::over(std::shared_ptr<Rank> rank, std::shared_ptr<Engine> engine,
                                 const GangOptions& options) {
  check_options(options);
  const EngineOptions o = engine_options(options, engine->rank(), engine->size());
  return make(std::move(rank), std::move(engine), o, all_ranks(o.size));
}

std::vector<std::shared_ptr<Gang>> Gang::create_threads(int count, const GangOptions& options) {
  check_fork();
  check_options(options);
  if (count < 1) fail(Code::invalid_argument, "gang.create_threads: count is ", count, ", below 1");
  if (!engine_row(options.engine).holds_threads)
    fail(Code::invalid_argument, "gang.create_threads: engine \"", options.engine,
         "\" does not hold ranks that are threads (auto, threads)");
  refuse_meta(options, count, "create_threads");
  std::vector<std::shared_ptr<Rank>> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(make_rank(options, i, count));
  const std::vector<std::shared_ptr<Engine>> engines =
      make_thread_engines(ranks, engine_options(options, 0, count));
  const auto run = static_cast<uint64_t>(Tracer::now_ns());  // identifies the traces of these ranks
  std::vector<std::shared_ptr<Gang>> gangs;
  for (int i = 0; i < count; ++i) {
    const size_t at = static_cast<size_t>(i);
    gangs.push_back(make(ranks[at], engines[at], engine_options(options, i, count), all_ranks(count)));
    if (!config().trace_folder.empty()) ranks[at]->tracer().begin(config().trace_folder, run, i, count, 0);
  }
  return gangs;
}

std::shared_ptr<Gang> Gang::create_fake(int rank, int size, const GangOptions& options, bool record,
                                        bool no_meta) {
  check_fork();
  check_options(options);
  if (size < 1) fail(Code::invalid_argument, "gang.create_fake: size is ", size, ", below 1");
  if (rank < 0 || rank >= size)
    fail(Code::invalid_argument, "gang.create_fake: rank ", rank, " is outside [0, ", size, ")");
  if (no_meta && is_meta(options))
    fail(Code::invalid_argument, "gang.create_fake: a fake gang needs a device with memory, not ",
         options.device);
  const EngineOptions engine = engine_options(options, rank, size);
  std::shared_ptr<Rank> owner = make_rank(options, 0, 1);
  std::shared_ptr<Engine> made = make_fake_engine(owner, engine, record);
  return make(std::move(owner), std::move(made), engine, all_ranks(size));
}

std::string Gang::child_name(const std::string& name) {
  const uint64_t number = children_++;
  return name.empty() ? text(name_, ".", number) : name;
}

std::shared_ptr<Gang> Gang::alone(const std::string& name) {
  return named("alone", [&] {
    check_usable("alone");
    const int own = rank();
    EngineOptions options = options_;
    options.rank = 0;
    options.size = 1;
    options.label = child_name(name);
    std::shared_ptr<Engine> engine = has_peers()
                                         ? make_engine_of_one(rank_, options)
                                         : engine_->create(std::span<const int>(&own, 1), options.label);
    return make(rank_, std::move(engine), options, {members_[static_cast<size_t>(own)]}, /*is_root=*/false);
  });
}

std::shared_ptr<Gang> Gang::make_child(std::span<const int> ranks, const std::string& name) {
  if (ranks.size() == 1) {
    if (ranks[0] == rank()) return alone(name);
    child_name(name);  // keeps the numbers equal on all ranks
    return nullptr;
  }
  EngineOptions options = options_;
  options.label = child_name(name);
  std::shared_ptr<Engine> engine;
  {
    const std::lock_guard lock(channel_mutex_[static_cast<size_t>(Channel::control)]);
    engine = engine_->create(ranks, options.label);
  }
  if (!engine) return nullptr;
  options.rank = engine->rank();
  options.size = engine->size();
  std::vector<int> members;
  for (const int r : ranks) members.push_back(members_[static_cast<size_t>(r)]);
  return make(rank_, std::move(engine), options, std::move(members), /*is_root=*/false);
}

std::shared_ptr<Gang> Gang::create_gang(std::span<const int> ranks, const std::string& name) {
  return collective("create_gang", [&] {
    agreement().agree_on([&] { check_list("create_gang", ranks, size()); }, text("a gang of ", list(ranks)));
    return make_child(ranks, name);
  });
}

std::shared_ptr<Gang> Gang::split(int color, int key, const std::string& name) {
  return collective("split", [&] {
    agreement().agree({}, "a split");  // all ranks throw the refusal of a rank that does not get this far
    const int mine[2] = {color, key};
    std::vector<int> all(2 * static_cast<size_t>(size()));
    Collective c;
    c.op = CollectiveOp::all_gather;
    c.in = mine;
    c.out = all.data();
    c.count = 2;
    c.dtype = DType::i32;
    run_now(Channel::control, c);
    std::map<int, std::vector<int>> groups;
    for (int r = 0; r < size(); ++r)
      if (const int its = all[2 * static_cast<size_t>(r)]; its >= 0) groups[its].push_back(r);
    std::shared_ptr<Gang> own;
    for (auto& [its, ranks] : groups) {
      std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
        return all[2 * static_cast<size_t>(a) + 1] < all[2 * static_cast<size_t>(b) + 1];
      });
      std::shared_ptr<Gang> child = make_child(ranks, name);
      if (child && its == color) own = std::move(child);
    }
    return own;
  });
}

std::shared_ptr<Gang> Gang::duplicate(const std::string& name) {
  return collective("duplicate", [&] {
    agreement().agree({}, "a duplicate");  // as in split
    return make_child(all_ranks(size()), name);
  });
}

SharedRegion Gang::allocate_shared(size_t bytes) {
  return collective("allocate_shared", [&] {
    agreement().agree_on(
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

std::shared_ptr<Gang> Gang::shrink(std::span<const int> survivors) {
  return named("shrink", [&] {
    check_fork();
    if (shut_down_) fail(Code::invalid_state, "gang.shrink: gang \"", name_, "\" was shut down");
    if (!error()) fail(Code::invalid_state, "gang.shrink: gang \"", name_, "\" is not broken");
    check_list("shrink", survivors, size());
    if (std::find(survivors.begin(), survivors.end(), rank()) == survivors.end())
      fail(Code::invalid_argument, "gang.shrink: rank ", rank(), ", which calls, is not in ",
           list(survivors));
    std::vector<int> left(survivors.begin(), survivors.end());
    std::shared_ptr<Engine> engine = engine_->shrink(left);
    EngineOptions options = options_;
    options.rank = engine->rank();
    options.size = engine->size();
    options.label = child_name("");
    if (options.size == 1 && engine->facts().has_peers) engine = make_engine_of_one(rank_, options);
    std::vector<int> members;
    for (const int r : left) members.push_back(members_[static_cast<size_t>(r)]);
    return make(rank_, std::move(engine), options, std::move(members), is_root_);
  });
}

}  // namespace gangway
