// The folder of a run: its checkpoints, and who may write to it.
//
//   step-00000500/          a complete checkpoint
//   .writing-500-<id>/      a save in progress, or what a killed save left behind
//   aside-<time>-00000900/  a checkpoint that was newer than one which a run has restored or saved
//   .lease                  names the job that writes here
//
// One rename makes a checkpoint visible, so no reader ever finds half of one. Rank 0 of a run calls all of
// this; the other ranks only write into the path that begin() returned.
//
// The lease is a file, not a lock, since network file systems may not have locks: try_lease() writes job,
// attempt and a random token to a temporary file and links it into place (without hard links, it makes the
// file itself anew); a holder renews its time stamp; everything that changes the folder reads it again. A
// lease is stale after `stale_seconds` without renewal (by the clock of the file system, not of a host), or
// at once if it names a process of this host that has ended. A job that finds a lease of another host or
// container, whose processes it cannot see, waits until the lease is stale or renewed: after a crash a new
// container goes on by itself, and beside a live run it is refused.
//
// Thread rule: one thread at a time, but for renew_lease(), which any thread may call between try_lease() and
// the end of the object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/run/lease.h"

namespace gangway {

class RunFolder {
 public:
  // Creates the folder if it is missing. IO.
  explicit RunFolder(std::string path);
  ~RunFolder() = default;  // gives back the lease
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Tries to take the lease; Lease::try_take says when it returns false. INVALID_STATE: another job holds it
  // and runs; the text names it, its attempt and host, and the age of its last sign. If a process was killed
  // while it replaced a checkpoint, puts that checkpoint back. IO.
  bool try_lease(const std::string& job, double stale_seconds = kLeaseSeconds);
  // Call it several times within `stale_seconds`. INVALID_STATE: another job has taken the lease. IO.
  void renew_lease();
  void give_back_lease();

  // Returns the steps of the complete checkpoints, ascending. IO.
  std::vector<int64_t> steps() const;
  std::string path_of(int64_t step) const;  // of a complete checkpoint

  // All of the following but abandon(): INVALID_STATE: this object does not hold the lease. IO.

  // Removes what killed saves left, makes the folder of a new save and returns its absolute path.
  std::string begin(int64_t step);
  // Syncs all files of the save of begin(), makes it visible by one rename, and syncs that. A complete
  // checkpoint of the same step is replaced: both change places in one step, or, where the file system cannot
  // do that, the old one is first renamed aside. It is removed afterwards. INVALID_STATE: no state.json.
  void commit(int64_t step, const std::string& writing);
  // Removes the oldest complete checkpoints until `keep` are left; keep < 1: none is removed. Checkpoints
  // in a row between which no optimizer has made a step count as one, of which the newest and the oldest
  // stay: those of a run that skips its steps must not push out the last good one. It first renames a
  // checkpoint to a hidden name, so that a reader never finds one with files missing.
  void remove_old(int keep);
  // Renames the complete checkpoints newer than `step`, the newest first; returns their new paths, ascending.
  std::vector<std::string> move_aside_newer_than(int64_t step);
  // Removes the folder of a save that failed. Reports nothing.
  void abandon(const std::string& writing) noexcept;

 private:
  void rename(const std::string& from, const std::string& to) const;
  void put_replaced_back() const;
  std::vector<int64_t> old_steps(int keep) const;
  void remove_leftovers() const;

  std::string path_;  // absolute
  Lease lease_;
};

}  // namespace gangway
