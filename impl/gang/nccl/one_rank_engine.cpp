#include "gang/nccl/one_rank_engine.h"

#include <atomic>
#include <utility>

#include "gang/nccl/event_work.h"

namespace gangway::nccl {
namespace {

class OneRankEngine final : public Engine {
 public:
  OneRankEngine(std::shared_ptr<Rank> owner, Add add) : owner_(std::move(owner)), add_(add) {}

  const char* name() const override { return "self"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  EngineFacts facts() const override {
    EngineFacts facts;
    facts.has_peers = false;
    facts.moves_device_memory = true;
    return facts;
  }

  WorkPtr run(Channel, std::span<const Collective> span, Stream& stream) override {
    failure_->throw_if();
    for (const Collective& c : span) run_one(c, stream);
    calls_ += span.size();
    auto work = std::make_shared<EventWork>(owner_->device(), failure_, nullptr);
    work->record(stream);
    return work;
  }

  std::shared_ptr<Engine> create(std::span<const int>, const std::string&) override {
    return std::make_shared<OneRankEngine>(owner_, add_);
  }
  std::shared_ptr<Engine> shrink(std::vector<int>&) override {
    return std::make_shared<OneRankEngine>(owner_, add_);
  }
  void abort(const Error& error) noexcept override { failure_->keep(error); }
  std::optional<Error> error() const override { return failure_->get(); }
  void shutdown(Deadline) override {}
  Traffic traffic() const override { return {calls_, 0, 0}; }
  std::vector<FlightEntry> flight_record() const override { return {}; }

 private:
  // Copies or adds the input to the output. A rank cannot send to itself.
  void run_one(const Collective& c, Stream& stream) {
    if (c.op == CollectiveOp::barrier || c.op == CollectiveOp::send || c.op == CollectiveOp::recv) return;
    const size_t count = out_count(c, 0, 1);
    if (count == 0 || (c.in == c.out && !c.accumulate)) return;
    if (c.accumulate) return add_(c.dtype, c.in, c.out, count, stream);
    owner_->device().copy(c.out, c.in, count * item_bytes(c.dtype), stream);
  }

  const std::shared_ptr<Rank> owner_;
  const Add add_;
  const std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
  std::atomic<uint64_t> calls_ = 0;
};

}  // namespace

std::shared_ptr<Engine> make_one_rank_engine(const std::shared_ptr<Rank>& owner, Add add) {
  return std::make_shared<OneRankEngine>(owner, add);
}

}  // namespace gangway::nccl
