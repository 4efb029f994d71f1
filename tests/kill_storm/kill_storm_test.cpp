// Ranks as processes die at random points of everything that ranks do together: by SIGKILL, and by a crash that writes a
// core. Survivors hear of it at once, of the right rank, and no file is torn. GANGWAY_TEST_KILLS says how many die.
#include <sys/resource.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "checkpoint/model_io.h"
#include "gang/host/mix.h"
#include "gang/host/outlive.h"
#include "train/rig.h"

namespace gangway::test {
namespace {

constexpr int64_t kDeadline_ms = 20'000;  // who hears by it alone has hung

constexpr size_t kMembers = 0;  // place in Report::values

enum Kind { sync_collective, async_collectives, training, shrinking, saving, kKinds };
constexpr const char* kNames[kKinds] = {"sync collective", "async collectives", "train_step", "shrink",
                                        "save"};

struct Storm {
  std::vector<double> took_ms;  // from a kill to each survivor's error; of shrink: to the gang of those left
  int kills = 0, hangs = 0, wrong = 0, torn = 0;
  std::string
      said;  // of what went wrong; a failure of the test itself would be one of all later children, too
};

struct Death {
  int size, wait_for, later_us;
  std::vector<int> victims;
  int signal;

  Death(Kind kind, uint64_t round) {
    auto random = [&, i = uint64_t{0}](uint64_t below) mutable {
      return static_cast<int>(drawn(4321 + round * kKinds + kind, i++) % below);
    };
    size = kind == shrinking ? 4 + random(5) : 2 + random(3);
    const size_t deaths = kind == shrinking ? 2 + static_cast<size_t>(random(2)) : 1;
    while (victims.size() < deaths)
      if (const int v = random(static_cast<uint64_t>(size));
          std::find(victims.begin(), victims.end(), v) == victims.end())
        victims.push_back(v);
    wait_for = 1 + random(kind == sync_collective || kind == async_collectives ? 50 : 4);
    later_us = random(kind == saving ? 20'000 : 3000);
    signal = random(2) == 0 ? SIGKILL : SIGSEGV;
  }
  bool spares(int rank) const { return std::find(victims.begin(), victims.end(), rank) == victims.end(); }
};

GangPtr root_of(int rank, int size, const std::shared_ptr<Store>& store) {
  GangOptions options = thread_rank_options();
  options.rank = rank;
  options.size = size;
  options.store = store;
  options.timeout_ms = kDeadline_ms;
  return Gang::create(options);
}

void train(int rank, int size, const std::shared_ptr<Store>& store, Report& report, Strategy strategy) {
  const GangPtr root = root_of(rank, size, store);
  const Rig rig = llama_rig(*root, strategy, DType::f32);
  StepOptions step;
  step.microbatches = 2;
  step.max_grad_norm = 1;
  until_failure(report, [&] {
    rig.step(pattern_batch(*rig.model, 2, 6, rank), step);
    ++report.stage;
  });
}

// Two models whose configs and weights differ, in turn into one folder.
std::unique_ptr<Model> model_to_save(Gang& root, int which) {
  DecoderOptions config = small_llama();
  config.rope.theta += which;
  return llama(root, seeded(static_cast<uint64_t>(which)), config);
}

void save(int rank, int size, const std::shared_ptr<Store>& store, Report& report,
          const std::string& folder) {
  const GangPtr root = root_of(rank, size, store);
  const std::unique_ptr<Model> models[] = {model_to_save(*root, 0), model_to_save(*root, 1)};
  until_failure(report, [&] {
    save_model(*models[report.stage % 2], folder, {});
    ++report.stage;
  });
}

using Files = std::vector<std::string>;
Files files_of(const std::string& folder) {
  return {read_all(folder + "/config.json"), read_all(folder + "/model.safetensors")};
}

// What an undisturbed save of each model leaves.
std::array<Files, 2> saved_files() {
  std::array<Files, 2> files;
  for (int which : {0, 1}) {
    const TemporaryFolder folder;
    Processes one(1, [&](int, const std::shared_ptr<Store>& store, Report&) {
      const GangPtr root = root_of(0, 1, store);
      save_model(*model_to_save(*root, which), folder.path(), {});
    });
    one.expect_all_well();
    files[static_cast<size_t>(which)] = files_of(folder.path());
  }
  EXPECT_NE(files[0], files[1]);
  return files;
}

void live(Kind kind, uint64_t round, const Death& death, int rank, const std::shared_ptr<Store>& store,
          Report& report, const std::string& folder) {
  const rlimit cores{RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_CORE, &cores);
  if (chdir(folder.c_str()) != 0) fail(Code::io, "chdir ", folder);
  EngineOptions options = small_arena();
  options.timeout_ms = kDeadline_ms;
  switch (kind) {
    case sync_collective: {
      Joined joined(rank, death.size, store, options);
      std::vector<float> x(10);
      until_failure(report, [&] {
        sum(joined, x);
        ++report.stage;
      });
      return;
    }
    case async_collectives: {
      Joined joined(rank, death.size, store, options);
      HostMix mix(*joined.engine, *joined.rank, round);
      until_failure(report, [&] {
        mix.next();
        ++report.stage;
      });
      return;
    }
    case training: {
      constexpr std::array kStrategies = {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard};
      return train(rank, death.size, store, report, kStrategies[round % 3]);
    }
    case shrinking: {
      Joined joined(rank, death.size, store, options);
      for (const int member : outlive(joined, static_cast<size_t>(death.size) - death.victims.size(), report))
        report.values[kMembers] |= 1 << member;
      return joined.engine->shutdown(Deadline::after_ms(kDeadline_ms));
    }
    case saving: return save(rank, death.size, store, report, folder + "/model");
    case kKinds: break;
  }
}

// Whether it heard of the right one: of shrink, whether it goes on with all that live.
bool names_the_dead(Kind kind, const Death& death, const Report& report) {
  if (kind != shrinking)
    return report.code == static_cast<int64_t>(Code::peer_lost) && report.peer == death.victims[0];
  int64_t left = 0;
  for (int r = 0; r < death.size; ++r) left |= static_cast<int64_t>(death.spares(r)) << r;
  return report.values[kMembers] == left;
}

void strike(Kind kind, uint64_t round, const std::array<Files, 2>& saved, Storm& storm) {
  const Death death(kind, round);
  const TemporaryFolder folder;  // of files and cores
  Processes ranks(death.size, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    live(kind, round, death, r, store, report, folder.path());
  });
  for (int r = 0; r < death.size; ++r) ranks.wait_for_stage(r, 1);
  ranks.wait_for_stage(death.victims[0], death.wait_for);
  usleep(static_cast<useconds_t>(death.later_us));
  int64_t killed = 0;
  for (const int victim : death.victims) {
    killed = now_ns();
    ranks.kill(victim, death.signal);
    if (kind == shrinking) usleep(static_cast<useconds_t>(death.later_us / 2));
  }
  ranks.join();
  ++storm.kills;
  for (int r = 0; r < death.size; ++r) {
    if (!death.spares(r)) continue;
    const Report& report = ranks.report(r);
    const bool heard = ranks.ended_well(r) && report.code != static_cast<int64_t>(Code::timeout);
    const double took_ms = static_cast<double>(report.at_ns - killed) / 1e6;
    const bool hung = !heard || took_ms >= static_cast<double>(kDeadline_ms);
    const bool wrong = !hung && !names_the_dead(kind, death, report);
    storm.hangs += hung;
    storm.wrong += wrong;
    if (!hung) storm.took_ms.push_back(took_ms);
    if (hung || wrong)
      storm.said +=
          text(kNames[kind], ", round ", round, ", rank ", r, " of ", death.size, ", ", death.victims[0],
               " was killed; status ", ranks.status(r), ", stage ", report.stage.load(), ", ", took_ms,
               " ms, code ", report.code.load(), ", peer ", report.peer.load(), ", members ",
               report.values[kMembers].load(), ": ", report.text, "\n");
  }
  if (kind != saving) return;
  const Files files = files_of(folder.path() + "/model");
  if (files == saved[0] || files == saved[1]) return;
  ++storm.torn;
  storm.said += text("save, round ", round, ": config.json and model.safetensors are of no save\n");
}

void print(Kind kind, Storm& storm) {
  std::vector<double>& took = storm.took_ms;
  std::sort(took.begin(), took.end());
  const auto at = [&](double part) {
    return took[static_cast<size_t>(part * static_cast<double>(took.size() - 1))];
  };
  std::printf(
      "%-17s  %4d kills, hangs %d, wrong %d, torn %d; ms: min %.2f, median %.2f, p99 %.2f, max %.2f\n",
      kNames[kind], storm.kills, storm.hangs, storm.wrong, storm.torn, at(0), at(0.5), at(0.99), at(1));
  double from = 0;
  for (const double to : {1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0, HUGE_VAL}) {
    const auto count = std::count_if(took.begin(), took.end(), [&](double t) { return t >= from && t < to; });
    if (count != 0)
      std::printf("  from %4.0f ms  %5d  %s\n", from, static_cast<int>(count),
                  std::string(static_cast<size_t>(60 * count) / took.size(), '#').c_str());
    from = to;
  }
}

TEST(KillStorm, SurvivorsGetTheRightRankAndNoFileIsTorn) {
  const char* const wanted = std::getenv("GANGWAY_TEST_KILLS");
  const uint64_t kills = wanted == nullptr ? 40 : std::stoull(wanted);
  const std::array<Files, 2> saved = saved_files();
  std::array<Storm, kKinds> storms;
  for (uint64_t i = 0; i < kills; ++i) {
    strike(static_cast<Kind>(i % kKinds), i / kKinds, saved, storms[i % kKinds]);
    if ((i + 1) % 200 != 0) continue;
    int bad = 0;
    for (const Storm& storm : storms) bad += storm.hangs + storm.wrong + storm.torn;
    std::printf("%d of %d kills, %d with a fault\n", static_cast<int>(i + 1), static_cast<int>(kills), bad);
    std::fflush(stdout);
  }
  for (int kind = 0; kind < kKinds; ++kind) {
    Storm& storm = storms[static_cast<size_t>(kind)];
    if (!storm.took_ms.empty()) print(static_cast<Kind>(kind), storm);
    EXPECT_EQ(storm.hangs + storm.wrong + storm.torn, 0) << storm.said;
  }
}

}  // namespace
}  // namespace gangway::test
