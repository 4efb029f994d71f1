// The common base of the self engine and the fake engine: rank and size, the first error, counters, and
// memory of the rank's device.
//
// Thread rule: that of an Engine (gang/engine.h); LocalState under its mutex.
#pragma once

#include <condition_variable>
#include <mutex>

#include "gang/call_log.h"
#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/rank.h"

namespace gangway {

// The state that works share with their engine. It may outlive the engine.
struct LocalState {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Error> error;
  void fail_with(const Error& first) noexcept;  // keeps the first error; wakes all waiters
};

class LocalEngine : public Engine, public SharedMemory {
 public:
  LocalEngine(std::shared_ptr<Rank> rank, const EngineOptions& options);

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  EngineFacts facts() const override { return {.has_peers = false}; }
  SharedMemory* shared_memory() override { return this; }
  void abort(const Error& error) noexcept override;
  std::optional<Error> error() const override;
  void shutdown(Deadline) override {}
  Traffic traffic() const override { return log_.traffic(); }
  std::vector<FlightEntry> flight_record() const override { return log_.flight_record(); }

  // SharedMemory
  std::shared_ptr<Allocator> allocator() override { return rank_->device().allocator(); }
  SharedRegion allocate(size_t bytes) override;
  void publish(std::atomic<uint64_t>& counter, uint64_t value) override;

 protected:
  void throw_if_broken() const;
  // For the counters and the flight record.
  void count(Channel channel, const Collective& c, uint64_t bytes_received);

  std::shared_ptr<Rank> rank_;
  EngineOptions options_;
  std::shared_ptr<LocalState> state_;

 private:
  CallLog log_;
};

// The engine of a gang of one.
std::shared_ptr<Engine> make_self_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options);

}  // namespace gangway
