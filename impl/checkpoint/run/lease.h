// The lease of a run's folder: the file .lease, which names the one job that may change the folder
// (run_folder.h says how it is taken).
//
// Thread rule: one thread at a time.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

namespace gangway {

class Lease {
 public:
  explicit Lease(std::string folder) : folder_(std::move(folder)) {}
  ~Lease();  // gives it back; in a forked child it does nothing
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // INVALID_STATE: another job holds it, and is not stale. IO.
  void take(const std::string& job, double stale_seconds);
  // INVALID_STATE: this object has not taken it, or another job has taken it since. IO.
  void check() const;
  void renew();  // as check(), and renews the time stamp
  void give_back();

 private:
  std::string path() const;
  // Gives the file `mine`, which has this text, the lease's name. Returns false if there is a lease.
  bool put_into_place(const std::string& mine, const std::string& text) const;
  void remove_leftovers(double now, double seconds) const;

  std::string folder_, token_;  // token_: of the own lease; "": none
  pid_t process_ = 0;           // which took it
};

}  // namespace gangway
