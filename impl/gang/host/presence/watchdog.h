// The watchdog thread of a rank that is a process. It holds a robust lock as long as the rank lives; the
// kernel marks the lock when the process dies, before it frees any memory. The watchdogs form a ring: each
// sleeps on the lock of the next live rank, reports that rank's death, wakes everyone and moves on to the
// next.
//
// Besides that, a watchdog looks at the other processes through their pidfds, because a crashing process
// keeps its lock until its core file is written. With a liveness limit it also checks their heartbeats.
//
// Thread rule: made and destroyed by one thread.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "gang/host/presence/member.h"

namespace gangway::host {

class Watchdog {
 public:
  explicit Watchdog(Member& member);        // returns when the thread holds its lock
  ~Watchdog();                              // marks a clean end, and joins the thread
  void forget() noexcept;                   // for a forked child, which has no such thread
  int64_t silent_ms(int r) const noexcept;  // how long ago r's heartbeat changed; any thread

 private:
  struct Peer {
    int pidfd = -1;
    bool opened = false, ended = false;
    uint64_t heartbeat = 0;
    std::atomic<int64_t> seen_ns{0};
    bool half_lost = false;  // at the last check another rank was writing the report of its loss
  };

  void run();
  int next_alive() const;
  void watch(int next);
  void look_around();
  void open_peers();
  void poll_peers();
  bool is_dead(int r) const;  // whether r's process has ended or crashed, as of poll_peers()
  Loss loss_of(int r, bool dead) const;

  Member& member_;
  const int64_t liveness_ms_;
  const int64_t tick_ns_;
  std::atomic<bool> stop_{false}, ready_{false}, ended_{false};
  std::vector<Peer> peers_;
  std::vector<pollfd> polls_;  // one for each peer
  int64_t looked_ns_ = 0;
  std::thread thread_;
};

}  // namespace gangway::host
