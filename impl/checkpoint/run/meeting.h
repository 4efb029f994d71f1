// Meetings of the writers of all ranks, on a gang of their own, so that they never mix with training's
// collectives.
//
// A meeting polls between sleeps and never blocks in the gang: a writer takes no time from the threads that
// train, its waits are not counted as waits of a training step, and the gang's own deadline, which is meant
// for collectives and may be shorter than the writing of a large checkpoint, does not apply.
//
// Thread rule: one thread at a time; exchange is collective over the gang; stop from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "gang/gang.h"

namespace gangway {

class Meeting {
 public:
  // `tick` is called between polls; it may not throw.
  Meeting(GangPtr gang, std::function<void()> tick) : gang_(std::move(gang)), tick_(std::move(tick)) {}

  const Gang& gang() const { return *gang_; }
  void set_deadline(Deadline deadline) { deadline_ = deadline; }
  // Every rank gives its refusal or nothing, and its bytes. Returns the bytes of all ranks in rank order, or
  // throws the refusal of the lowest rank that has one, on all ranks with one text. Any other failure (a lost
  // peer, the deadline, stop) breaks the gang.
  std::vector<std::string> exchange(const std::optional<Error>& refusal, const std::string& mine);
  // Ends an exchange that is waiting, and breaks the gang.
  void stop() { stopped_ = true; }
  void abort(const Error& error) noexcept { gang_->abort(error); }

 private:
  std::vector<std::string> gather(const std::string& mine);
  void run(const Collective& record);

  GangPtr gang_;
  std::function<void()> tick_;
  Deadline deadline_ = Deadline::never();
  std::atomic<bool> stopped_ = false;
};

}  // namespace gangway
