// Engines for tests over the threads engine: one that takes fewer records as they are, and says so, and one that
// notices nothing of what goes wrong.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gang/gang.h"
#include "gang/planes/dual_engine.h"
#include "gang/planes/lowering.h"

namespace gangway::test {

// The engine below, by other facts. Throws INTERNAL for a record that the facts do not declare.
class FewerFacts : public Engine {
 public:
  FewerFacts(std::shared_ptr<Engine> below, EngineFacts facts) : below_(std::move(below)), facts_(facts) {}

  const char* name() const override { return "fewer"; }
  int rank() const override { return below_->rank(); }
  int size() const override { return below_->size(); }
  EngineFacts facts() const override { return facts_; }

  WorkPtr run(Channel channel, std::span<const Collective> span, Stream& stream) override {
    if (span.size() > 1 && !facts_.takes_batches) fail(Code::internal, "a batch of ", span.size());
    for (const Collective& c : span) check(c);
    return below_->run(channel, span, stream);
  }

  std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string& label) override {
    auto made = below_->create(ranks, label);
    return made == nullptr ? nullptr : std::make_shared<FewerFacts>(std::move(made), facts_);
  }
  void abort(const Error& error) noexcept override { below_->abort(error); }
  std::optional<Error> error() const override { return below_->error(); }
  void shutdown(Deadline deadline) override { below_->shutdown(deadline); }
  std::shared_ptr<Engine> shrink(std::vector<int>& survivors) override { return below_->shrink(survivors); }
  Traffic traffic() const override { return below_->traffic(); }
  std::vector<FlightEntry> flight_record() const override { return below_->flight_record(); }

 protected:
  void check(const Collective& c) const {
    const bool reduction = c.reduce != Reduce::none;
    const bool narrow = c.dtype == DType::bf16 || c.dtype == DType::f16;
    if (c.counts != nullptr && !facts_.takes_counts)
      fail(Code::internal, "counts of a ", gangway::name(c.op));
    if (c.accumulate && !facts_.takes_accumulate)
      fail(Code::internal, "an accumulating ", gangway::name(c.op));
    if (c.reduce == Reduce::mean && !facts_.takes_mean)
      fail(Code::internal, "a mean by ", gangway::name(c.op));
    if (reduction && narrow && !facts_.takes_narrow_reductions)
      fail(Code::internal, gangway::name(c.op), " of ", gangway::name(c.dtype));
  }

  const std::shared_ptr<Engine> below_;
  const EngineFacts facts_;
};

// Every subset of what can be lowered, by the bits of `subset` (32 of them).
inline EngineFacts facts_of(int subset) {
  EngineFacts facts;
  facts.takes_counts = (subset & 1) != 0;
  facts.takes_accumulate = (subset & 2) != 0;
  facts.takes_mean = (subset & 4) != 0;
  facts.takes_narrow_reductions = (subset & 8) != 0;
  facts.takes_batches = (subset & 16) != 0;
  return facts;
}
constexpr int kSubsets = 32;

}  // namespace gangway::test
