#include "timeline/plan.h"

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "gpu_emulation/emulator.h"
#include "optim/optimizer.h"
#include "support/host_memory.h"
#include "support/placed.h"
#include "train/step.h"

namespace gangway::timeline {
namespace {

using gpu_emulation::Entry;
using gpu_emulation::Work;

constexpr uint64_t kDeviceBytes = uint64_t{141} << 30;  // an H200's
constexpr int kSteps = 3;                               // the first takes memory, the second finds its places

void use_modelled_gpus() {
  setenv("GANGWAY_MODULES", placed("@build@/tests/timeline").c_str(), 1);
  setenv("GANGWAY_CUDNN", "0", 1);        // whose kernels the log does not have
  setenv("GANGWAY_CUDA_GRAPHS", "0", 1);  // what a graph holds was logged when it was captured
  gpu_emulation::Settings settings = gpu_emulation::settings();
  settings.modelled = true;
  settings.memory = kDeviceBytes;
  settings.seed = 0;  // no pauses
  gpu_emulation::set(settings);
}

GangOptions gang_options() {
  GangOptions options;
  options.device = "cuda";
  options.threads = 1;
  options.timeout_ms = 120'000;
  options.arena_bytes = uint64_t{64} << 20;
  return options;
}

// Ids that count up from `first`, so that those of first + 1 are the next tokens.
Tensor ids_of(Model& model, const Plan& plan, int64_t first = 0) {
  const Tensor ids =
      Tensor::allocate(model.device().allocator(), DType::i64, Shape{plan.sequences, plan.tokens});
  test::HostMemory host(ids);
  for (int64_t i = 0; i < ids.count(); ++i) host.data<int64_t>()[i] = (first + i) % plan.model.vocab;
  host.write();
  return ids;
}

std::unique_ptr<Model> model_of(const Plan& plan, Gang& root) {
  ParallelOptions options;
  options.shard = plan.shard;
  auto model = std::make_unique<Model>(make_decoder(plan.model), create_gangs(root.shared_from_this(), {}));
  model->build().parallelize(options);
  return model;
}

// The last of kSteps steps is logged, without what the model's end waits for.
StepResult train(const Plan& plan, Gang& root, std::barrier<>& all, std::vector<Entry>& log) {
  const auto model = model_of(plan, root);
  OptimizerOptions of_adamw;
  of_adamw.hyperparameters["moment_dtype"] = plan.moments;
  const auto optimizer = make_optimizer("adamw", model->inspect().parameters(), of_adamw, model->ops());
  Stream& stream = model->device().stream();
  Batch batch;
  batch.inputs = {ids_of(*model, plan)};
  batch.targets = {ids_of(*model, plan, 1)};
  if (plan.says_weight) batch.weight = plan.sequences * plan.tokens;
  StepOptions options;
  options.max_grad_norm = plan.max_grad_norm;
  options.microbatches = plan.microbatches;
  StepResult result;
  for (int step = 0; step < kSteps; ++step) {
    stream.synchronize();
    all.arrive_and_wait();
    if (step + 1 == kSteps && root.rank() == 0) gpu_emulation::start_log();
    all.arrive_and_wait();
    result = train_step(*model, optimizer.get(), batch, options, stream);
  }
  all.arrive_and_wait();
  if (root.rank() == 0) log = gpu_emulation::take_log();
  all.arrive_and_wait();
  return result;
}

std::vector<std::vector<Entry>> by_device(const std::vector<Entry>& entries, int ranks) {
  std::vector<std::vector<Entry>> all(static_cast<size_t>(ranks));
  for (const Entry& entry : entries) all.at(static_cast<size_t>(entry.device)).push_back(entry);
  return all;
}

// body(root) on each rank, in threads; the first failure is thrown again.
template <typename Body>
void on_ranks(int ranks, Body&& body) {
  std::vector<GangPtr> roots = Gang::create_threads(ranks, gang_options());
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, root = std::move(roots[static_cast<size_t>(r)])]() mutable {
      try {
        body(*root);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (failure == nullptr) failure = std::current_exception();
        root->abort(Error(Code::aborted, error.what()));
      }
    });
  roots.clear();
  for (std::thread& thread : threads) thread.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

bool runs_on_device(const Entry& entry) {
  return entry.work == Work::kernel || entry.work == Work::product || entry.work == Work::copy ||
         entry.work == Work::set;
}

struct Pass {
  std::vector<std::string> forward, backward;
};

// One microbatch of manual forward and backward on one rank that shards nothing.
Pass pass_of(Plan plan, int64_t layers) {
  plan.model.layers = layers;
  plan.shard.strategy = Strategy::no_shard;
  Pass pass;
  const auto names = [] {
    std::vector<std::string> all;
    for (const Entry& entry : gpu_emulation::take_log())
      if (runs_on_device(entry)) all.push_back(entry.work == Work::product ? "product" : entry.name);
    return all;
  };
  on_ranks(1, [&](Gang& root) {
    const auto model = model_of(plan, root);
    Stream& stream = model->device().stream();
    const Tensor inputs[] = {ids_of(*model, plan), ids_of(*model, plan)};
    Context ctx = model->run().context(stream);
    ctx.training = ctx.fused_loss = true;
    for (int step = 0; step < 2; ++step) {
      Frame& frame = model->frame(0);
      gpu_emulation::start_log();
      model->run().forward(ctx, inputs, &frame);
      pass.forward = names();
      gpu_emulation::start_log();
      model->run().backward(ctx, {}, frame);
      pass.backward = names();
      frame.reset();
    }
    stream.synchronize();
  });
  return pass;
}

std::vector<std::string> more(std::vector<std::string> two, const std::vector<std::string>& one) {
  for (const std::string& name : one)
    if (const auto found = std::find(two.begin(), two.end(), name); found != two.end()) two.erase(found);
  return two;
}

}  // namespace

Plan plan_8b() {
  Plan plan;
  plan.model.vocab = 128256;
  plan.model.dim = 4096;
  plan.model.layers = 32;
  plan.model.heads = 32;
  plan.model.kv_heads = 8;
  plan.model.ffn = 14336;
  plan.model.max_positions = 8192;
  plan.model.rope.theta = 500000;
  plan.shard.param_dtype = DType::bf16;
  return plan;
}

StepLog run_step(const Plan& plan) {
  use_modelled_gpus();
  StepLog log;
  std::barrier<> all(plan.ranks);
  std::mutex mutex;
  std::vector<Entry> entries;
  on_ranks(plan.ranks, [&](Gang& root) {
    try {
      const StepResult result = train(plan, root, all, entries);
      const std::lock_guard lock(mutex);
      log.loss = result.loss;
      log.stepped = log.stepped && result.skipped == Skip::none;
    } catch (...) {
      all.arrive_and_drop();  // peers go on, and hear of it from the gang
      throw;
    }
  });
  log.ranks = by_device(entries, plan.ranks);
  log.report = gpu_emulation::report();
  return log;
}

BlockLaunches block_launches(const Plan& plan) {
  use_modelled_gpus();
  const Pass one = pass_of(plan, 1), two = pass_of(plan, 2);
  return {more(two.forward, one.forward), more(two.backward, one.backward)};
}

}  // namespace gangway::timeline
