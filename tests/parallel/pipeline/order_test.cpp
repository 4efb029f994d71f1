// The actions that a rank runs in a pass, and the bytes that it receives, over a recording fake gang without
// waits. The actions are those of the rank's row, each once and in order, and the bytes are those of a
// formula.
#include <gtest/gtest.h>

#include "gang/local/fake.h"
#include "ops/ops.h"
#include "parallel/pipeline/communication.h"
#include "parallel/pipeline/generators.h"
#include "parallel/pipeline/pass.h"

namespace gangway {
namespace {

constexpr int64_t kElements = 3;
constexpr uint64_t kBytes = kElements * sizeof(float);

// Every stage takes one small tensor.
class OneTensor final : public KnownSpecs {
 public:
  const Specs* inputs_of(int, int) const override { return &specs_; }

 private:
  const Specs specs_ = {{DType::f32, Shape{kElements}}};
};

// One rank of a pipeline without peers.
class LoneRank {
 public:
  LoneRank(int rank, const Schedule& schedule)
      : gang_(Gang::create_fake(rank, schedule.ranks(), one_thread(), /*record=*/true)),
        ops_(make_ops(gang_->owner()->device_ptr())),
        messages_(gang_, *ops_, schedule.stage_rank),
        tensor_(Tensor::allocate(gang_->device().allocator(), DType::f32, Shape{kElements})) {}

  // Runs a pass and returns its actions, without the waits.
  ScheduleRow pass(const Schedule& schedule) {
    std::vector<TraceEvent> events;
    Stream& stream = gang_->device().stream();
    SchedulePass pass(messages_, schedule, gang_->rank(), false, &known_, &events);
    for (PassAction action; pass.next(action, stream);) {
      const bool gives = action.kind == ActionKind::forward ? action.stage + 1 < schedule.stages()
                         : action.kind == ActionKind::backward || action.kind == ActionKind::input_gradient
                             ? action.stage > 0
                             : false;
      pass.done(gives ? std::span<const Tensor>(&tensor_, 1) : std::span<const Tensor>(), stream);
    }
    ScheduleRow row;
    for (const TraceEvent& event : events)
      if (event.kind != TraceEvent::Kind::wait) row.push_back(event.action);
    return row;
  }

  // The bytes received so far in messages between stages.
  uint64_t received() const {
    uint64_t bytes = 0;
    for (const GangPtr& gang : messages_.gangs())
      for (const RecordedCollective& c : recorded(gang->engine()))
        if (c.op == CollectiveOp::recv) bytes += c.bytes;
    return bytes;
  }

 private:
  static GangOptions one_thread() {
    GangOptions options;
    options.threads = 1;
    return options;
  }
  const GangPtr gang_;
  const std::unique_ptr<Ops> ops_;
  Messages messages_;
  const OneTensor known_;
  const Tensor tensor_;
};

// M outputs for each stage whose previous stage is on another rank, and M gradients for each whose next stage
// is.
uint64_t formula(const Schedule& schedule, int rank) {
  uint64_t messages = 0;
  for (int s = 1; s < schedule.stages(); ++s) {
    const int from = schedule.stage_rank[static_cast<size_t>(s - 1)],
              to = schedule.stage_rank[static_cast<size_t>(s)];
    if (from != to) messages += static_cast<uint64_t>((to == rank) + (from == rank));
  }
  return messages * static_cast<uint64_t>(schedule.microbatches) * kBytes;
}

// The schedules of one name and shape with 1 to 32 microbatches.
std::vector<Schedule> schedules(const std::string& name, int ranks, int stages_per_rank) {
  std::vector<Schedule> all;
  for (int m = 1; m <= 32; ++m) try {
      all.push_back(with_communication(make_schedule(name, {ranks, m, stages_per_rank})));
    } catch (const Error&) {
      // The schedule does not allow this number.
    }
  return all;
}

ScheduleRow unfused(ScheduleRow row) {
  for (Action& action : row) action.fused_next = false;
  return row;
}

TEST(PassOrder, IsThatOfTheScheduleForAllSizesAndSoAreTheBytes) {
  size_t passes = 0;
  for (const std::string& name : schedule_names())
    for (int ranks = 1; ranks <= 8; ++ranks)
      for (int v = 1; v <= 4; ++v) {
        const std::vector<Schedule> all = schedules(name, ranks, v);
        for (int r = 0; r < ranks && !all.empty(); ++r) {
          LoneRank rank(r, all[0]);
          for (const Schedule& schedule : all) {
            const uint64_t before = rank.received();
            ASSERT_EQ(unfused(rank.pass(schedule)), unfused(schedule.rows[static_cast<size_t>(r)]))
                << to_csv(schedule);
            ASSERT_EQ(rank.received() - before, formula(schedule, r)) << to_csv(schedule);
            ++passes;
          }
        }
      }
  EXPECT_GT(passes, 15000u);
}

}  // namespace
}  // namespace gangway
