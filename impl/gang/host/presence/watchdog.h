// The watchdog thread of a process rank. It registers a robust lock word for as long as the rank lives, so that
// the kernel marks the word when the process dies, before it frees any memory. The threads form a ring: each
// sleeps on the word of the next live rank, reports its death, wakes everyone and moves on. Beside that it
// looks at the others' processes (pidfd; a process that crashed keeps its word until its core file is written) and, with a
// liveness limit, at their heartbeats.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "gang/host/presence/member.h"

namespace gangway::host {

class Watchdog {
 public:
  explicit Watchdog(Member& member);  // returns when the word is held
  ~Watchdog();                        // marks the word as left, joins
  void forget() noexcept;             // in a forked child, where the thread does not exist; leaks *this

 private:
  struct Peer {
    int pidfd = -1;
    bool opened = false;
    uint64_t heartbeat = 0;
    int64_t seen_ns = 0;
    bool half_lost = false;  // another rank was reporting it at the last look
  };

  void run();
  int next_alive() const;
  void watch(int next);
  void look_around();
  bool look_at(int r);  // true: its process has ended, or crashed
  Loss loss_of(int r, bool dead) const;

  Member& member_;
  const int64_t liveness_ms_;
  const int64_t tick_ns_;
  std::atomic<bool> stop_{false}, ready_{false}, ended_{false};
  std::vector<Peer> peers_;
  int64_t looked_ns_ = 0;
  std::thread thread_;
};

}  // namespace gangway::host
