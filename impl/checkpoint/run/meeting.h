// Meetings of the writers of all ranks, on a gang of their own, so that they never mix with training's
// collectives.
//
// A meeting polls between sleeps and never blocks in the gang: a writer takes no time from the threads that
// train, its waits are not counted as waits of a training step, and the gang's own deadline, which is meant
// for collectives and may be shorter than the writing of a large checkpoint, does not apply.
//
// Thread rule: one thread at a time; exchange is collective over the gang.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "gang/gang.h"

namespace gangway {

class Meeting {
 public:
  explicit Meeting(GangPtr gang) : gang_(std::move(gang)) {}

  const Gang& gang() const { return *gang_; }
  void set_deadline(Deadline deadline) { deadline_ = deadline; }
  // Every rank gives its refusal or nothing, and its bytes. Returns the bytes of all ranks in rank order, or
  // throws the refusal of the lowest rank that has one, on all ranks with one text. Any other failure (a lost
  // peer, the deadline, an interrupt) breaks the gang.
  std::vector<std::string> exchange(const std::optional<Error>& refusal, const std::string& mine);

 private:
  std::vector<std::string> gather(const std::string& mine);
  void run(const Collective& record);

  GangPtr gang_;
  Deadline deadline_ = Deadline::never();
};

}  // namespace gangway
