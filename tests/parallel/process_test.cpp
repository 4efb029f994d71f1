// Sharded models with ranks that are processes: the same bits as with threads, and full values that no rank
// can write.
#include <xxhash.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "gang/processes.h"
#include "parallel/parallel_testing.h"

namespace gangway::test {
namespace {

int64_t hash(const StepValues& values) {
  uint64_t h = XXH3_64bits(&values.loss, sizeof values.loss);
  h = XXH3_64bits_withSeed(&values.norm, sizeof values.norm, h);
  for (const auto& [name, gradient] : values.gradients)
    h = XXH3_64bits_withSeed(gradient.data(), gradient.size() * sizeof(double), h);
  return static_cast<int64_t>(h);
}

// The permissions with which this process maps the page of `address`, such as "r--s".
std::string permissions(const void* address) {
  std::ifstream maps("/proc/self/maps");
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (std::string line; std::getline(maps, line);) {
    const size_t dash = line.find('-'), space = line.find(' ');
    if (std::stoull(line.substr(0, dash), nullptr, 16) <= at &&
        at < std::stoull(line.substr(dash + 1, space - dash - 1), nullptr, 16))
      return line.substr(space + 1, 4);
  }
  return "not mapped";
}

ParallelOptions options_of(Strategy strategy, DType master) {
  ParallelOptions options;
  options.shard.strategy = strategy;
  options.master_dtype = master;
  return options;
}

GangOptions place_of(int rank, int size, const std::shared_ptr<Store>& store) {
  GangOptions options = thread_rank_options();
  options.rank = rank;
  options.size = size;
  options.store = store;
  return options;
}

// Runs two updates while rank 1 is held between an unshard and its use of the values.
void expect_version_gate(Model& model, int rank) {
  Stream& stream = model.device().stream();
  ParameterGroup& group = *model.fsdp().groups().at(1);
  const Parameter& p = *group.parameters()[0].parameter;
  for (int step = 0; step < 2; ++step) {
    group.unshard(stream);
    EXPECT_EQ(permissions(p.value.raw()), "r--s") << "full values";
    if (p.shard.count() != 0) {
      EXPECT_EQ(permissions(p.shard.raw()), "rw-s") << "own rows";
    }
    const Vector before = get(p.value);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(get(p.value), before);
    group.reshard();
    model.run().begin_update(stream);
    if (p.shard.count() != 0) model.ops().scale(p.shard, 2, stream);
    model.run().end_update(stream);
    group.unshard(stream);
    Vector twice = before;
    for (double& x : twice) x *= 2;
    EXPECT_EQ(get(p.value), twice);
    group.reshard();
  }
}

// A process must not fork after it has had gangs, so the threads run in a child of their own.
TEST(Processes, SameBitsAsThreadsAndReadOnlyFullValues) {
  const Reference reference("llama_parity");
  const Strategy strategies[] = {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard};
  for (const int size : {2, 4}) {
    Processes ranks(size, [&](int rank, const std::shared_ptr<Store>& store, Report& report) {
      const GangPtr root = Gang::create(place_of(rank, size, store));
      const auto gangs = mesh_of(*root);
      for (size_t s = 0; s < 3; ++s) {
        const auto model = make_model(reference, gangs, options_of(strategies[s], DType::f32));
        const StepValues values = run_step(*model, reference, 2);
        expect_reference(values, reference, 1e-5);
        report.values[s] = hash(values);
      }
      {
        const auto model = make_model(reference, gangs, options_of(Strategy::full_shard, DType::f64));
        expect_version_gate(*model, rank);
      }
      gangs->close(10'000);
      root->shutdown(10'000);
    });
    ranks.expect_all_well();
    if (size != 2) continue;
    std::array<int64_t, 3> of_processes;
    for (size_t s = 0; s < 3; ++s) of_processes[s] = ranks.report(0).values[s];
    // This process must stay without gangs, so that it can fork.
    Processes alone(1, [&](int, const std::shared_ptr<Store>&, Report&) {
      for (size_t s = 0; s < 3; ++s)
        run_ranks(size, [&](Gang& root) {
          const auto model = make_model(reference, mesh_of(root), options_of(strategies[s], DType::f32));
          EXPECT_EQ(hash(run_step(*model, reference, 2)), of_processes[s]) << "strategy " << s;
        });
    });
    alone.expect_all_well();
  }
}

}  // namespace
}  // namespace gangway::test
