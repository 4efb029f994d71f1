#include "gang/rendezvous/startup.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/config.h"
#include "base/error.h"
#include "base/log.h"
#include "gang/rendezvous/hmac.h"
#include "gang/rendezvous/identity.h"
#include "gang/rendezvous/resolve.h"
#include "gang/rendezvous/secret.h"

namespace gangway {
namespace {

constexpr int kMostRanks = 1 << 20;
constexpr int64_t kLongestStartMs = 24 * 3600 * 1000;  // the longest time that a store waits for its ranks

const char* lookup(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

int integer(const char* variable, int lowest, int highest) {
  const char* const value = lookup(variable);
  char* end = nullptr;
  errno = 0;
  const long long parsed = value == nullptr ? 0 : std::strtoll(value, &end, 10);
  if (value == nullptr || errno != 0 || end == value || *end != '\0' ||
      std::isspace(static_cast<unsigned char>(*value)) != 0 || parsed < lowest || parsed > highest)
    fail(Code::invalid_argument, variable, " is \"", value == nullptr ? "" : value,
         "\", not an integer from ", lowest, " to ", highest);
  return static_cast<int>(parsed);
}

// Reads a rank and the number of ranks, which must both be set or both be absent.
struct Place {
  int rank;
  int size;
};

std::optional<Place> read_place(const char* rank, const char* size) {
  const bool has_rank = lookup(rank) != nullptr;
  if (has_rank != (lookup(size) != nullptr))
    fail(Code::invalid_argument, has_rank ? rank : size, " is set but ", has_rank ? size : rank, " is not");
  if (!has_rank) return std::nullopt;
  const Place place{integer(rank, 0, kMostRanks), integer(size, 1, kMostRanks)};
  if (place.rank >= place.size)
    fail(Code::invalid_argument, rank, " is ", place.rank, ", not below ", size, ", which is ", place.size);
  return place;
}

bool names_loopback(std::string_view host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1" || host == "ip6-localhost";
}

void set(Environment& e, const char* launcher, Place place, std::optional<Place> local) {
  e.launcher = launcher;
  e.rank = place.rank;
  e.size = place.size;
  // For a launcher that does not say it: all ranks are on one host if rank 0 is on "this host"; otherwise
  // every rank is alone on its host.
  const bool one_host = e.host.empty() || names_loopback(e.host);
  if (!local) local = one_host ? place : Place{0, 1};
  if (local->size > place.size)
    fail(Code::invalid_argument, launcher, ": ", local->size, " ranks on this host of ", place.size,
         " in all");
  e.local_rank = local->rank;
  e.local_size = local->size;
}

// Returns the first host of a Slurm list: "node[3-7,9],other" gives "node3".
std::string first_host(std::string_view list) {
  const size_t bracket = list.find_first_of("[,");
  if (bracket == std::string_view::npos || list[bracket] == ',') return std::string(list.substr(0, bracket));
  const size_t end = list.find_first_of("-,]", bracket);
  return std::string(list.substr(0, bracket)) + std::string(list.substr(bracket + 1, end - bracket - 1));
}

// Returns how many tasks run on node number `node`, by Slurm's short form: "2(x3),1" means 2, 2, 2, 1.
// Returns 0 if the list is shorter.
int tasks_on_node(std::string_view tasks, int node) {
  while (!tasks.empty()) {
    const std::string part(tasks.substr(0, tasks.find(',')));
    int count = 0, times = 1;
    if (std::sscanf(part.c_str(), "%d(x%d)", &count, &times) < 1) return 0;
    if (node < times) return count;
    node -= times;
    tasks.remove_prefix(std::min(tasks.size(), part.size() + 1));
  }
  return 0;
}

// Returns the first of two variables that is set: that of the Slurm step, else that of the allocation.
const char* either(const char* first, const char* second) {
  return lookup(first) != nullptr ? first : second;
}

// Returns how many ranks run on this host, as far as Slurm's variables say; at least `local_rank` + 1.
int slurm_local_size(const Environment& e, int size, int local_rank) {
  const char* const count = either("SLURM_STEP_NUM_NODES", "SLURM_NNODES");
  const bool known = lookup(count) != nullptr;
  if (known ? integer(count, 1, kMostRanks) == 1 : e.host.empty() || names_loopback(e.host)) return size;
  const char* const tasks = lookup(either("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"));
  const bool listed = tasks != nullptr && lookup("SLURM_NODEID") != nullptr;
  return std::max(listed ? tasks_on_node(tasks, integer("SLURM_NODEID", 0, kMostRanks)) : 0, local_rank + 1);
}

const char* text_or_none(const char* variable) {
  const char* const value = lookup(variable);
  return value != nullptr ? value : "none";
}

bool read_slurm(Environment& e) {
  // SLURM_NTASKS alone means the shell of an allocation, not a task.
  if (lookup("SLURM_PROCID") == nullptr) return false;
  const char* const tasks = either("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
  if (lookup("SLURM_JOB_ID") != nullptr && lookup("SLURM_STEP_ID") == nullptr) {
    static std::atomic<bool> told = false;
    if (!told.exchange(true))
      log(LogLevel::warning,
          text("this process is the batch script of Slurm's job, with ", tasks, " = ", text_or_none(tasks),
               ", and none of its tasks: it is one rank. srun starts the tasks"));
    return false;
  }
  const Place place = *read_place("SLURM_PROCID", tasks);
  std::optional<Place> local;
  if (lookup("SLURM_LOCALID") != nullptr) {
    const int rank = integer("SLURM_LOCALID", 0, place.size - 1);
    local = Place{rank, slurm_local_size(e, place.size, rank)};
    const char* const nodes = lookup(either("SLURM_STEP_NODELIST", "SLURM_NODELIST"));
    if (local->size < place.size && e.host.empty() && nodes != nullptr) e.host = first_host(nodes);
  }
  set(e, "slurm", place, local);
  return true;
}

bool read_launchers(Environment& e) {
  const auto torch = read_place("RANK", "WORLD_SIZE");
  const auto torch_local = read_place("LOCAL_RANK", "LOCAL_WORLD_SIZE");
  if (torch_local && !torch)
    fail(Code::invalid_argument, "LOCAL_RANK is set but RANK is not: which of all ranks is this one?");
  if (torch) {
    set(e, "torchrun", *torch, torch_local);
    return true;
  }
  if (read_slurm(e)) return true;
  if (const auto place = read_place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) {
    set(e, "openmpi", *place, read_place("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"));
    return true;
  }
  if (const auto place = read_place("PMI_RANK", "PMI_SIZE")) {
    auto local = read_place("MPI_LOCALRANKID", "MPI_LOCALNRANKS");  // names of the Hydra launcher
    if (!local) local = read_place("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE");
    set(e, "pmi", *place, local);
    return true;
  }
  return false;
}

bool on_one_host(const Environment& e) {
  return e.local_size == e.size || e.host.empty() || names_loopback(e.host);
}

std::string read_job(const Environment& e) {
  if (const char* const job = lookup("GANGWAY_JOB")) return job;
  // torchrun without a rendezvous id calls every job "none".
  const char* const run = lookup("TORCHELASTIC_RUN_ID");
  if (run != nullptr && std::string_view(run) != "none") return text("torch.", run);
  const char* const slurm = lookup("SLURM_PROCID") != nullptr ? lookup("SLURM_JOB_ID") : nullptr;
  const char* const step = lookup("SLURM_STEP_ID");
  // The port is part of the name, because several jobs may run in one allocation at the same time.
  if (slurm != nullptr) return text("slurm.", slurm, ".", step != nullptr ? step : "", ".", e.port);
  if (const char* const space = lookup("PMIX_NAMESPACE")) return text("pmix.", space, ".", e.port);
  // Ranks of several hosts have a secret of their own, so the port is enough. On one host the ranks of a
  // launcher have one parent, which separates jobs that name nothing else. Ranks that a user starts one by
  // one may each have a shell of their own.
  const bool by_hand = e.launcher == "torchrun" && run == nullptr;
  return on_one_host(e) && !by_hand ? text("port.", e.port, ".", getppid()) : text("port.", e.port);
}

Secret find_secret(const Environment& e, Deadline deadline) {
  const Config& c = config();
  if (c.secret_fd >= 0) return secret_from_descriptor(c.secret_fd);
  if (!c.secret_file.empty()) return secret_from_file(c.secret_file);
  if (!on_one_host(e))
    fail(Code::invalid_argument, "GANGWAY_SECRET_FILE is not set: ", e.size, " ranks on several hosts (",
         e.local_size, " here, MASTER_ADDR \"", e.host,
         "\") need the same secret. Make a file of 32 random bytes on one host (head -c 32 /dev/urandom "
         ">FILE; "
         "chmod 600 FILE), copy it to the others, and set GANGWAY_SECRET_FILE to it on every rank");
  // Containers may share the folder, but no sockets, and jobs of theirs may have the same name.
  return shared_secret(secret_folder(), text(e.job, ".", e.restart, ".", hash_of_network()), deadline);
}

}  // namespace

Environment read_environment() {
  Environment e;
  if (const char* const host = lookup("MASTER_ADDR")) e.host = without_brackets(host);
  if (lookup("MASTER_PORT") != nullptr) e.port = integer("MASTER_PORT", 1, 65535);
  if (!read_launchers(e)) e.launcher = "none";
  // Each host's torchrun counts its own ranks' failures, so hosts of one attempt have different counts.
  if (lookup("GANGWAY_RESTART_COUNT") != nullptr)
    e.restart = integer("GANGWAY_RESTART_COUNT", 0, INT32_MAX);
  else if (lookup("TORCHELASTIC_RESTART_COUNT") != nullptr && on_one_host(e))
    e.restart = integer("TORCHELASTIC_RESTART_COUNT", 0, INT32_MAX);
  e.job = read_job(e);
  if (config().expected_size != 0) check_expected_size(e, config().expected_size, "GANGWAY_EXPECTED_SIZE");
  return e;
}

void check_expected_size(const Environment& environment, int expected, const char* who) {
  if (environment.size != expected)
    fail(Code::invalid_argument, who, " is ", expected, ", but the environment gives ", environment.size,
         environment.size == 1 ? " rank" : " ranks", " (launcher: ", environment.launcher, ")");
}

bool meets_by_mpi(const Environment& e) {
  const bool by_mpi = e.launcher == "openmpi" || e.launcher == "pmi";
  return by_mpi && e.local_size < e.size && e.host.empty();
}

std::shared_ptr<Store> connect(const Environment& environment, int generation, Deadline deadline) {
  if (environment.size == 1) return make_memory_store();
  TcpStoreOptions options;
  options.secret = find_secret(environment, deadline);
  options.job = text(environment.job, ".", environment.restart);
  options.rank = environment.rank;
  options.size = environment.size;
  options.timeout_ms = std::max<int64_t>(1, deadline.left_ms(kLongestStartMs));
  if (!on_one_host(environment)) {
    const Config& c = config();
    // Other ranks reach rank 0 at MASTER_ADDR, so it listens there unless another address is named.
    options.any_interface = !c.interface.empty();
    options.not_loopback = c.interface.empty();
    options.host =
        environment.rank == 0 && !c.interface.empty() ? interface_address(c.interface) : environment.host;
    options.port = c.port != 0 ? c.port : environment.port + 1;
    if (c.port == 0 && environment.port == 0)
      fail(Code::invalid_argument,
           "GANGWAY_PORT is not set and neither is MASTER_PORT: where does rank 0 listen?");
    if (options.port > 65535)
      fail(Code::invalid_argument, "MASTER_PORT is ", environment.port,
           ", which leaves no port after it; set GANGWAY_PORT");
  }
  return make_prefix_store(make_tcp_store(options), text(generation, "/"));
}

StorePlace place_for_store() {
  const std::string& wish = config().interface;
  StorePlace place{wish.empty() ? first_address() : interface_address(wish), 0};
  if (place.address.empty()) return place;
  place.port = free_port(place.address);
  return place;
}

std::shared_ptr<Store> connect_by_id(const std::string& id, int rank, int size, Deadline deadline,
                                     const StorePlace& place) {
  TcpStoreOptions options;
  if (id.size() != kIdBytes)
    fail(Code::invalid_argument, "an id has ", kIdBytes, " bytes, this one ", id.size());
  std::copy_n(id.begin(), options.secret.size(), options.secret.begin());
  options.job = id.substr(options.secret.size());
  options.host = place.address;
  options.port = place.port;
  options.rank = rank;
  options.size = size;
  options.timeout_ms = std::max<int64_t>(1, deadline.left_ms(kLongestStartMs));
  return make_tcp_store(options);
}

}  // namespace gangway
