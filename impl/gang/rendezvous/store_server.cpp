#include "gang/rendezvous/store_server.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/open_files.h"
#include "gang/rendezvous/frames.h"
#include "gang/rendezvous/handshake.h"
#include "gang/rendezvous/resolve.h"
#include "gang/rendezvous/store.h"
#include "gang/rendezvous/store_socket.h"

namespace gangway {
namespace {

constexpr int64_t kHandshakeMs = 5000;
// The most connections that have not proved that they know the secret; twice the number of ranks if that is
// more, because all ranks of a large gang may connect at once.
constexpr size_t kStrangers = 128;
constexpr size_t kWaitsPerMember = 4096;
constexpr size_t kBacklog = 4 << 20;  // a member with more bytes of unread answers may send no more requests
constexpr int64_t kExitMs = 1000;
constexpr int64_t kMisfitMs =
    3000;  // how long the right ranks may still come after one of another number of ranks
constexpr size_t kStrangersText = 1000;  // bytes of what is kept of strangers

// The servers of this process. They outlive their stores, because peers may still send requests, so they are
// ended as the process exits.
class Servers {
 public:
  static Servers& instance() {
    static Servers servers;
    return servers;
  }

  ~Servers() {
    if (getpid() != process_) return;  // a forked child does not have the threads
    // First all servers start to linger, then all are joined, so that they linger at the same time.
    for (const auto& [place, server] : running) server->end_at_exit();
    for (const auto& [place, server] : running) server->join();
  }

  std::mutex mutex;
  std::map<std::string, std::shared_ptr<StoreServer>> running;  // by place and job

 private:
  const pid_t process_ = getpid();
};

}  // namespace

struct StoreServer::Connection {
  enum class Stage { hello, proof, member };

  Descriptor socket;
  Stage stage = Stage::hello;
  Deadline handshake = Deadline::after_ms(kHandshakeMs);
  std::array<uint8_t, kHelloBytes> bytes{};  // of the handshake
  size_t have = 0;
  Hello hello;
  std::unique_ptr<Transcript> transcript;
  std::optional<FrameReader> reader;
  std::optional<FrameWriter> writer;
  std::string out;  // answers that the socket has not taken yet
  size_t waits = 0;
  bool closing = false;  // closes as soon as `out` is sent
  bool dropped = false;
};

struct StoreServer::Wait {
  Connection* connection;
  uint64_t request;
  std::string key;
  Deadline deadline;
};

std::shared_ptr<StoreServer> StoreServer::open(const TcpStoreOptions& options) {
  // This starts libcrypto before Servers is made, so that libcrypto ends after our threads when the process
  // exits.
  const std::string place = store_place(options) + " " + abstract_name(options);
  Servers& servers = Servers::instance();
  const std::lock_guard lock(servers.mutex);
  const auto known = servers.running.find(place);
  if (known != servers.running.end() && known->second->adopt()) return known->second;
  for (auto it = servers.running.begin(); it != servers.running.end();) {
    const bool over = it->second->ended();
    if (over) it->second->join();
    it = over ? servers.running.erase(it) : std::next(it);
  }
  const auto server = std::make_shared<StoreServer>(options);
  servers.running.emplace(place, server);
  return server;
}

StoreServer::StoreServer(const TcpStoreOptions& options)
    : options_(options),
      process_(process_number()),
      listener_(store_listen(options)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      leaves_(static_cast<size_t>(options.size)),
      have_come_(static_cast<size_t>(options.size)) {
  if (!wake_) fail_system(Code::io, "store: no eventfd", errno);
  check_open_files(static_cast<size_t>(options.size), "store: rank 0",
                   text("the connections of ", options.size, " ranks"));
  // The program's signal handlers must run on the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto body = [](void* self) -> void* {
    static_cast<StoreServer*>(self)->run();
    return nullptr;
  };
  const int answer = pthread_create(&thread_, nullptr, body, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (answer != 0) fail_system(Code::io, "store: rank 0 cannot start the server's thread", answer);
  pthread_setname_np(thread_, "gw-store");
}

StoreServer::~StoreServer() = default;

bool StoreServer::adopt() {
  const std::lock_guard lock(mutex_);
  if (ended_) return false;
  ++owners_;
  ++opens_;
  linger_ = Deadline::never();
  return true;
}

bool StoreServer::ended() {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void StoreServer::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (--owners_ == 0) linger_ = Deadline::after_ms(options_.timeout_ms);
  }
  eventfd_write(wake_.get(), 1);
}

void StoreServer::end_at_exit() {
  {
    const std::lock_guard lock(mutex_);
    exiting_ = true;
    // If a store is still open, the process exits in the middle of its work. Then the server ends at once, so
    // that peers notice.
    linger_ = Deadline::after_ms(owners_ == 0 ? linger_.left_ms(kExitMs) : 0);
    owners_ = 0;
  }
  eventfd_write(wake_.get(), 1);
}

void StoreServer::join() { pthread_join(thread_, nullptr); }

void StoreServer::run() noexcept {
  try {
    while (!finished()) poll_once();
  } catch (const std::exception& error) {
    log(LogLevel::error, text("the store's server ended: ", error.what()));
  }
  waits_.clear();
  connections_.clear();
  const std::lock_guard lock(mutex_);
  listener_.reset();
  ended_ = true;
}

bool StoreServer::finished() {
  const std::lock_guard lock(mutex_);
  if (owners_ > 0) return false;
  if (!linger_.passed() && !everybody_left()) return false;
  // Closed under the lock, because a thread that sees ended_ may listen at the same address at once.
  listener_.reset();
  ended_ = true;
  return true;
}

bool StoreServer::everybody_left() const {
  const bool member = std::any_of(connections_.begin(), connections_.end(), [&](const Connection& c) {
    return c.stage == Connection::Stage::member && !(exiting_ && c.hello.process == process_);
  });
  return !member && std::all_of(leaves_.begin(), leaves_.end(), [&](uint64_t n) { return n >= opens_; });
}

int64_t StoreServer::nap_ms() {
  int64_t nap = 60'000;
  for (const Connection& c : connections_)
    if (c.stage != Connection::Stage::member) nap = c.handshake.left_ms(nap);
  for (const Wait& wait : waits_) nap = wait.deadline.left_ms(nap);
  nap = misfit_ends_all_.left_ms(nap);
  const std::lock_guard lock(mutex_);
  return linger_.left_ms(nap) + 1;
}

void StoreServer::poll_once() {
  std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  for (const Connection& c : connections_) {
    const short in = c.out.size() > kBacklog || c.closing ? 0 : POLLIN;
    fds.push_back({c.socket.get(), static_cast<short>(in | (c.out.empty() ? 0 : POLLOUT)), 0});
  }
  if (poll(fds.data(), fds.size(), static_cast<int>(nap_ms())) < 0 && errno != EINTR)
    fail_system(Code::io, "poll failed", errno);
  eventfd_t ignored;
  if (fds[0].revents != 0) eventfd_read(wake_.get(), &ignored);
  size_t at = 2;
  for (Connection& c : connections_)
    if (fds[at++].revents != 0) serve(c, fds[at - 1].revents);
  expire();
  end_misfit();
  connections_.remove_if([](const Connection& c) { return c.dropped; });
  if (fds[1].revents != 0) accept_some();
}

void StoreServer::accept_some() {
  for (int i = 0; i < 16; ++i) {  // bounded, so that new connections do not delay the members' requests
    Descriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      // A shortage of descriptors lasts; without a pause the loop would spin on the listener.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) usleep(10'000);
      return;
    }
    const auto stranger = [](const Connection& c) { return c.stage != Connection::Stage::member; };
    const size_t most = std::max(kStrangers, 2 * static_cast<size_t>(options_.size));
    if (static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), stranger)) >= most)
      connections_.erase(std::find_if(connections_.begin(), connections_.end(), stranger));
    connections_.emplace_back().socket = std::move(fd);
  }
}

void StoreServer::serve(Connection& c, short events) {
  try {
    if ((events & (POLLOUT | POLLHUP | POLLERR)) != 0) flush(c);
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !c.dropped) read(c);
    // The bytes were malformed, or there is no memory: this connection ends and the others go on.
  } catch (const std::exception& error) {
    log(LogLevel::warning, text("the store's server ended a connection: ", error.what()));
    drop(c);
  }
}

void StoreServer::read(Connection& c) {
  for (int i = 0; i < 64 && !c.dropped && !c.closing && c.out.size() <= kBacklog; ++i) {
    const bool member = c.stage == Connection::Stage::member;
    const size_t due = c.stage == Connection::Stage::hello ? kHelloBytes : kProofBytes;
    const std::span<uint8_t> room = member ? c.reader->room() : std::span(c.bytes).first(due).subspan(c.have);
    const ssize_t n = recv(c.socket.get(), room.data(), room.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      if (c.stage == Connection::Stage::proof) note_stranger(c);
      return drop(c);
    }
    if (member) {
      if (c.reader->filled(static_cast<size_t>(n))) answer(c, c.reader->take());
      continue;
    }
    c.have += static_cast<size_t>(n);
    if (c.have < due) continue;
    c.have = 0;
    if (c.stage == Connection::Stage::hello)
      start_handshake(c);
    else
      end_handshake(c);
  }
}

void StoreServer::start_handshake(Connection& c) {
  if (!decode_hello(c.bytes, c.hello)) return drop(c);
  std::array<uint8_t, 32> nonce{};
  random_bytes(nonce);
  c.transcript = std::make_unique<Transcript>(options_.secret, options_.job, c.bytes, nonce);
  c.stage = Connection::Stage::proof;
  const std::string reply = std::string(as_text(nonce)) + std::string(as_text(c.transcript->server_proof()));
  // A socket that does not take 64 bytes at once belongs to no process that wants to join.
  const ssize_t sent = ::send(c.socket.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(reply.size())) drop(c);
}

void StoreServer::end_handshake(Connection& c) {
  const std::span<const uint8_t, kProofBytes> proof(c.bytes.data(), kProofBytes);
  if (!same_digest(proof, c.transcript->client_proof())) {
    note_stranger(c);
    return drop(c);
  }
  c.reader.emplace(c.transcript->to_server_key());
  c.writer.emplace(c.transcript->to_client_key());
  c.transcript.reset();
  const int rank = static_cast<int>(c.hello.rank);
  const bool twice = std::any_of(connections_.begin(), connections_.end(), [&](const Connection& other) {
    return other.stage == Connection::Stage::member && !other.dropped && other.hello.rank == c.hello.rank &&
           other.hello.process != c.hello.process;
  });
  std::string refusal;
  if (c.hello.size != static_cast<uint32_t>(options_.size))
    refusal = text("rank ", rank, " was started as one of ", c.hello.size, " ranks, rank 0 as one of ",
                   options_.size);
  else if (twice)
    refusal = text("two processes were started as rank ", rank, " of ", options_.size);
  if (refusal.empty()) {
    have_come_[c.hello.rank] = true;
    c.stage = Connection::Stage::member;
    send(c, {.kind = FrameKind::welcome, .wait_ms = 0, .request = 0, .key = "", .value = ""});
  } else {
    c.closing = true;
    send(c, {.kind = FrameKind::refused, .wait_ms = 0, .request = 0, .key = "", .value = refusal});
    if (!twice && !all_have_come() && misfit_.empty()) {
      misfit_ = refusal;
      misfit_ends_all_ = Deadline::after_ms(kMisfitMs);
    }
  }
}

bool StoreServer::all_have_come() const {
  return std::find(have_come_.begin(), have_come_.end(), false) == have_come_.end();
}

// A rank that cannot take part has proved that it belongs to the job, so the others need not wait for it.
// But it may be left from an earlier start, and the right ranks may still be on their way.
void StoreServer::end_misfit() {
  if (!misfit_ends_all_.passed()) return;
  misfit_ends_all_ = Deadline::never();
  if (all_have_come()) return misfit_.clear();
  failure_ = misfit_;
  while (!waits_.empty()) end_wait(waits_.begin(), FrameKind::refused, failure_);
}

void StoreServer::answer(Connection& c, const StoreFrame& question) {
  StoreFrame reply;
  reply.request = question.request;
  if (!failure_.empty()) {
    reply.kind = FrameKind::refused;
    reply.value = failure_;
    return send(c, reply);
  }
  const auto found = values_.find(question.key);
  switch (question.kind) {
    case FrameKind::put:
      values_[question.key] = question.value;
      send(c, reply);
      return answer_waits(question.key);
    case FrameKind::remove: values_.erase(question.key); return send(c, reply);
    case FrameKind::wait:
      if (found == values_.end() && question.wait_ms > 0) {
        if (++c.waits > kWaitsPerMember)
          fail(Code::corrupt, "rank ", c.hello.rank, " waits for too many keys");
        waits_.push_back({&c, question.request, question.key, Deadline::after_ms(question.wait_ms)});
        return;
      }
      [[fallthrough]];
    case FrameKind::get:
      reply.kind = found == values_.end() ? FrameKind::absent : FrameKind::value;
      if (found != values_.end()) reply.value = found->second;
      return send(c, reply);
    case FrameKind::value:
    case FrameKind::absent:
    case FrameKind::done:
    case FrameKind::refused:
    case FrameKind::welcome: fail(Code::corrupt, "rank ", c.hello.rank, " sent an answer, not a question");
  }
}

void StoreServer::answer_waits(const std::string& key) {
  const std::string value = values_.at(key);
  const auto of_key = [&](const Wait& wait) { return wait.key == key; };
  // Starts over after each answer, because an answer that cannot be sent removes other waits too.
  for (auto it = waits_.begin(); (it = std::find_if(waits_.begin(), waits_.end(), of_key)) != waits_.end();)
    end_wait(it, FrameKind::value, value);
}

void StoreServer::expire() {
  for (Connection& c : connections_)
    if (c.stage != Connection::Stage::member && c.handshake.passed()) drop(c);
  const auto over = [](const Wait& wait) { return wait.deadline.passed(); };
  for (auto it = waits_.begin(); (it = std::find_if(waits_.begin(), waits_.end(), over)) != waits_.end();)
    end_wait(it, FrameKind::absent, "");
}

// A member that cannot be answered loses its connection; the others go on.
void StoreServer::end_wait(std::list<Wait>::iterator wait, FrameKind kind, const std::string& value) {
  Connection& c = *wait->connection;
  const uint64_t request = wait->request;
  waits_.erase(wait);
  --c.waits;
  try {
    send(c, {.kind = kind, .wait_ms = 0, .request = request, .key = "", .value = value});
  } catch (const std::exception& error) {
    log(LogLevel::warning, text("the store's server ended a connection: ", error.what()));
    drop(c);
  }
}

void StoreServer::send(Connection& c, const StoreFrame& frame) {
  c.out += c.writer->seal(frame);
  flush(c);
}

void StoreServer::flush(Connection& c) {
  size_t done = 0;
  while (done < c.out.size()) {
    const ssize_t n = ::send(c.socket.get(), c.out.data() + done, c.out.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {
      // The connection is not dropped here, because a caller may be iterating over the waits. poll() reports
      // the hang-up, and read() drops it.
      done = c.out.size();
      break;
    }
    done += static_cast<size_t>(n);
  }
  c.out.erase(0, done);
  if (c.out.empty() && c.closing) drop(c);
}

// Anybody can connect, so this is told and ends nothing.
void StoreServer::note_stranger(const Connection& c) {
  const std::string address = peer_number(c.socket.get());
  const std::string who = text("a process that says it is rank ", c.hello.rank, " of ", c.hello.size,
                               address.empty() ? "" : ", from ", address);
  const char* const what =
      " left without a proof that it knows this gang's secret and job (GANGWAY_SECRET_FILE, GANGWAY_JOB)";
  std::string& noted = values_[kStrangersKey];
  if (noted.find(who) != std::string::npos || noted.size() > kStrangersText) return;
  noted += text("; ", who, what);
  log(LogLevel::warning, text("store: ", who, what));
}

void StoreServer::drop(Connection& c) {
  if (c.dropped) return;
  c.dropped = true;
  waits_.remove_if([&](const Wait& wait) { return wait.connection == &c; });
  if (c.stage == Connection::Stage::member) ++leaves_[c.hello.rank];
}

uint64_t process_number() {
  static const uint64_t number = [] {
    std::array<uint8_t, 8> bytes{};
    random_bytes(bytes);
    uint64_t out = 0;
    for (const uint8_t byte : bytes) out = out << 8 | byte;
    return out;
  }();
  return number;
}

}  // namespace gangway
