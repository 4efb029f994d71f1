// One rank, as a GoogleTest program. An MPI launcher starts it, or, with GANGWAY_TEST_ENGINE (the name of an
// engine), a test of gangs over several hosts. Every rank runs the same tests in the same order.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/error_of.h"
#include "checkpoint/model_files.h"
#include "gang/agreement.h"
#include "gang/mpi/survivor.h"
#include "parallel/parallel_testing.h"
#include "train/five_steps.h"

namespace gangway::test {
namespace {

GangPtr make_root(int64_t timeout_ms = 120'000) {
  GangOptions options;
  const char* const engine = std::getenv("GANGWAY_TEST_ENGINE");
  options.engine = engine != nullptr ? engine : "mpi";
  options.threads = 1;
  options.timeout_ms = timeout_ms;
  options.arena_bytes = uint64_t{256} << 20;
  return Gang::create(options);
}

// Meshes of `ranks` ranks, with every strategy.
std::vector<FiveSteps> meshes(int ranks) {
  std::vector<FiveSteps> all = {
      {1, Strategy::full_shard, 1}, {1, Strategy::shard_grad_op, 3}, {1, Strategy::no_shard, 1}};
  if (ranks == 4) all.push_back({2, Strategy::full_shard, 3});
  return all;
}

TEST(MpiTraining, LossesNormsAndParametersOfFiveClippedStepsAreTheReferences) {
  const GangPtr root = make_root();
  const Reference reference("llama_parity");
  for (const FiveSteps& c : meshes(root->size()))
    for (const DType master : {DType::f64, DType::f32}) expect_five_steps(*root, reference, c, master);
  for (const bool sequence : {false, true})
    expect_five_steps(*root, reference, {1, Strategy::full_shard, 1, 2, sequence}, DType::f64);
  expect_five_steps(*root, reference, {1, Strategy::full_shard, 1, 1, false, 2}, DType::f64);
  expect_five_steps(*root, reference, {1, Strategy::full_shard, 2, 1, false, 1, 2}, DType::f64);
  root->shutdown(60'000);
}

TEST(MpiTraining, EveryGradientIsTheReferences) {
  const GangPtr root = make_root();
  for (const char* const name : {"llama_parity", "llama_parity_tied"}) {
    const Reference reference(name);
    for (const FiveSteps& c : meshes(root->size())) {
      ParallelOptions options;
      options.shard.strategy = c.strategy;
      options.master_dtype = DType::f64;
      const auto model = make_model(reference, mesh_of(*root, c.replicas), options);
      expect_reference(run_step(*model, reference), reference, 1e-10);
    }
  }
  root->shutdown(60'000);
}

TEST(MpiTraining, AModelThatWasSavedIsLoadedWithTheSameBits) {
  const GangPtr root = make_root();
  const Reference reference("llama_parity");
  const std::string folder = "/tmp/gangway_mpi_training." +
                             root->agreement().broadcast_bytes(Channel::user, std::to_string(getpid()), 0);
  const auto trained = make_model(make_decoder(reference.config), make_gangs(*root),
                                  parallel(Strategy::full_shard, DType::f32));
  const auto optimizer =
      make_optimizer("adamw", trained->inspect().parameters(), optimizer_of(reference), trained->ops());
  train_step(*trained, optimizer.get(), own_rows(*trained, reference, 0), {}, trained->device().stream());
  save_model(*trained, folder, {});
  ParallelOptions other = parallel(Strategy::no_shard, DType::f32);
  other.seed = 99;
  const auto loaded = make_model(make_decoder(reference.config), make_gangs(*root), other);
  load_model(*loaded, folder);
  for (size_t i = 0; i < trained->inspect().parameters().size(); ++i)
    EXPECT_EQ(gathered(*loaded, *loaded->inspect().parameters()[i].parameter),
              gathered(*trained, *trained->inspect().parameters()[i].parameter))
        << trained->inspect().parameters()[i].name;
  root->barrier();
  if (root->rank() == 0) std::filesystem::remove_all(folder);
  root->shutdown(60'000);
}

struct Training {
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  Batch batch;

  Training(Gang& root, const Reference& reference)
      : model(make_model(make_decoder(reference.config), make_gangs(root), parallel(Strategy::full_shard))),
        optimizer(
            make_optimizer("adamw", model->inspect().parameters(), optimizer_of(reference), model->ops())),
        batch(own_rows(*model, reference, 0)) {}
  void step(const StepOptions& options = {}) {
    train_step(*model, optimizer.get(), batch, options, model->device().stream());
  }
};

// After a failure MPI is not finalized, and a launcher may then end the other ranks. The rank waits until all
// have printed.
[[noreturn]] void leave() {
  std::printf("well\n");
  std::fflush(stdout);
  sleep(2);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

TEST(MpiTrainingAlone, StepsThatDifferAreAMismatchOnAllRanks) {
  const GangPtr root = make_root();
  const Reference reference("llama_parity");
  Training training(*root, reference);
  training.step();
  StepOptions options;
  options.microbatches = root->rank() == 1 ? 2 : 1;
  const Error error = error_of([&] { training.step(options); });
  EXPECT_EQ(error.code(), Code::mismatch) << error.message();
  if (!HasFailure()) leave();
}

TEST(MpiTrainingAlone, ARankThatDoesNotStepIsATimeout) {
  const GangPtr root = make_root(2000);
  const Reference reference("llama_parity");
  Training training(*root, reference);
  training.step();
  if (root->rank() == 1) {
    while (!root->error()) usleep(5000);
    leave();
  }
  const Error error = error_of([&] { training.step(); });
  EXPECT_EQ(error.code(), Code::timeout) << error.message();
  if (!HasFailure()) leave();
}

TEST(MpiTrainingAlone, ARankThatDiesBetweenStepsIsLostOrATimeout) {
  outlive_peers();
  const GangPtr root = make_root(5000);
  const Reference reference("llama_parity");
  Training training(*root, reference);
  training.step();
  if (root->rank() == 1) die();
  const Error error = error_of([&] {
    for (;;) training.step();
  });
  tell_as_survivor(root->rank(), error);
  _exit(0);
}

}  // namespace
}  // namespace gangway::test

// Prints the outcome in one write, because launchers mix the partial lines of several ranks.
int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  const int failed = RUN_ALL_TESTS();
  std::fflush(stdout);
  const std::string outcome =
      std::to_string(testing::UnitTest::GetInstance()->successful_test_count()) + " tests passed\n";
  return write(STDOUT_FILENO, outcome.data(), outcome.size()) < 0 ? 1 : failed;
}
