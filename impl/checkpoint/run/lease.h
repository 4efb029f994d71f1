// The lease of a run's folder: the file .lease, which names the one job that may change the folder
// (run_folder.h says how it is taken).
//
// Thread rule: one thread at a time; any thread may call renew() between try_take() and give_back().
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/run/lease_file.h"

namespace gangway {

constexpr double kLeaseSeconds = 60;  // without renewal, until a lease is stale

class Lease {
 public:
  explicit Lease(std::string folder) : folder_(std::move(folder)) {}
  ~Lease();  // gives it back; in a forked child it does nothing
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Tries to take it. Returns false while another job's lease is not stale and nothing shows whether that job
  // still runs; the first such call logs one line. A caller that goes on trying gets an answer within
  // `stale_seconds`. INVALID_STATE: another job holds the lease and runs: its process is one of this host, or
  // has renewed or taken the lease since this object's first try. IO.
  bool try_take(const std::string& job, double stale_seconds);
  // INVALID_STATE: this object has not taken it, or another job has taken it since. IO.
  void check() const;
  void renew();  // as check(), and renews the time stamp
  void give_back();

 private:
  std::string path() const;
  // Gives the file `mine`, which has this text, the lease's name. Returns false if there is a lease.
  bool put_into_place(const std::string& mine, const std::string& text) const;
  // Returns whether another job's lease may be taken away; throws if that job runs.
  bool is_void(const FoundLease& found, const LeaseHolder& own, double now, double stale_seconds);
  void remove_leftovers(double now, double seconds) const;

  std::string folder_, token_;      // token_: of the own lease; "": none
  pid_t process_ = 0;               // which took it
  std::optional<FoundLease> seen_;  // the lease at the first try that did not succeed
  std::chrono::steady_clock::time_point seen_since_;
};

}  // namespace gangway
