#include "gang/rendezvous/tcp_store.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "gang/rendezvous/frames.h"
#include "gang/rendezvous/handshake.h"
#include "gang/rendezvous/resolve.h"
#include "gang/rendezvous/store_common.h"
#include "gang/rendezvous/store_server.h"
#include "gang/rendezvous/store_socket.h"

namespace gangway {
namespace {

constexpr int64_t kWaitSliceMs = 1000;  // the server drops a wait after this time; the client asks again
constexpr int64_t kLateMs = 500;        // how much later than wait_ms the answer to a wait may come
constexpr int64_t kAttemptMs = 10'000;  // the time for one handshake

// Thrown if the connection breaks. The handshake is then tried again, unlike after a wrong secret.
struct Dropped {};

void send_all(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0)
      bytes.remove_prefix(static_cast<size_t>(n));
    else if (errno != EINTR && errno != EAGAIN)
      throw Dropped{};
    else if (!wait_ready(fd, POLLOUT, deadline))
      throw Dropped{};
  }
}

void receive_all(int fd, std::span<uint8_t> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = recv(fd, bytes.data(), bytes.size(), 0);
    if (n > 0)
      bytes = bytes.subspan(static_cast<size_t>(n));
    else if (n == 0 || (errno != EINTR && errno != EAGAIN))
      throw Dropped{};
    else if (!wait_ready(fd, POLLIN, deadline))
      throw Dropped{};
  }
}

// The client's end of one connection, after the handshake.
struct Link {
  Descriptor socket;
  FrameReader reader;
  FrameWriter writer;
};

StoreFrame receive_frame(Link& link, Deadline deadline) {
  while (true) {
    const std::span<uint8_t> room = link.reader.room();
    receive_all(link.socket.get(), room, deadline);
    if (link.reader.filled(room.size())) return link.reader.take();
  }
}

Link shake_hands(Descriptor socket, const TcpStoreOptions& options, Deadline deadline) {
  Hello hello;
  hello.rank = static_cast<uint32_t>(options.rank);
  hello.size = static_cast<uint32_t>(options.size);
  hello.process = process_number();
  random_bytes(hello.nonce);
  const auto greeting = encode_hello(hello);
  send_all(socket.get(), as_text(greeting), deadline);
  std::array<uint8_t, kAnswerBytes> reply{};
  receive_all(socket.get(), reply, deadline);
  const std::span<const uint8_t, kAnswerBytes> bytes(reply);
  const Transcript transcript(options.secret, options.job, greeting, bytes.first<32>());
  if (!same_digest(bytes.last<32>(), transcript.server_proof()))
    fail(Code::gang, "store: what listens on ", store_place(options),
         " does not know this gang's secret or job");
  send_all(socket.get(), as_text(transcript.client_proof()), deadline);
  Link link{std::move(socket), FrameReader(transcript.to_client_key()),
            FrameWriter(transcript.to_server_key())};
  const StoreFrame first = receive_frame(link, deadline);
  if (first.kind == FrameKind::refused) fail(Code::invalid_argument, "store: ", first.value);
  if (first.kind != FrameKind::welcome) fail(Code::corrupt, "store: the server did not begin with a welcome");
  return link;
}

Link join(const TcpStoreOptions& options) {
  const Deadline deadline = Deadline::after_ms(options.timeout_ms);
  StoreBackoff backoff(deadline);
  do {
    try {
      Descriptor socket = store_connect(options, deadline);
      const Deadline attempt = Deadline::after_ms(deadline.left_ms(kAttemptMs));
      if (socket) return shake_hands(std::move(socket), options, attempt);
    } catch (const Dropped&) {  // the server is ending, or had too many connections
    }
  } while (backoff.pause());
  fail(Code::timeout, "store: rank ", options.rank, " could not reach rank 0 on ", store_place(options),
       " within ", options.timeout_ms, " ms",
       options.host.empty() ? "; if ranks are in several containers, these are network namespaces of their "
                              "own, whose sockets do not meet: "
                              "start the ranks in one, or give all of them the MASTER_ADDR of rank 0"
                            : "");
}

class TcpStore final : public Store {
 public:
  TcpStore(const TcpStoreOptions& options, std::shared_ptr<StoreServer> server)
      : options_(options), server_(std::move(server)), link_(join(options)) {}

  // For the server the end of the connection means that this rank leaves.
  ~TcpStore() override {
    if (getpid() != process_) return;
    link_.socket.reset();
    if (server_ != nullptr) server_->close();
  }
  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;

  StoreFacts facts() const override {
    StoreFacts facts;
    facts.key = Secret(hmac_sha256(options_.secret, {"gang network", options_.job}));
    facts.spans_hosts = !options_.host.empty();
    if (!facts.spans_hosts) return facts;
    facts.own_address = local_number(link_.socket.get());
    facts.server_address = peer_number(link_.socket.get());
    return facts;
  }

  std::string refused() override { return get(kStrangersKey).value_or(""); }

  void put(const std::string& key, const std::string& value) override {
    check_store_value(key, value);
    call(FrameKind::put, key, value, 0);
  }

  std::optional<std::string> get(const std::string& key) override {
    check_store_key(key);
    StoreFrame answer = call(FrameKind::get, key, "", 0);
    return answer.kind == FrameKind::value ? std::optional(std::move(answer.value)) : std::nullopt;
  }

  void remove(const std::string& key) override {
    check_store_key(key);
    call(FrameKind::remove, key, "", 0);
  }

  std::string wait(const std::string& key, Deadline deadline) override {
    check_store_key(key);
    while (true) {
      StoreFrame answer =
          call(FrameKind::wait, key, "", static_cast<uint32_t>(deadline.left_ms(kWaitSliceMs)));
      if (answer.kind == FrameKind::value) return std::move(answer.value);
      if (deadline.passed()) fail_store_wait(key);
    }
  }

 private:
  StoreFrame call(FrameKind kind, const std::string& key, const std::string& value, uint32_t wait_ms);
  uint64_t ask(std::unique_lock<std::mutex>& lock, StoreFrame question, Deadline deadline);
  void nap_for_turn(std::unique_lock<std::mutex>& lock);
  void listen_once();
  void give_up(Error error);

  const TcpStoreOptions options_;
  const std::shared_ptr<StoreServer> server_;
  const pid_t process_ = getpid();
  // The writer belongs to the thread that set writing_, the reader to the one that set reading_.
  Link link_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool reading_ = false, writing_ = false;
  uint64_t next_request_ = 1;
  std::map<uint64_t, std::optional<StoreFrame>> answers_;  // by request; empty until the answer has come
  std::optional<Error> broken_;
};

// Several threads may send requests over the one connection at the same time. A thread that waits for its
// answer reads for all of them, if no other thread is reading.
StoreFrame TcpStore::call(FrameKind kind, const std::string& key, const std::string& value,
                          uint32_t wait_ms) {
  if (getpid() != process_) fail(Code::forked, "store: this process was forked from rank ", options_.rank);
  poll_interrupt();
  const bool waits = kind == FrameKind::wait;
  const Deadline deadline =
      Deadline::after_ms(waits ? wait_ms + std::min(options_.timeout_ms, kLateMs) : options_.timeout_ms);
  std::unique_lock lock(mutex_);
  const uint64_t request =
      ask(lock, {.kind = kind, .wait_ms = wait_ms, .request = 0, .key = key, .value = value}, deadline);
  while (true) {
    const auto mine = answers_.find(request);
    if (mine->second.has_value()) {
      StoreFrame answer = *std::move(mine->second);
      answers_.erase(mine);
      if (answer.kind == FrameKind::refused) fail(Code::invalid_argument, "store: ", answer.value);
      return answer;
    }
    // The server did not answer in time, and the caller's deadline has passed.
    if (!broken_ && waits && deadline.passed()) {
      answers_.erase(mine);
      StoreFrame nothing;
      nothing.kind = FrameKind::absent;
      return nothing;
    }
    if (!broken_ && deadline.passed())
      give_up(Error(Code::timeout, text("store: rank 0 did not answer within ", options_.timeout_ms, " ms")));
    if (broken_) {
      answers_.erase(mine);
      throw Error(*broken_);
    }
    try {
      if (reading_) {
        nap_for_turn(lock);
      } else {
        reading_ = true;
        lock.unlock();
        listen_once();
        lock.lock();
        reading_ = false;
        changed_.notify_all();
        lock.unlock();
        poll_interrupt();
        lock.lock();
      }
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      answers_.erase(request);  // so that a late answer is ignored
      throw;
    }
  }
}

// Waits up to 50 ms for a change of the shared state. Then it calls the interrupt hook, without the mutex,
// because the hook may take long.
void TcpStore::nap_for_turn(std::unique_lock<std::mutex>& lock) {
  changed_.wait_for(lock, std::chrono::milliseconds(kNapMs));
  lock.unlock();
  poll_interrupt();
  lock.lock();
}

// Sends a request and returns its number. One thread writes at a time, so requests are sent in the order of
// their numbers. The mutex is not held while it sends.
uint64_t TcpStore::ask(std::unique_lock<std::mutex>& lock, StoreFrame question, Deadline deadline) {
  while (writing_ && !broken_) nap_for_turn(lock);
  if (broken_) throw Error(*broken_);
  question.request = next_request_++;
  answers_[question.request];  // before the answer can come
  writing_ = true;
  lock.unlock();
  std::optional<Error> end;
  std::exception_ptr reason;
  try {
    send_all(link_.socket.get(), link_.writer.seal(question), deadline);
  } catch (const Dropped&) {
    end = Error(Code::peer_lost, "store: the connection to rank 0 ended");
  } catch (const Error& error) {  // the interrupt hook threw while half a frame was sent
    end = error;
    reason = std::current_exception();
  } catch (const std::exception& error) {
    end = Error(Code::internal, text("store: a question could not be sent: ", error.what()));
  }
  lock.lock();
  writing_ = false;
  changed_.notify_all();
  if (!end) return question.request;
  answers_.erase(question.request);
  give_up(*std::move(end));
  if (reason) std::rethrow_exception(reason);
  throw Error(*broken_);
}

// Reads the answers that have arrived. If there are none, it first waits up to 50 ms.
void TcpStore::listen_once() {
  std::vector<StoreFrame> arrived;
  std::optional<Error> end;
  try {
    pollfd one{link_.socket.get(), POLLIN, 0};
    poll(&one, 1, static_cast<int>(kNapMs));
    while (true) {
      const std::span<uint8_t> room = link_.reader.room();
      const ssize_t n = recv(link_.socket.get(), room.data(), room.size(), 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (n <= 0) fail(Code::peer_lost, "store: the connection to rank 0 ended");
      if (link_.reader.filled(static_cast<size_t>(n))) arrived.push_back(link_.reader.take());
    }
  } catch (const Error& error) {
    end = error;
  } catch (const std::exception& error) {
    end = Error(Code::internal, text("store: an answer could not be read: ", error.what()));
  }
  const std::lock_guard lock(mutex_);
  for (StoreFrame& frame : arrived) {
    const auto asked = answers_.find(frame.request);
    if (asked != answers_.end()) asked->second = std::move(frame);
  }
  if (end) give_up(*std::move(end));
}

void TcpStore::give_up(Error error) {
  if (broken_) return;
  error.rank = options_.rank;
  if (error.code() == Code::peer_lost) error.peer = 0;
  broken_ = std::move(error);
}

void check(const TcpStoreOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    fail(Code::invalid_argument, "store: rank ", options.rank, " is outside [0, ", options.size, ")");
  if (!options.host.empty() && (options.port < 1 || options.port > 65535))
    fail(Code::invalid_argument, "store: port ", options.port, " is outside [1, 65535]");
  if (options.timeout_ms < 1)
    fail(Code::invalid_argument, "store: a timeout of ", options.timeout_ms, " ms is not positive");
}

}  // namespace

std::shared_ptr<Store> make_tcp_store(const TcpStoreOptions& options) {
  check(options);
  const std::shared_ptr<StoreServer> server = options.rank == 0 ? StoreServer::open(options) : nullptr;
  try {
    return std::make_shared<TcpStore>(options, server);
  } catch (...) {
    if (server != nullptr) server->close();
    throw;
  }
}

}  // namespace gangway
