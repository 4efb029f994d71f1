// A training step launches collectives on each communicator in an order that depends only on the program,
// because NCCL needs the same order on all ranks. In these tests ranks are late at random and poll their
// works at random times.
#include <chrono>
#include <map>
#include <random>

#include "gang/planes/over_engines.h"
#include "gang/planes/two_planes.h"
#include "train/rig.h"

namespace gangway::test {
namespace {

// An engine that delays calls at random, as do the engines of its subsets.
class Late final : public FewerFacts {
 public:
  Late(std::shared_ptr<Engine> below, unsigned seed) : FewerFacts(below, below->facts()), random_(seed) {}

  Engine& control() override { return below_->control(); }
  void open(Channel channel) override { below_->open(channel); }
  WorkPtr run(Channel channel, std::span<const Collective> span, Stream& stream) override {
    if (random_() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 1000));
    WorkPtr work = below_->run(channel, span, stream);
    if (random_() % 2 == 0) work->poll();
    return work;
  }
  std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string& label) override {
    auto made = below_->create(ranks, label);
    return made == nullptr ? nullptr : std::make_shared<Late>(std::move(made), random_());
  }

 private:
  std::mt19937 random_;
};

struct Program {
  Strategy strategy;
  int replicas;
  bool aborts_in_flight;
};

void train(Gang& root, const Program& program) {
  Rig rig;
  rig.model = make_model(make_decoder(small_llama()), make_gangs(root, program.replicas),
                         parallel(program.strategy, DType::f32));
  rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), {}, rig.model->ops());
  StepOptions options;
  options.microbatches = 2;
  options.max_grad_norm = 0.5;
  for (int i = 0; i < 2; ++i) rig.step(pattern_batch(*rig.model, 2, 8, root.rank() * 5 + i), options);
}

using Launches = std::vector<Launch>;
using ByCommunicator = std::map<std::pair<std::string, Channel>, Launches>;

// The launches of each rank, by communicator.
std::vector<ByCommunicator> launches_of(int size, const Program& program, unsigned seed) {
  std::vector<Launches> all(static_cast<size_t>(size));
  run_over_engines(
      size,
      [&](const std::shared_ptr<Rank>& rank, const std::shared_ptr<Engine>& below) {
        const auto r = static_cast<unsigned>(below->rank());
        const auto control = std::make_shared<SeemsLate>(below, 50 * seed + r);
        return std::make_shared<Late>(two_planes(rank, control, 60'000, &all[r], program.aborts_in_flight),
                                      100 * seed + r);
      },
      [&](Gang& root) { train(root, program); });
  std::vector<ByCommunicator> parts(all.size());
  for (size_t r = 0; r < all.size(); ++r)
    for (const Launch& launch : all[r]) parts[r][{launch.gang, launch.channel}].push_back(launch);
  return parts;
}

TEST(LaunchOrder, OfATrainingStepIsTheProgramsOnEachCommunicatorWhicheverRankIsLate) {
  constexpr int kRanks = 4;
  for (const Program& program :
       {Program{Strategy::full_shard, 1, false}, Program{Strategy::full_shard, 2, false},
        Program{Strategy::shard_grad_op, 2, true}, Program{Strategy::no_shard, 2, false}}) {
    const std::vector<ByCommunicator> first = launches_of(kRanks, program, 0);
    std::map<std::pair<std::string, Channel>, Launches> known;
    for (const ByCommunicator& own : first)
      for (const auto& [communicator, launches] : own) {
        const auto& want = known.emplace(communicator, launches).first->second;
        EXPECT_EQ(launches, want) << communicator.first << ", " << name(communicator.second);
      }
    EXPECT_GE(known.size(), program.strategy == Strategy::no_shard ? 1u : 2u) << "gathers and reductions";
    for (unsigned seed = 1; seed < 4; ++seed) EXPECT_EQ(launches_of(kRanks, program, seed), first) << seed;
  }
}

}  // namespace
}  // namespace gangway::test
