// The connections of one rank to all others of its root gang, and the thread that moves them.
//
// The thread reads and writes all sockets, so bytes move while the rank computes, a call never waits for
// another call's reader, and a peer that dies is seen at once. A thread that waits for a call does the same in
// its place, which spares a change of threads for each message. The network sends beats: a host that does not
// answer them ends its connection (TCP_USER_TIMEOUT), and with liveness_ms a rank that sends none is lost,
// too.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gang/network/connector.h"

namespace gangway::network {

// What a call waits for.
struct Awaited {
  std::string words;
  bool is_active = false;
  // The call waits for the bytes of a peer, and that peer may itself wait for a rank that does not send notes
  // to this one.
  bool is_hearsay = false;
};

class Network {
 public:
  // Starts the thread over connections to all other ranks. When the last copy of the pointer is gone, the
  // network says goodbye and ends on its own, without blocking.
  // `liveness_ms`: a rank that gives no sign of life for so long is lost; 0: never for that reason.
  // `fabric`: of the links that have a wire; may be null.
  static std::shared_ptr<Network> start(int64_t liveness_ms, Connections connections,
                                        std::unique_ptr<Fabric> fabric);

  Network(int64_t liveness_ms, Connections connections, std::unique_ptr<Fabric> fabric);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // --- gangs ---
  void add(const std::shared_ptr<Group>& group);
  void remove(Group& group) noexcept;                           // drops its calls and tells the peers
  void break_group(Group& group, const Error& error) noexcept;  // the first error stays; tells the peers
  std::optional<Error> error_of(const Group& group);
  bool is_gone(const Group& group, int rank);  // the process of this rank has died or left

  // --- calls ---
  // Returns whether earlier calls share the memory of this one, so that it has to be held.
  bool must_wait(const Group& group, const Key& key, const Touched& memory);
  // Begins the call as soon as they have ended.
  void hold(const std::shared_ptr<Group>& group, Group::Held call);
  // Sends the notes of a call. Throws the gang's error if it is broken.
  void begin(const std::shared_ptr<Group>& group, const TransferPtr& transfer);
  // Returns a call whose last arithmetic may run, or null. The caller runs it and calls computed().
  TransferPtr next_to_compute(Group& group);
  void computed(const std::shared_ptr<Group>& group, const TransferPtr& transfer);
  // Returns the note of the next message from `peer` that has come and that no call has taken.
  std::optional<Note> waiting_note(const Group& group, const Key& key);
  Awaited awaited(const Group& group, const Key& key);

  // Moves the bytes of all connections, for a thread that waits for one of its calls. Waits for the sockets at
  // most `ms`, but not if something has happened since version() was `seen`.
  uint64_t version();
  void drive(uint64_t seen, int64_t ms);

  // The root gang was shut down in order, so the process may end without releasing it. Tells the peers, and
  // waits until each has told the same, has left or is lost: what this rank sent last may be under way to
  // one of them for seconds, and is thrown away where a process ends before it has arrived.
  void end_in_order(Deadline deadline);

 private:
  friend class Networks;
  using Lock = std::lock_guard<std::mutex>;

  // network.cpp: the thread
  void run() noexcept;
  bool turn();  // returns false when the network has ended
  void move(int64_t nap_ms, const uint64_t* seen);
  bool has_nothing_left();
  void serve(Link& link, short control, short data);
  void serve_wire(Link& link);
  void hear(Link& link);
  void dial(Link& link);
  void open_connections(bool has_come);  // something, for those that are being made
  void beat();
  void leave() noexcept;
  bool end_now(Deadline patience) noexcept;  // false: the exiting thread may itself hold the mutex
  bool has_ended();
  void wake() noexcept;
  // Around a fork. Between them no thread changes the connections, so the child can close them all.
  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }
  void close_in_child() noexcept;

  // network_calls.cpp
  static bool is_held(const Group& group, const Key& key, const Touched& memory);
  void start(const std::shared_ptr<Group>& group, const TransferPtr& transfer);
  void start_held(const std::shared_ptr<Group>& group);
  void send_note(const std::shared_ptr<Group>& group, const TransferPtr& transfer, int peer);
  void on_note(Link& link, const ControlFrame& frame);
  void take_note(const std::shared_ptr<Group>& group, int from, const Note& note, const std::string& payload);
  void match(const std::shared_ptr<Group>& group, const TransferPtr& transfer, int peer, const Note& note,
             const std::string& payload);
  void queue_ready(const std::shared_ptr<Group>& group, const TransferPtr& transfer);
  bool open_memory(Group& group, const Transfer& transfer, Link& link);
  void deliver_to_self(const std::shared_ptr<Group>& group, const TransferPtr& transfer, size_t piece);
  void chunk_came(const std::shared_ptr<Group>& group, const TransferPtr& transfer, size_t piece);
  void settle(const std::shared_ptr<Group>& group, const TransferPtr& transfer);
  PieceOfCall find(const Link& link, const ChunkHead& head);
  void move_data(Link& link, bool reads);

  // network_failures.cpp
  void on_frame(Link& link, const ControlFrame& frame);
  void on_broken(Group& group, int from, const std::string& body);
  void member_gone(const std::shared_ptr<Group>& group, int rank);
  std::string left_words(const Group& group, int rank) const;
  // `is_own`: this rank is at fault, and the peer may be well. So the others are not told that it is lost:
  // they hear from the peer that this rank is.
  void lose(Link& link, const std::string& why, bool is_own = false) noexcept;
  void stop(Group& group, const Error& error, bool tells) noexcept;
  void tell(Group& group, int32_t code, int peer, const std::string& words, int but) noexcept;
  void post(Link& link, const ControlFrame& frame) noexcept;
  Link* link_to(const Group& group, int rank) const;
  void changed() noexcept;

  const int64_t liveness_ms_;
  const pid_t process_;
  Descriptor wake_;
  std::atomic<int> drivers_ = 0;  // threads that wait for a call and drive the sockets meanwhile
  std::atomic<bool> was_driven_ = false;

  std::mutex mutex_;  // guards all below
  uint64_t version_ = 0;
  const std::unique_ptr<Fabric> fabric_;  // outlives the wires of the links
  std::list<Link> links_;
  std::vector<Link*> by_rank_;  // null: this rank
  Connector connector_;
  std::map<uint64_t, std::shared_ptr<Group>> groups_;
  std::map<uint64_t, std::vector<std::pair<int, ControlFrame>>> strays_;  // frames of gangs to come, by gang
  std::set<uint64_t> closed_;
  bool is_leaving_ = false, is_shut_down_ = false, ended_ = false;
  Deadline linger_ = Deadline::never();
  Deadline::Clock::time_point next_beat_, last_turn_;
};

}  // namespace gangway::network
