#include "train/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "common/peers.h"
#include "common/table.h"

namespace gangway::bench {
namespace {

Trainer started(const std::string& name, int ranks, bool connected, const Launch& launch) {
  Trainer t;
  t.name = name;
  t.ranks = ranks;
  t.connected = connected;
  t.side = Side::start(name, ranks, launch, 120, &t.absent);
  if (t.side) t.version = t.side->greeting();
  return t;
}

std::string mib(double bytes) { return fixed(bytes / (1 << 20), 0); }

std::string text_of(double value, bool is_share) { return is_share ? percent(value) : fixed(value, 2) + "x"; }

}  // namespace

bool asked_for(const std::string& name, const std::vector<std::string>& only) {
  return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& word) {
           return name.find(word) != std::string::npos;
         });
}

Trainer absent(const std::string& name, int ranks, const std::string& why) {
  Trainer t;
  t.name = name;
  t.ranks = ranks;
  t.absent = why;
  return t;
}

void show_progress(const std::string& what, int round, int rounds) {
  if (isatty(2))
    std::fprintf(stderr, "\r%s: round %d of %d \033[K", what.c_str(), round + 1, rounds);
  else if (round == 0)
    std::fprintf(stderr, "%s: %d rounds\n", what.c_str(), rounds);
}

Trainer start_ours(const std::string& name, int ranks, const OursOptions& options) {
  const std::string program = beside_this_program("train_rank");
  Launch launch;
  if (options.connected && ranks > 1) {
    launch.command = {
        GANGWAY_BENCH_GANGRUN, "-n", std::to_string(ranks), "--no-prefix", "--", program, "{socket}",
        options.dtype,         "-1"};
  } else {
    launch.command = {program, "{socket}", options.dtype, "{copy}"};
    launch.copies = ranks;
    launch.unset = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  }
  launch.command.insert(launch.command.end(), options.mesh.begin(), options.mesh.end());
  launch.environment = {{"GANGWAY_NUM_THREADS", "1"}};
  return started(name, ranks, options.connected, launch);
}

Trainer start_torch(const std::string& name, int ranks, const std::string& folder, const MeshWords& mesh,
                    const char* program) {
  const std::string python = torch_python();
  if (python.empty()) return absent(name, ranks, "no PyTorch here (--peers installs it)");
  Launch launch;
  launch.command = {python, peer_source(program), "{socket}", "{copy}", std::to_string(ranks), folder};
  launch.command.insert(launch.command.end(), mesh.begin(), mesh.end());
  launch.copies = ranks;
  launch.environment = {{"OMP_NUM_THREADS", "1"}, {"MKL_NUM_THREADS", "1"}};
  launch.unset = {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "RANK", "WORLD_SIZE"};
  return started(name, ranks, true, launch);
}

void Trainer::prepare() {
  if (!runs()) return;
  start_bytes = pss_bytes(side->pids());
  side->ask("setup", kPatience);
  side->ask("step 1", kPatience);
  if (!runs()) return;
  std::atomic<bool> done = false;
  std::thread watch([&] {
    double peak = 0;
    while (!done) {
      peak = std::max(peak, pss_bytes(side->pids()));
      usleep(20000);
    }
    peak_bytes = peak;
  });
  side->ask("step 1", kPatience);
  done = true;
  watch.join();
  if (is_torch()) return;
  if (const auto replies = side->ask("memory", kPatience); !replies.empty()) {
    counted_bytes = 0;
    for (const std::string& reply : replies) counted_bytes += std::atof(reply.c_str());
  }
}

void Trainer::step(int count, double patience) {
  if (!runs()) return;
  const auto replies = side->ask("step " + std::to_string(count), patience);
  if (replies.empty()) return;
  double slowest = 0, sum_of_rates = 0, most_waited = 0, waited = 0, own_cpu = 0;
  for (const std::string& reply : replies) {
    double s = 1, w = 0, l = NAN, c = 0;
    std::sscanf(reply.c_str(), "%lf %lf %lf %lf", &s, &w, &l, &c);
    if (!std::isnan(l)) loss = l;  // PyTorch's pipelines have it on one rank
    own_cpu += c;
    slowest = std::max(slowest, s);
    sum_of_rates += tokens / s;
    most_waited = std::max(most_waited, w / s);
    waited += w / s;
  }
  seconds.add(slowest);
  rate.add(connected ? tokens * ranks / slowest : sum_of_rates);
  wait.add(most_waited);
  idle.add(waited / ranks);
  cpu.add(own_cpu);
}

void Trainer::stop() {
  lost = why_lost();
  side.reset();
}

std::string Trainer::why_lost() const { return side != nullptr && !side->alive() ? side->why() : lost; }

Goal at_least(const std::string& what, double value, double goal, bool is_share) {
  return {what, value, text_of(value, is_share), ">= " + text_of(goal, is_share), value >= goal};
}
Goal at_most(const std::string& what, double value, double goal, bool is_share) {
  return {what, value, text_of(value, is_share), "<= " + text_of(goal, is_share), value <= goal};
}

void print(const std::vector<Goal>& goals) {
  std::printf("\n");
  Table table({"", "", "goal", ""});
  for (const Goal& g : goals)
    table.row({g.what, g.value_text, g.goal,
               std::isnan(g.value) ? "not measured"
               : g.met             ? "met"
                                   : "MISSED"});
  table.print();
}

void print(const std::vector<const Trainer*>& trainers) {
  Table table({"", "ranks", "tokens/s", "p10..p90", "s a step", "cpu s", "wait, most", "wait, mean",
               "PSS peak MiB", "at start", "difference", "counted", "loss"});
  for (const Trainer* t : trainers) {
    if (t->rate.empty()) continue;
    const bool tells_wait = !t->is_torch() && t->connected && t->ranks > 1;
    table.row({t->name, std::to_string(t->ranks), fixed(t->rate.median(), 0),
               fixed(t->rate.p10(), 0) + ".." + fixed(t->rate.p90(), 0), fixed(t->seconds.median(), 3),
               fixed(t->cpu.median(), 3), tells_wait ? percent(t->wait.median()) : "-",
               tells_wait ? percent(t->idle.median()) : "-", mib(t->peak_bytes), mib(t->start_bytes),
               mib(t->taken_bytes()), std::isnan(t->counted_bytes) ? "-" : mib(t->counted_bytes),
               fixed(t->loss, 4)});
  }
  table.print();
  for (const Trainer* t : trainers) {
    if (!t->absent.empty())
      std::printf("%s ABSENT: %s\n", t->name.c_str(), t->absent.c_str());
    else if (!t->why_lost().empty())
      std::printf("%s was lost: %s\n", t->name.c_str(), t->why_lost().c_str());
  }
}

nlohmann::json json_of(const Trainer& t) {
  return {{"ranks", t.ranks},
          {"tokens_per_s", t.rate.values},
          {"median", t.rate.median()},
          {"p10", t.rate.p10()},
          {"p90", t.rate.p90()},
          {"wait", t.wait.median()},
          {"idle", t.idle.values},
          {"cpu_s", t.cpu.values},
          {"pss_peak", t.peak_bytes},
          {"pss_start", t.start_bytes},
          {"counted", t.counted_bytes},
          {"loss", t.loss},
          {"version", t.absent.empty() ? t.version : "absent: " + t.absent}};
}

}  // namespace gangway::bench
