#include "gang/network/network.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "base/interrupt.h"
#include "base/log.h"

namespace gangway::network {

namespace {

constexpr int64_t kLingerMs = 2000;  // how long a network that was left waits for its peers
constexpr int64_t kExitMs = 1000;    // the same at the end of the process
constexpr int64_t kKnowMs = 15'000;  // how long a rank waits to hear that the others have ended
constexpr int64_t kBeatMs = 2500;
constexpr int kMostBeats = 16;  // unanswered, so that they never fill a connection
constexpr int64_t kProgressLookMs = 5;
constexpr int64_t kDialMs = 20;      // how often connections that are being made are looked after
constexpr size_t kBudget = 1 << 20;  // bytes moved on one connection before the others have their turn

// Returns a lock, which does not own the mutex if it was not to be had until the deadline.
std::unique_lock<std::mutex> locked_by(std::mutex& mutex, Deadline deadline) {
  std::unique_lock lock(mutex, std::try_to_lock);
  while (!lock.owns_lock() && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (lock.try_lock()) break;
  }
  return lock;
}

}  // namespace

// The networks of this process. Their threads outlive the gangs a little, so they are ended as the process
// exits. The list itself is never destroyed, because the process may fork after that.
class Networks {
 public:
  static Networks& instance() {
    static auto* const networks = new Networks;
    return *networks;
  }

  void start(const std::shared_ptr<Network>& network) {
    sigset_t all, before;
    sigfillset(&all);
    const std::lock_guard lock(mutex_);
    reap();
    pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's signal handlers run on its own threads
    try {
      running_.push_back({network, std::thread([network] { network->run(); })});
    } catch (const std::system_error& error) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      fail(Code::io, "network: no thread: ", error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

 private:
  Networks() {
    hmac_sha256({}, {});  // starts libcrypto first, so that it ends after the threads
    std::atexit([] { instance().end(); });
    // A child that keeps the connections of its parent would hide that the parent has died.
    pthread_atfork(
        [] {
          instance().mutex_.lock();
          for (Running& one : instance().running_) one.network->lock_for_fork();
        },
        [] { instance().unlock_after_fork(); },
        [] {
          for (Running& one : instance().running_) one.network->close_in_child();
          instance().unlock_after_fork();
        });
  }
  // A program may call exit() in a signal handler, and so in the middle of a call. What that call has
  // locked stays locked: such networks are left as they are, and the peers see the process end.
  void end() noexcept {
    const bool has_threads = getpid() == process_;  // a forked child has none
    const Deadline patience = Deadline::after_ms(kExitMs);
    std::list<Running> ended;
    {
      const auto lock = locked_by(mutex_, patience);
      if (!lock.owns_lock()) return;
      ended.swap(running_);
    }
    for (Running& one : ended) one.ends = has_threads && one.network->end_now(patience);
    for (Running& one : ended) one.ends ? one.thread.join() : one.thread.detach();
  }
  void unlock_after_fork() {
    for (Running& one : running_) one.network->unlock_after_fork();
    mutex_.unlock();
  }
  void reap() {
    for (auto it = running_.begin(); it != running_.end();) {
      if (!it->network->has_ended()) {
        ++it;
        continue;
      }
      it->thread.join();
      it = running_.erase(it);
    }
  }

  struct Running {
    std::shared_ptr<Network> network;  // the thread has a pointer, too
    std::thread thread;
    bool ends = false;
  };

  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::list<Running> running_;
};

std::shared_ptr<Network> Network::start(int64_t liveness_ms, Connections connections,
                                        std::unique_ptr<Fabric> fabric) {
  const auto network = std::make_shared<Network>(liveness_ms, std::move(connections), std::move(fabric));
  Networks::instance().start(network);
  return {network.get(), [network](Network* left) { left->leave(); }};
}

Network::Network(int64_t liveness_ms, Connections connections, std::unique_ptr<Fabric> fabric)
    : liveness_ms_(liveness_ms),
      process_(getpid()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      fabric_(std::move(fabric)),
      links_(std::move(connections.links)),
      by_rank_(links_.size() + 1),
      connector_(std::move(connections.connector)),
      next_beat_(Deadline::Clock::now()),
      last_turn_(Deadline::Clock::now()) {
  if (!wake_) fail_system(Code::io, "network: no eventfd", errno);
  for (Link& link : links_) by_rank_[static_cast<size_t>(link.rank)] = &link;
}

void Network::run() noexcept {
  pthread_setname_np(pthread_self(), "gw-network");
  try {
    while (turn()) {
    }
  } catch (const std::exception& error) {
    log(LogLevel::error, text("the network's thread ended: ", error.what()));
    const Lock lock(mutex_);
    for (Link& link : links_)
      lose(link, text("cannot be reached: this rank's network has ended: ", error.what()), /*is_own=*/true);
  }
  const Lock lock(mutex_);
  for (Link& link : links_) {
    link.is_lost = true;
    link.control.reset();
    link.data.reset();
  }
  connector_.close();
  ended_ = true;
  changed();
}

bool Network::has_nothing_left() {
  return is_leaving_ && (linger_.passed() || std::all_of(links_.begin(), links_.end(),
                                                         [](const Link& link) { return link.is_lost; }));
}

bool Network::turn() {
  int64_t nap = 0, look = kProgressLookMs;
  {
    const Lock lock(mutex_);
    if (has_nothing_left()) return false;
    const auto now = Deadline::Clock::now();
    nap = next_beat_ <= now
              ? 0
              : std::chrono::duration_cast<std::chrono::milliseconds>(next_beat_ - now).count() + 1;
    nap = linger_.left_ms(nap);
    if (connector_.is_busy()) nap = std::min(nap, kDialMs), look = 1;
  }
  if (drivers_ != 0 || was_driven_.exchange(false)) {
    // The thread that waits moves the bytes. This one looks now and then whether it still does.
    pollfd one{wake_.get(), POLLIN, 0};
    poll(&one, 1, static_cast<int>(std::min(nap, look)));
    eventfd_t ignored;
    if (one.revents != 0) eventfd_read(wake_.get(), &ignored);
    if (drivers_ != 0) nap = 0;
  }
  move(nap, nullptr);
  const Lock lock(mutex_);
  beat();
  return true;
}

void Network::drive(uint64_t seen, int64_t ms) {
  ++drivers_;
  try {
    move(ms, &seen);
  } catch (...) {
    --drivers_;
    throw;
  }
  was_driven_ = true;
  --drivers_;
}

// Waits until a socket is ready, at most so long, and serves it. Several threads may be here.
void Network::move(int64_t nap, const uint64_t* seen) {
  std::vector<pollfd> fds{{seen == nullptr ? wake_.get() : -1, POLLIN, 0}, {-1, POLLIN, 0}};
  {
    const Lock lock(mutex_);
    if (seen != nullptr && version_ != *seen) nap = 0;
    for (Link& link : links_) {
      const auto events = [](bool writes) { return static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN); };
      fds.push_back({link.control.get(), events(!link.control_out.empty()), 0});  // -1 once it has ended
      const bool by_socket = link.memory == nullptr && link.wire == nullptr;
      fds.push_back({link.data.get(), events(by_socket && link.has_data()), 0});  // -1 until it is open
      if (nap != 0 && !link.may_sleep()) nap = 0;
      // A peer that has left reads, but has shut the connection by which it would wake this rank.
      if (link.memory != nullptr && link.has_left && link.has_data()) nap = std::min(nap, kProgressLookMs);
    }
    if (fabric_ != nullptr) {
      fds[1].fd = fabric_->descriptor();
      nap = fabric_->may_wait(nap);
    }
    if (seen == nullptr) connector_.add_polls(fds);
  }
  if (poll(fds.data(), fds.size(), static_cast<int>(nap)) < 0 && errno != EINTR)
    fail_system(Code::io, "network: poll failed", errno);
  eventfd_t ignored;
  if (fds[0].revents != 0) eventfd_read(wake_.get(), &ignored);
  if (fabric_ != nullptr) {
    const Lock lock(mutex_);
    fabric_->progress();
  }
  size_t at = 2;
  for (Link& link : links_) {  // the list itself never changes
    const short control = fds[at++].revents, data = fds[at++].revents;
    const Lock lock(mutex_);
    if (link.is_lost) continue;
    const auto arrived = static_cast<short>(data | link.memory_events());
    if (control != 0 || arrived != 0 || link.wire != nullptr) serve(link, control, arrived);
  }
  if (seen != nullptr) return;
  const auto first = fds.begin() + static_cast<std::ptrdiff_t>(at);
  open_connections(std::any_of(first, fds.end(), [](const pollfd& one) { return one.revents != 0; }));
}

// Asks for the data connection of a peer, once.
void Network::dial(Link& link) {
  if (link.can_send() || link.is_lost || std::exchange(link.is_dialed, true)) return;
  const auto own = std::find(by_rank_.begin(), by_rank_.end(), nullptr) - by_rank_.begin();
  if (own < link.rank)
    connector_.want(link.rank);
  else
    post(link, {ControlKind::dial, 0, ""});
  wake();
}

void Network::open_connections(bool has_come) {
  const Lock lock(mutex_);
  if (!has_come && !connector_.is_busy()) return;
  for (Opened& one : connector_.serve()) {
    Link& link = *by_rank_[static_cast<size_t>(one.peer)];
    if (link.is_lost || link.can_send() || one.purpose != Purpose::data) continue;
    link.data = std::move(one.socket);
    if (link.is_shut) shutdown(link.data.get(), SHUT_WR);  // the peer reads until this end
    wake();                                                // what waits in its queue can go
  }
  for (const auto& [peer, why] : connector_.take_failed()) lose(*by_rank_[static_cast<size_t>(peer)], why);
}

void Network::serve(Link& link, short control, short data) {
  try {
    // Control first: what a peer says before it dies counts.
    if ((control & POLLOUT) != 0) link.send_control();
    if ((control & (POLLIN | POLLHUP | POLLERR)) != 0) hear(link);
    const bool reads = (data & (POLLIN | POLLHUP | POLLERR)) != 0;
    if (link.wire != nullptr && !link.is_lost) serve_wire(link);
    if (link.wire == nullptr && reads && !link.is_lost) move_data(link, /*reads=*/true);
    if ((data & POLLOUT) != 0 && !link.is_lost) move_data(link, /*reads=*/false);
    if (is_leaving_ && !link.is_shut && link.is_flushed()) {
      link.is_shut = true;
      shutdown(link.control.get(), SHUT_WR);
      shutdown(link.data.get(), SHUT_WR);
    }
  } catch (const LinkEnd& end) {
    lose(link, end.why);
  } catch (const Error& error) {  // a frame that no peer makes
    lose(link, text("cannot be trusted: ", error.message()));
  } catch (const std::bad_alloc&) {
    lose(link, "cannot be heard: no memory", /*is_own=*/true);
  }
}

// A wire that fails ends the link only if the control connection does not end within a while: then it says
// better what has happened.
void Network::serve_wire(Link& link) {
  constexpr int64_t kMendsMs = 2000;
  if (link.wire->has_arrived()) move_data(link, /*reads=*/true);
  if (!link.is_lost && link.has_data() && link.wire->has_room()) move_data(link, /*reads=*/false);
  if (link.is_lost) return;
  if (!link.wire->failure().empty()) {
    if (link.wire_mends.passed()) throw LinkEnd{text("cannot be reached by ", link.wire->failure())};
    link.wire_mends = Deadline::after_ms(link.wire_mends.left_ms(kMendsMs));
  }
}

void Network::hear(Link& link) {
  bool more = true;
  std::optional<LinkEnd> end;
  try {
    for (int i = 0; i < 16 && more; ++i) more = link.receive_control();
  } catch (const LinkEnd& why) {
    end = why;
  }
  while (const auto frame = link.next_frame()) on_frame(link, *frame);
  if (!end) return;
  if (link.wire != nullptr && !link.is_lost) {  // what the peer has sent before its end counts
    fabric_->progress();
    while (!link.is_lost && link.wire->has_arrived()) move_data(link, /*reads=*/true);
  }
  if (!link.has_left || !(link.data || connector_.ends_with_this_try(link.rank))) throw *end;
  link.control.reset();  // what the peer has sent may still be on its way on the data connection
  link.control_out.clear();
}

// Sends beats, and finds the ranks that send none.
void Network::beat() {
  const auto now = Deadline::Clock::now();
  const auto ms = [](Deadline::Clock::duration d) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
  };
  const int64_t every = liveness_ms_ > 0 ? std::max<int64_t>(10, liveness_ms_ / 5) : kBeatMs;
  // This rank may have been stopped itself: then the peers' beats lie in the sockets.
  const bool slept = ms(now - last_turn_) > 2 * every;
  last_turn_ = now;
  if (slept)
    for (Link& link : links_) link.heard = now;
  if (now < next_beat_) return;
  next_beat_ = now + std::chrono::milliseconds(every);
  for (Link& link : links_) {
    if (link.is_lost || link.has_left || is_leaving_) continue;
    if (liveness_ms_ > 0 && ms(now - link.heard) > liveness_ms_) {
      lose(link, text("gave no sign of life for ", liveness_ms_, " ms"));
      continue;
    }
    if (link.beats >= kMostBeats) continue;
    ++link.beats;
    post(link, {});
  }
}

void Network::leave() noexcept {
  if (getpid() != process_) return;
  const Lock lock(mutex_);
  is_leaving_ = true;
  linger_ = Deadline::after_ms(kLingerMs);
  for (Link& link : links_) {
    if (link.is_lost) continue;
    post(link, {ControlKind::goodbye, 0, ""});
    if (link.is_lost || !link.is_flushed()) continue;
    link.is_shut = true;
    shutdown(link.control.get(), SHUT_WR);
    shutdown(link.data.get(), SHUT_WR);
  }
  wake();
}

// The process ends. Peers of a gang that was not shut down notice that this rank has died.
bool Network::end_now(Deadline patience) noexcept {
  bool says_goodbye = false;
  {
    const auto lock = locked_by(mutex_, patience);
    if (!lock.owns_lock()) return false;
    says_goodbye = is_shut_down_ && !is_leaving_;
    if (!says_goodbye) linger_ = Deadline::after_ms(is_leaving_ ? linger_.left_ms(kExitMs) : 0);
    is_leaving_ = is_leaving_ || !says_goodbye;
  }
  if (says_goodbye) {
    leave();
    const Lock lock(mutex_);
    linger_ = Deadline::after_ms(kExitMs);
  }
  wake();
  return true;
}

bool Network::has_ended() {
  const Lock lock(mutex_);
  return ended_;
}

void Network::wake() noexcept { eventfd_write(wake_.get(), 1); }

void Network::close_in_child() noexcept {
  for (Link& link : links_) link.control.reset(), link.data.reset();
  connector_.close();
}

void Network::move_data(Link& link, bool reads) {
  if (reads)
    link.receive_data(
        kBudget, [&](const ChunkHead& head) { return find(link, head); },
        [&](const PieceOfCall& good) { chunk_came(good.group, good.transfer, good.piece); });
  else
    link.send_data(kBudget, [&](const std::shared_ptr<Group>& group, const TransferPtr& transfer) {
      --transfer->missing_out;
      settle(group, transfer);
    });
}

void Network::end_in_order(Deadline deadline) {
  const auto knows = [](const Link& link) { return link.has_ended || link.has_left || link.is_lost; };
  {
    const Lock lock(mutex_);
    is_shut_down_ = true;
    for (Link& link : links_)
      if (!link.is_lost) post(link, {ControlKind::ended, 0, ""});
  }
  const Deadline patience = Deadline::after_ms(deadline.left_ms(kKnowMs));
  for (;;) {
    const uint64_t seen = version();
    {
      const Lock lock(mutex_);
      if (std::all_of(links_.begin(), links_.end(), knows)) return;
    }
    if (patience.passed()) return;  // every rank has come to the end, so this one may go
    poll_interrupt();
    drive(seen, kProgressLookMs);
  }
}

uint64_t Network::version() {
  const Lock lock(mutex_);
  return version_;
}

void Network::changed() noexcept { ++version_; }

}  // namespace gangway::network
