// One rank's side of an engine, through which all of its calls go. A core refuses a call, starts it, or
// drives it to its end at once. host.h says which part does what.
//
// Works, and the rank's list of outstanding work, hold the core, so it may outlive the engine object of its
// gang.
//
// Thread rule: any thread of the rank. One mutex guards everything but the board.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "gang/engine.h"
#include "gang/host/call/work.h"
#include "gang/host/calls.h"
#include "gang/host/failure.h"
#include "gang/host/presence/team.h"
#include "gang/rank.h"

namespace gangway::host {

class Core : public Progressive, public Driver {
 public:
  Core(std::shared_ptr<Works> owner, std::shared_ptr<Member> member, std::unique_ptr<Board> board, int rank,
       int64_t timeout_ms, std::string label);

  WorkPtr run(Channel channel, std::span<const Collective> span);
  // For a caller who will block. Most calls end while the mutex is held once. They need no work, and the
  // result is null.
  WorkPtr run_now(Channel channel, std::span<const Collective> span);
  std::optional<Message> probe(Channel channel, int peer);  // Engine::probe
  bool poll(HostWork& work, uint32_t states) override;      // Driver
  bool progress() override;                                 // Progressive
  void end() noexcept override;  // Progressive: the rank ends, so calls in flight fail
  // The engine object is being destroyed: marks that this rank leaves, and ends the calls whose works no
  // caller holds. The other calls go on until their last work or the rank is destroyed.
  void release() noexcept;
  void abort(const Error& error) noexcept;
  std::optional<Error> error();
  Traffic traffic() const;
  std::vector<FlightEntry> flight_record() const;

  // The functions below serve works and waits.
  // Throws after a fork, in a broken engine and after shutdown, else registers the calling thread. `call` is
  // the name of a call that is no collective.
  void enter(Channel channel, const Collective* c, const char* call = "");
  // Drives all calls up to `turns` times. Returns whether the work is in one of `states`.
  bool drive(HostWork& work, uint32_t states, int turns);
  // Drives every call once. An error breaks the engine. Under the mutex.
  void turn();
  void set_shut_down();

  Works& owner() const { return *owner_; }
  const std::shared_ptr<Works>& owner_ptr() const { return owner_; }
  int64_t timeout_ms() const { return timeout_ms_; }
  Team& team() { return team_; }
  std::mutex& mutex() const { return mutex_; }
  Calls& calls() { return calls_; }  // under the mutex, except Calls::moves()
  Failure& failure() { return failure_; }

 private:
  void start(const std::shared_ptr<HostWork>& work, Channel channel, std::span<const Collective> span,
             Op* begun);
  template <typename Step>
  void or_break(Step&& step);  // breaks the engine if `step` throws

  const std::shared_ptr<Works> owner_;  // not the rank, whose list holds this object
  const int64_t timeout_ms_;
  Team team_;
  mutable std::mutex mutex_;
  Calls calls_;
  Failure failure_;
  WorkPool works_;
  std::atomic<int> aborts_{0};  // how many calls of abort() wait for the mutex
  bool listed_ = false;         // this object is on the rank's list
  bool shut_down_ = false;
};

}  // namespace gangway::host
