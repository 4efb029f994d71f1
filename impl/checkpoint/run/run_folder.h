// The folder of a run: its checkpoints, and who may write to it.
//
//   step-00000500/          a complete checkpoint
//   .writing-500-<id>/      a save in progress, or the rest of one that was killed
//   aside-<time>-00000900/  a checkpoint newer than the one that a restore resumed from
//   .lease                  names the job and attempt that writes here
//
// One rename makes a checkpoint visible, so no reader ever finds half of one. Rank 0 of a run calls all of
// this; the other ranks only write into the path that begin() returned.
//
// The lease is a file, not a lock, since network file systems may not have locks: take_lease() writes job,
// attempt and a random token to a temporary file and links it into place; a holder renews its time stamp;
// commit() reads it again. A lease is stale after `stale_seconds` without renewal, or at once if it names a
// process of this host that has ended.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gangway {

class RunFolder {
 public:
  // Creates the folder if it is missing. IO.
  explicit RunFolder(std::string path);
  ~RunFolder();  // gives back the lease
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // INVALID_STATE: another job holds the lease; the text names it, its host and the age of its last sign.
  void take_lease(const std::string& job, double stale_seconds = 60);
  void renew_lease();  // INVALID_STATE: another job has taken it
  void give_back_lease();

  // Returns the steps of the complete checkpoints, ascending. IO.
  std::vector<int64_t> steps() const;
  std::string path_of(int64_t step) const;  // of a complete checkpoint

  // Removes what killed saves left, makes the folder of a new save and returns its absolute path. IO.
  std::string begin(int64_t step);
  // Makes the save of begin() visible, and syncs. Checks the lease again. A complete checkpoint of the same
  // step is replaced: it is first renamed aside, and removed afterwards. IO, INVALID_STATE.
  void commit(int64_t step, const std::string& writing);
  // Removes the oldest complete checkpoints until `keep` are left; keep < 1: none is removed. It first renames
  // a checkpoint to a hidden name, so that a reader never finds one with files missing.
  void remove_old(int keep);
  // Renames the complete checkpoints newer than `step`; returns their new paths.
  std::vector<std::string> move_aside_newer_than(int64_t step);
  // Removes the folder of a save that failed. Reports nothing.
  void abandon(const std::string& writing) noexcept;

 private:
  std::string path_, token_;
};

}  // namespace gangway
