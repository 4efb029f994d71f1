#include "gang/host/presence/handover.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "base/interrupt.h"
#include "gang/host/presence/handover_socket.h"
#include "gang/host/presence/member.h"

namespace gangway::host {
namespace {

constexpr char kNameStart[] = "gangway-";
constexpr size_t kNameBytes = 16;
constexpr size_t kName = sizeof kNameStart - 1 + 2 * kNameBytes;
constexpr char kPlace[] = "host/arena";
constexpr char kRefused[] = "host/refused";  // the name of a socket that a rank could not reach
// The socket's name, then the error: code, rank, peer; the boot and the time of this entry; the text.
constexpr char kFailed[] = "host/failed";
// Followed by a rank. The value is the socket's name, then the process: its id and its PID namespace; the
// boot and the time of this entry.
constexpr char kProcess[] = "host/process/";
constexpr char kOtherHosts[] =
    "host engine: the ranks are on several hosts (or network namespaces), which share no memory; choose the "
    "engine auto";

// How often a rank asks the store for failures: together all ranks ask about a thousand times a second, since
// one thread of rank 0 answers all of them. Rank 0 asks for so many ranks that have not announced themselves.
constexpr int64_t kLookMs = 5;
constexpr int kUnknownAtOnce = 64;
// After so long a failure is put again: see give_up().
constexpr int64_t kAgainMs = 20;

// The sockets of start-ups that ranks of this process gave up. A later start-up ignores everything in the
// store that names one of them. Each rank has its own list, because another rank of this process, a thread,
// may still take part in a start-up that its peer gave up.
class GivenUp {
 public:
  void add(const std::string& name, int rank) {
    const std::lock_guard lock(mutex_);
    starts_.emplace(name, rank);
  }
  bool holds(const std::string& name, int rank) {
    const std::lock_guard lock(mutex_);
    return starts_.contains({name, rank});
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<std::string, int>> starts_;
};
GivenUp& given_up() {
  static GivenUp starts;
  return starts;
}

}  // namespace

Handover::Handover(Store& store, int rank, Deadline deadline)
    : store_(store),
      rank_(rank),
      deadline_(deadline),
      began_(own_start()),
      next_look_(Deadline::after_ms(0)) {
  if (rank_ != 0) return;
  name_ = kNameStart + hex(random_bytes(kNameBytes));
  token_ = random_bytes(kToken);
}

// Rank 0 watches all ranks. The others watch rank 0, which tells them about the rest.
void Handover::announce() {
  const BootTime now = boot_time();
  store_.put(text(kProcess, rank_), text(name_, " ", getpid(), " ", pid_space(), " ", now.boot, " ", now.ns));
}

bool Handover::is_of_this_run(uint64_t boot, int64_t put_ns) const {
  return rank_ == 0 || came_first_ || (boot == began_.boot && put_ns >= began_.ns);
}

void Handover::find_process(int r) {
  const auto entry = store_.get(text(kProcess, r));
  int pid = 0;
  unsigned long long space = 0, boot = 0;
  long long put_ns = 0;
  if (!entry || !entry->starts_with(name_) ||
      std::sscanf(entry->c_str() + name_.size(), " %d %llu %llu %lld", &pid, &space, &boot, &put_ns) != 4)
    return;
  Process& process = processes_[static_cast<size_t>(r)];
  process.pid = pid;
  if (space != pid_space()) return;  // a pid of another namespace; its death is detected in the arena
  process.of_this_run = is_of_this_run(boot, put_ns);
  process.fd = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  process.ended = !process.fd && errno == ESRCH;
}

int Handover::dead_rank() {
  const int count = static_cast<int>(processes_.size());
  for (int i = 0, asked = 0; i < count && asked < kUnknownAtOnce; ++i) {
    next_unknown_ = (next_unknown_ + 1) % count;
    if (processes_[static_cast<size_t>(next_unknown_)].pid != 0 || (rank_ == 0 && next_unknown_ == 0))
      continue;
    find_process(next_unknown_);
    ++asked;
  }
  for (int r = rank_ == 0 ? 1 : 0; r < count; ++r) {
    Process& process = processes_[static_cast<size_t>(r)];
    pollfd p{process.fd.get(), POLLIN, 0};
    process.ended = process.ended || (process.fd && poll(&p, 1, 0) > 0);
    if (process.ended && (met_ || process.of_this_run)) return r;
  }
  return -1;
}

void Handover::look() {
  if (!next_look_.passed()) return;
  check();
  next_look_ = Deadline::after_ms(std::max<int64_t>(kLookMs, size_));
}

// Returns whether the failure is of this attempt, not one that an earlier run has left.
bool Handover::is_news(const std::string& failure) const {
  unsigned long long boot = 0;
  long long put_ns = 0;
  if (failure != old_failure_) return true;
  return std::sscanf(failure.c_str() + name_.size(), " %*d %*d %*d %llu %lld", &boot, &put_ns) == 2 &&
         is_of_this_run(boot, put_ns);
}

void Handover::check() {
  if (name_.empty()) return;
  const int dead = dead_rank();  // first, because a rank that gives up publishes its reason before it ends
  if (rank_ == 0)
    if (const auto refused = store_.get(kRefused); refused == name_) fail(Code::not_supported, kOtherHosts);
  const auto failed = store_.get(kFailed);
  // An old failure is used as well if a process has died, because it says why.
  if (failed && failed->starts_with(name_) && (is_news(*failed) || dead >= 0)) throw_failure(*failed);
  if (dead < 0) return;
  Error error(Code::peer_lost,
              text("host engine: rank ", dead, " (pid ", processes_[static_cast<size_t>(dead)].pid,
                   ") died while the gang was made"));
  error.peer = dead;
  throw error;
}

void Handover::throw_failure(const std::string& entry, const char* advice) {
  failure_is_stored_ = true;
  int code = 0, rank = 0, peer = -1, text_at = 0;
  const char* const words = entry.c_str() + name_.size();
  if (std::sscanf(words, " %d %d %d %*u %*d %n", &code, &rank, &peer, &text_at) != 3)
    fail(Code::gang, "host engine: a bad entry in the store");
  const std::string why = std::string(words + text_at) + advice;
  const bool is_everyones = code == static_cast<int>(Code::not_supported) ||
                            code == static_cast<int>(Code::invalid_state) ||
                            code == static_cast<int>(Code::peer_lost);
  if (is_everyones) {
    Error error(static_cast<Code>(code), why);  // the same error that the failing rank throws
    error.peer = peer;
    throw error;
  }
  Error error(code == static_cast<int>(Code::timeout) ? Code::timeout : Code::aborted,
              text("host engine: rank ", rank, " gave up while the gang was made: ", why));
  error.peer = rank;
  throw error;
}

std::string Handover::failure_entry(const Error& why) const {
  const BootTime now = boot_time();
  return text(name_, " ", static_cast<int>(why.code()), " ", rank_, " ", why.peer, " ", now.boot, " ", now.ns,
              " ", why.message());
}

void Handover::give_up(const Error& why) {
  if (name_.empty()) return;
  const InterruptShield shield;  // an interrupt would be lost here; the next wait calls the hook again
  try {
    given_up().add(name_, rank_);
    if (std::exchange(failure_is_stored_, true)) return;
    const std::string entry = failure_entry(why);
    store_.put(kFailed, entry);
    if (rank_ == 0 && !placed_) store_.put(kPlace, name_ + token_);
    // A rank whose process has just begun, or whose start the kernel's coarse clock puts later, would take
    // the entry for one of an earlier run. The second one is new to each rank that has begun until now.
    usleep(kAgainMs * 1000);
    if (store_.get(kFailed) == entry) store_.put(kFailed, failure_entry(why));
  } catch (const std::exception&) {  // the store failed; the others notice at their deadline
  }
}

void Handover::end() {
  const InterruptShield shield;
  try {
    store_.remove(text(kProcess, rank_));
    if (rank_ != 0) return;
    for (const char* const key : {kPlace, kRefused, kFailed}) store_.remove(key);
  } catch (const std::exception&) {  // the gang is made, and leftover entries are ignored
  }
}

void Handover::hand_over(const Arena& arena, int peers) {
  const Descriptor listener = listen_at(name_);
  announce();
  store_.put(kPlace, name_ + token_);
  placed_ = true;
  std::vector<Pending> pending;
  for (int served = 0; served < peers;) {
    std::vector<pollfd> polls{{listener.get(), POLLIN, 0}};
    for (const Pending& p : pending) polls.push_back({p.socket.get(), POLLIN, 0});
    for (const Process& process : processes_)
      if (process.fd) polls.push_back({process.fd.get(), POLLIN, 0});
    poll(polls.data(), polls.size(), static_cast<int>(deadline_.left_ms(50)));
    for (size_t i = pending.size(); i-- > 0;)
      if (serve(pending[i], token_, arena.fd(), served))
        pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
    take_in(listener, pending);
    poll_interrupt();
    look();
    if (deadline_.passed())
      fail(Code::timeout, "host engine: ", peers - served, " of ", peers + 1,
           " ranks did not come for the shared memory");
  }
}

std::shared_ptr<Arena> Handover::fetch() {
  old_failure_ = store_.get(kFailed);
  const std::optional<std::string> left = store_.get(kPlace);
  std::string place = store_.wait(kPlace, deadline_);
  for (came_first_ = left != place;; place = next_place(place), came_first_ = true) {
    if (place.size() != kName + kToken) fail(Code::gang, "host engine: a bad entry in the store");
    if (given_up().holds(place.substr(0, kName), rank_)) continue;
    name_ = place.substr(0, kName);
    processes_[0] = {};
    announce();
    for (;;) {
      const Descriptor to = reach(name_, deadline_);
      if (to.get() < 0) break;
      if (!same_user(to.get())) fail(Code::gang, "host engine: rank 0 belongs to another user");
      const ssize_t sent = send(to.get(), place.data() + kName, kToken, MSG_NOSIGNAL);
      if (sent == static_cast<ssize_t>(kToken) && readable(to.get(), deadline_))
        if (const int fd = receive_fd(to.get()); fd >= 0) {
          met_ = true;
          old_failure_.reset();  // the name is of this gang, and so is any failure stored under it
          return Arena::map(fd, rank_);
        }
      // Rank 0 had too many connections, or this rank was too slow, so it tries again.
      if (deadline_.passed())
        fail(Code::timeout, "host engine: rank 0 did not hand over the shared memory in time");
    }
  }
}

// Nobody listens at the entry `dead`, or its listener does not answer this rank. Either rank 0 is on another
// host, and then tells all ranks so, or the entry is of an earlier start-up and another one will follow.
std::string Handover::next_place(const std::string& dead) {
  if (!name_.empty()) store_.put(kRefused, name_);
  for (;;) {
    check();
    if (auto place = store_.get(kPlace); place && *place != dead) return *std::move(place);
    if (deadline_.passed()) {
      if (!name_.empty() && old_failure_ && old_failure_->starts_with(name_))
        throw_failure(*old_failure_,
                      " (in this run or an earlier one over this store): start all ranks again");
      const Process& last = processes_[0];
      fail(Code::timeout, "host engine: rank 0 put no address at which it listens into the store",
           last.pid == 0 ? ""
                         : text("; nobody listens at the one there, which is of process ", last.pid,
                                last.ended ? ", which has ended" : "",
                                " (of an earlier run or of this one): start all ranks again"));
    }
    poll_interrupt();
    usleep(static_cast<useconds_t>(std::max<int64_t>(kLookMs, size_) * 1000));
  }
}

std::shared_ptr<Arena> Handover::share(int size, const ArenaOptions& options) {
  std::shared_ptr<Arena> arena;
  size_ = size;
  processes_.resize(rank_ == 0 ? static_cast<size_t>(size) : 1);
  if (rank_ == 0) {
    arena = Arena::create(size, false, options);
    if (size > 1) hand_over(*arena, size - 1);
  } else {
    arena = fetch();
  }
  arena->close_fd();
  return arena;
}

}  // namespace gangway::host
