// A data engine that notices nothing, beside a control engine that does; it keeps the order of its launches.
#pragma once

#include <array>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gang/planes/dual_engine.h"
#include "gang/planes/fewer_facts.h"

namespace gangway::test {

// One record as the data engine got it, and the communicator: a gang and a channel of it.
struct Launch {
  std::string gang;
  Channel channel;
  CollectiveOp op;
  DType dtype;
  size_t count;
  bool operator==(const Launch&) const = default;
};

// Moves data by a threads engine of its own. It asserts what such an engine may rely on, and keeps the order of its
// launches.
class Unaware final : public FewerFacts {
 public:
  Unaware(std::shared_ptr<Engine> below, EngineFacts facts, std::vector<Launch>* launches,
          std::string gang = "root")
      : FewerFacts(std::move(below), facts), launches_(launches), gang_(std::move(gang)) {}

  const char* name() const override { return "unaware"; }
  WorkPtr run(Channel channel, std::span<const Collective> span, Stream& stream) override {
    if (channel == Channel::control) fail(Code::internal, "a call of the control plane");
    for (const Collective& c : span)
      if (c.op != CollectiveOp::send && c.op != CollectiveOp::recv && !opened_[static_cast<size_t>(channel)])
        fail(Code::internal, "a collective on a channel that was not opened");
    if (launches_ != nullptr)
      for (const Collective& c : span) launches_->push_back({gang_, channel, c.op, c.dtype, c.count});
    return FewerFacts::run(channel, span, stream);
  }
  void open(Channel channel) override {
    if (std::exchange(opened_[static_cast<size_t>(channel)], true)) fail(Code::internal, "opened again");
  }
  std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string& label) override {
    auto made = below_->create(ranks, label);
    std::string name = gang_ + text("/", made_++, ":");
    for (const int r : ranks) name += text(" ", r);
    return made == nullptr ? nullptr
                           : std::make_shared<Unaware>(std::move(made), facts_, launches_, std::move(name));
  }

 private:
  std::vector<Launch>* const launches_;
  const std::string gang_;
  int made_ = 0;  // gangs of this one
  std::array<bool, kChannels> opened_{};
};

// A control engine whose works come late to those who ask whether they are done: a later call's notes may seem to be
// there before an earlier one's.
class SeemsLate final : public FewerFacts {
 public:
  SeemsLate(std::shared_ptr<Engine> below, unsigned seed)
      : FewerFacts(below, below->facts()), random_(seed) {}

  WorkPtr run(Channel channel, std::span<const Collective> span, Stream& stream) override {
    return std::make_shared<Late>(below_->run(channel, span, stream), static_cast<int>(random_() % 4));
  }
  WorkPtr run_now(Channel channel, std::span<const Collective> span, Stream& stream) override {
    return below_->run_now(channel, span, stream);
  }
  SharedMemory* shared_memory() override { return below_->shared_memory(); }
  std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string& label) override {
    auto made = below_->create(ranks, label);
    return made == nullptr ? nullptr : std::make_shared<SeemsLate>(std::move(made), random_());
  }

 private:
  class Late final : public WaitedWork {
   public:
    Late(WorkPtr work, int asked) : work_(std::move(work)), asked_(asked) {}
    bool poll() override { return work_->poll() && --asked_ < 0; }
    bool poll_input() override { return work_->poll_input(); }
    void wait(Deadline deadline) override { work_->wait(deadline); }
    void wait_input(Deadline deadline) override { work_->wait_input(deadline); }
    std::optional<Error> error() const override { return work_->error(); }

   private:
    const WorkPtr work_;
    std::atomic<int> asked_;  // how often it is not done yet
  };

  std::mt19937 random_;
};

inline std::shared_ptr<Engine> two_planes(const std::shared_ptr<Rank>& rank,
                                          const std::shared_ptr<Engine>& control, int64_t timeout_ms,
                                          std::vector<Launch>* launches = nullptr,
                                          bool aborts_in_flight = false) {
  EngineFacts facts = facts_of(0);
  facts.detects_failures = false;
  facts.aborts_in_flight = aborts_in_flight;
  std::vector<int> all(static_cast<size_t>(control->size()));
  for (int r = 0; r < control->size(); ++r) all[static_cast<size_t>(r)] = r;
  auto data = std::make_shared<Unaware>(control->create(all, "gang"), facts, launches);
  EngineOptions options;
  options.rank = control->rank();
  options.size = control->size();
  options.timeout_ms = timeout_ms;
  return make_dual_engine(lowered(std::move(data), rank), control, rank, options);
}

}  // namespace gangway::test
