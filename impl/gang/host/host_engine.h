// The Engine that a gang holds: one rank's core, and what ranks make together: child engines, shared regions,
// and the engine of those that survive a break.
//
// Thread rule: that of an Engine (gang/engine.h).
#pragma once

#include <memory>

#include "gang/engine.h"
#include "gang/host/presence/survivors.h"
#include "gang/host/waiting.h"

namespace gangway::host {

class HostEngine final : public Engine, public SharedMemory {
 public:
  HostEngine(std::shared_ptr<Rank> owner, std::shared_ptr<BlockingCore> core);
  ~HostEngine() override;

  const char* name() const override { return threads_ ? "threads" : "host"; }
  int rank() const override { return core_->team().rank(); }
  int size() const override { return core_->team().size(); }
  EngineFacts facts() const override { return {}; }
  SharedMemory* shared_memory() override { return this; }
  WorkPtr run(Channel channel, std::span<const Collective> span, Stream& stream) override;
  WorkPtr run_now(Channel channel, std::span<const Collective> span, Stream& stream) override;
  std::optional<Message> probe(Channel channel, int peer) override { return core_->probe(channel, peer); }
  std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string& label) override;
  void abort(const Error& error) noexcept override { core_->abort(error); }
  std::optional<Error> error() const override { return core_->error(); }
  void shutdown(Deadline deadline) override { core_->shut_down(deadline); }
  std::shared_ptr<Engine> shrink(std::vector<int>& survivors) override;
  Traffic traffic() const override { return core_->traffic(); }
  std::vector<FlightEntry> flight_record() const override { return core_->flight_record(); }

  // SharedMemory
  std::shared_ptr<Allocator> allocator() override { return allocator_; }
  SharedRegion allocate(size_t bytes) override;
  void publish(std::atomic<uint64_t>& counter, uint64_t value) override {
    core_->publish_counter(counter, value);
  }
  void wait(const std::atomic<uint64_t>& counter, uint64_t at_least, int owner, const char* what) override {
    core_->wait_for_counter(counter, at_least, owner, what);
  }

 private:
  struct Note {
    uint64_t offset = 0, check = 0;
  };
  std::vector<Note> exchange(Note mine);  // every rank's note, over the control channel
  std::shared_ptr<HostEngine> child(uint64_t board, int rank, const std::string& label) const;
  Survivors::Agreed meet_survivors(std::span<const int> survivors);
  const std::string& label() const { return core_->team().label(); }
  Member& member() const { return core_->team().member(); }
  Board& board() const { return core_->team().board(); }

  const std::shared_ptr<Rank> owner_;
  const std::shared_ptr<BlockingCore> core_;
  const bool threads_;
  const std::shared_ptr<Allocator> allocator_;
  Survivors survivors_;
};

}  // namespace gangway::host
