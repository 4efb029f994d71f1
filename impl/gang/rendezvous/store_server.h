// The server of a tcp store: one polling thread in rank 0. It limits the number, the lifetime and the message
// size of connections that have not proved that they know the secret. A new connection above the limit
// replaces the oldest of these.
//
// Thread rule: open() and close() from any thread; everything else belongs to the server's thread.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "gang/descriptor.h"
#include "gang/rendezvous/tcp_store_options.h"

namespace gangway {

struct StoreFrame;
enum class FrameKind : uint8_t;

class StoreServer {
 public:
  // Returns the server at this address and for this job. It may already run in this process, for another root
  // gang. Every open() needs one close().
  static std::shared_ptr<StoreServer> open(const TcpStoreOptions& options);

  // Never blocks. The server runs on until every rank has connected and left once for each open() of rank 0,
  // or until timeout_ms has passed.
  void close() noexcept;

  explicit StoreServer(const TcpStoreOptions& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  bool adopt();  // adds an owner; returns false if the server has ended
  bool ended();
  void end_at_exit();  // stops the server as the process ends, but first lets peers leave that are about to
  void join();

 private:
  struct Connection;
  struct Wait;

  void run() noexcept;
  bool finished();
  bool everybody_left() const;
  int64_t nap_ms();
  void poll_once();
  void accept_some();
  void serve(Connection& connection, short events);
  void read(Connection& connection);
  void start_handshake(Connection& connection);
  void end_handshake(Connection& connection);
  void answer(Connection& connection, const StoreFrame& question);
  void answer_waits(const std::string& key);
  void expire();
  void end_wait(std::list<Wait>::iterator wait, FrameKind kind, const std::string& value);
  void send(Connection& connection, const StoreFrame& frame);
  void flush(Connection& connection);
  void drop(Connection& connection);
  void note_stranger(const Connection& connection);
  bool all_have_come() const;
  void end_misfit();

  const TcpStoreOptions options_;
  const uint64_t process_;  // identifies the process of rank 0
  Descriptor listener_;
  Descriptor wake_;  // an eventfd
  pthread_t thread_{};

  std::mutex mutex_;  // guards what the owners and the thread share
  int owners_ = 1;
  uint64_t opens_ = 1;
  bool ended_ = false;
  bool exiting_ = false;
  Deadline linger_ = Deadline::never();

  std::list<Connection> connections_;  // the oldest first
  std::list<Wait> waits_;
  std::map<std::string, std::string> values_;
  std::vector<uint64_t> leaves_;  // how often each rank has left
  std::vector<bool> have_come_;   // by rank
  std::string failure_;           // why the ranks cannot meet; every question gets it
  std::string misfit_;            // of a process that was started with another number of ranks
  Deadline misfit_ends_all_ = Deadline::never();
};

// The key of what the server knows of processes that did not prove that they belong to the ranks.
inline constexpr const char* kStrangersKey = "strangers";

// A random number that tells this process from every other.
uint64_t process_number();

}  // namespace gangway
