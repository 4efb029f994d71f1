// Training of the reference model: ours on one and two ranks, its products alone, PyTorch beside it.
// README.md says what each column is.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/machine.h"
#include "common/peers.h"
#include "common/rank.h"
#include "common/side.h"
#include "common/stats.h"
#include "common/table.h"
#include "train/model.h"

using namespace gangway::bench;

namespace {

constexpr double kTokens = S32_BATCH * S32_SEQUENCE;  // of a rank's step
constexpr double kPatience = 180;

struct Settings {
  int rounds = 5;
  bool peers = false;
  std::string json, only;
};

// One thing that trains, and what was measured of it.
struct Trainer {
  Trainer(std::string name, int ranks, bool connected, std::string absent = "")
      : name(std::move(name)), ranks(ranks), connected(connected), absent(std::move(absent)) {}
  std::string name;
  int ranks;
  bool connected;
  std::unique_ptr<Side> side;
  std::string absent;
  Samples rate;     // tokens/s of all ranks
  Samples seconds;  // a step, slowest rank
  Samples cpu;      // processor time of a step, sum over ranks
  Samples wait;     // share of the step, rank that waited most
  double loss = NAN;
  double start_bytes = NAN, peak_bytes = NAN, counted_bytes = NAN;
};

// One dtype's products alone and operations in a step.
struct Operations {
  std::unique_ptr<Side> side;
  Samples linear, head;                  // seconds a step, each product alone
  Samples total;                         // seconds of the timed step
  std::map<std::string, Samples> spent;  // by operation
};

std::string beside_this_program(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

class Benchmark {
 public:
  explicit Benchmark(const Settings& settings) : settings_(settings) {
    char folder[] = "/tmp/gangway-train-XXXXXX";
    if (mkdtemp(folder) != nullptr) folder_ = folder;
    for (const char* dtype : {"f32", "bf16"}) {
      start_ours(std::string("gangway ") + dtype, dtype, 1, true);
      start_operations(dtype);
    }
    start_ours("FSDP f32", "f32", 2, true);
    start_ours("FSDP bf16", "bf16", 2, true);
    start_ours("two alone f32", "f32", 2, false);
    start_ours("two alone bf16", "bf16", 2, false);
    start_torch("PyTorch", 1);
    start_torch("PyTorch FSDP2", 2);
  }
  ~Benchmark() {
    trainers_.clear();
    operations_.clear();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  void run() {
    for (Trainer& t : trainers_) prepare(t);
    for (auto& [dtype, o] : operations_)
      if (o.side) {
        o.side->ask("setup", kPatience);
        o.side->ask("step 2", kPatience);  // the second still takes fresh memory
      }
    for (int round = 0; round < settings_.rounds; ++round) {
      if (isatty(2)) std::fprintf(stderr, "\rround %d of %d ", round + 1, settings_.rounds);
      for (Trainer& t : trainers_) step(t);
      for (auto& [dtype, o] : operations_) step(o);
    }
    if (Side* torch = of("PyTorch").side.get(); torch != nullptr && torch->alive())
      for (int i = 0; i < 2; ++i)
        if (const auto replies = torch->ask("profile", kPatience); !replies.empty()) {
          double total = 0, products = 0;
          std::sscanf(replies[0].c_str(), "%lf %lf", &total, &products);
          torch_outside_.add(total - products);
        }
  }

  void print() const;
  nlohmann::json json() const;

 private:
  void start(const std::string& name, int ranks, bool connected, const Launch& launch) {
    Trainer t(name, ranks, connected);
    if (name.find(settings_.only) == std::string::npos)
      t.absent = "not asked for";
    else
      t.side = Side::start(name, ranks, launch, 120, &t.absent);
    trainers_.push_back(std::move(t));
  }
  void start_ours(const std::string& name, const std::string& dtype, int ranks, bool connected) {
    const std::string program = beside_this_program("train_rank");
    Launch launch;
    if (connected && ranks > 1) {
      launch.command = {GANGWAY_BENCH_GANGRUN,
                        "-n",
                        std::to_string(ranks),
                        "--no-prefix",
                        "--",
                        program,
                        "{socket}",
                        dtype,
                        "-1"};
    } else {
      launch.command = {program, "{socket}", dtype, "{copy}"};
      launch.copies = ranks;
      launch.unset = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
    }
    launch.environment = {{"GANGWAY_NUM_THREADS", "1"}};
    start(name, ranks, connected, launch);
  }
  void start_operations(const std::string& dtype) {
    Launch launch;
    launch.command = {beside_this_program("ops_rank"), "{socket}", dtype};
    std::string why;
    Operations& o = operations_[dtype];
    if (("operations " + dtype).find(settings_.only) == std::string::npos) return;
    o.side = Side::start("operations " + dtype, 1, launch, 60, &why);
    if (!o.side) std::printf("operations %s: %s\n", dtype.c_str(), why.c_str());
  }
  void start_torch(const std::string& name, int ranks) {
    const std::string python = torch_python();
    if (python.empty()) {
      trainers_.emplace_back(name, ranks, true, "no PyTorch here (--peers installs it)");
      return;
    }
    Launch launch;
    launch.command = {python,   peer_source("torch_train.py"), "{socket}",
                      "{copy}", std::to_string(ranks),         folder_};
    launch.copies = ranks;
    launch.environment = {{"OMP_NUM_THREADS", "1"}, {"MKL_NUM_THREADS", "1"}};
    launch.unset = {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "RANK", "WORLD_SIZE"};
    start(name, ranks, true, launch);
  }

  // Memory at the start, a first step, then one whose memory is watched; neither is timed.
  void prepare(Trainer& t) {
    if (!t.side) return;
    t.start_bytes = pss_bytes(t.side->pids());
    t.side->ask("setup", kPatience);
    t.side->ask("step 1", kPatience);
    if (!t.side->alive()) return;
    std::atomic<bool> done = false;
    std::thread watch([&] {
      double peak = 0;
      while (!done) {
        peak = std::max(peak, pss_bytes(t.side->pids()));
        usleep(20000);
      }
      t.peak_bytes = peak;
    });
    t.side->ask("step 1", kPatience);
    done = true;
    watch.join();
    if (t.name.rfind("PyTorch", 0) == 0) return;
    if (const auto replies = t.side->ask("memory", kPatience); !replies.empty()) {
      t.counted_bytes = 0;
      for (const std::string& reply : replies) t.counted_bytes += std::atof(reply.c_str());
    }
  }
  void step(Trainer& t) {
    if (!t.side || !t.side->alive()) return;
    const auto replies = t.side->ask("step 1", kPatience);
    if (replies.empty()) return;
    double slowest = 0, rate = 0, waited = 0, cpu = 0;
    for (const std::string& reply : replies) {
      double seconds = 1, wait = 0, own = 0;
      std::sscanf(reply.c_str(), "%lf %lf %lf %lf", &seconds, &wait, &t.loss, &own);
      cpu += own;
      slowest = std::max(slowest, seconds);
      rate += kTokens / seconds;
      waited = std::max(waited, wait / seconds);
    }
    t.seconds.add(slowest);
    t.rate.add(t.connected ? kTokens * t.ranks / slowest : rate);
    t.wait.add(waited);
    t.cpu.add(cpu);
  }
  void step(Operations& o) {
    if (!o.side || !o.side->alive()) return;
    const auto spent = o.side->ask("step 1", kPatience);
    const auto alone = o.side->ask("isolated 2", kPatience);
    if (spent.empty() || alone.empty()) return;
    double linear = 0, head = 0;
    std::sscanf(alone[0].c_str(), "%lf %lf", &linear, &head);
    o.linear.add(linear);
    o.head.add(head);
    std::istringstream words(spent[0]);
    std::string word;
    for (bool first = true; words >> word; first = false) {
      if (first)
        o.total.add(std::stod(word));
      else
        o.spent[word.substr(0, word.find('='))].add(std::stod(word.substr(word.find('=') + 1)));
    }
  }

  const Trainer& of(const std::string& name) const {
    for (const Trainer& t : trainers_)
      if (t.name == name) return t;
    return trainers_.front();
  }
  struct Goal {
    std::string what;
    double value;
    std::string goal;  // as text
    bool met;
    bool is_share;
  };
  std::vector<Goal> goals() const;
  double products_alone(const std::string& dtype) const;
  double outside_in_step(const std::string& dtype) const;
  void print_operations(const std::string& dtype) const;

  Settings settings_;
  std::string folder_;
  std::vector<Trainer> trainers_;
  std::map<std::string, Operations> operations_;
  Samples torch_outside_;
};

double Benchmark::products_alone(const std::string& dtype) const {
  const Operations& o = operations_.at(dtype);
  return o.linear.median() + o.head.median();
}

// Seconds of a step that are not matrix products: the timed step less its own products; of the head's fused
// operation its products alone count.
double Benchmark::outside_in_step(const std::string& dtype) const {
  const Operations& o = operations_.at(dtype);
  const auto found = o.spent.find("gemm");
  return found == o.spent.end() ? NAN : o.total.median() - found->second.median() - o.head.median();
}

std::vector<Benchmark::Goal> Benchmark::goals() const {
  std::vector<Goal> all;
  const auto at_least = [&](const std::string& what, double value, double goal, bool share) {
    all.push_back(
        {what, value, ">= " + (share ? percent(goal) : fixed(goal, 2) + "x"), value >= goal, share});
  };
  const auto at_most = [&](const std::string& what, double value, double goal, bool share) {
    all.push_back(
        {what, value, "<= " + (share ? percent(goal) : fixed(goal, 2) + "x"), value <= goal, share});
  };
  const Trainer &f32 = of("gangway f32"), &bf16 = of("gangway bf16"), &fsdp = of("FSDP f32");
  const Trainer &torch = of("PyTorch"), &fsdp2 = of("PyTorch FSDP2");
  at_least("f32: own products alone / step", products_alone("f32") / f32.seconds.median(), 0.80, true);
  at_least("bf16: own products alone / step", products_alone("bf16") / bf16.seconds.median(), 0.80, true);
  at_least("f32: the same / processor time of the step", products_alone("f32") / f32.cpu.median(), 0.80,
           true);
  at_least("bf16: the same / processor time", products_alone("bf16") / bf16.cpu.median(), 0.80, true);
  at_least("bf16 / f32, tokens/s", paired_ratio(bf16.rate, f32.rate), 0.9, false);
  for (const std::string dtype : {"f32", "bf16"})
    at_least("FSDP / two alone, " + dtype,
             paired_ratio(of("FSDP " + dtype).rate, of("two alone " + dtype).rate), 0.95, true);
  at_most("exposed wait of FSDP f32", fsdp.wait.median(), 0.02, true);
  at_most("exposed wait of FSDP bf16", of("FSDP bf16").wait.median(), 0.02, true);
  at_least("one rank / PyTorch", paired_ratio(f32.rate, torch.rate), 1, false);
  at_most("time outside products / PyTorch's", outside_in_step("f32") / torch_outside_.median(), 0.5, true);
  at_least("PyTorch / one rank, processor time", paired_ratio(torch.cpu, f32.cpu), 1, false);
  at_least("FSDP / FSDP2", paired_ratio(fsdp.rate, fsdp2.rate), 1.5, false);
  at_most("memory, one rank / PyTorch",
          (f32.peak_bytes - f32.start_bytes) / (torch.peak_bytes - torch.start_bytes), 0.7, true);
  at_most("memory, FSDP / FSDP2",
          (fsdp.peak_bytes - fsdp.start_bytes) / (fsdp2.peak_bytes - fsdp2.start_bytes), 0.7, true);
  return all;
}

std::string mib(double bytes) { return fixed(bytes / (1 << 20), 0); }

void Benchmark::print_operations(const std::string& dtype) const {
  const Operations& o = operations_.at(dtype);
  if (o.total.empty()) return;
  const double total = o.total.median(), head = o.head.median();
  std::printf("\nwhere the time of one rank's step goes, %s (each operation timed inside the step)\n",
              dtype.c_str());
  Table table({"operation", "ms", "share of the step", "share of what is no product"});
  std::vector<std::pair<double, std::string>> rows;
  double rest = total;
  for (const auto& [name, seconds] : o.spent) {
    const double s = seconds.median();
    rest -= s;
    if (name == "head_loss") {
      rows.push_back({s - head, "head_loss but products"});
      rows.push_back({head, "head_loss products (alone)"});
    } else {
      rows.push_back(
          {s, name == "gemm" ? "gemm (alone: " + fixed(o.linear.median() * 1e3, 0) + " ms)" : name});
    }
  }
  rows.push_back({rest, "between operations"});
  std::sort(rows.rbegin(), rows.rend());
  const double outside = outside_in_step(dtype);
  for (const auto& [seconds, name] : rows) {
    const bool product = name.rfind("gemm", 0) == 0 || name.find("products (") != std::string::npos;
    table.row(
        {name, fixed(seconds * 1e3, 1), percent(seconds / total), product ? "" : percent(seconds / outside)});
  }
  table.row({"all", fixed(total * 1e3, 1), "", fixed(outside * 1e3, 1) + " ms"});
  table.print();
}

void Benchmark::print() const {
  std::printf(
      "\nS32: %d wide, %d layers, vocabulary %d, sequence %d, %d rows a rank, AdamW; one thread a rank; %d "
      "rounds\n",
      S32_DIM, S32_LAYERS, S32_VOCAB, S32_SEQUENCE, S32_BATCH, settings_.rounds);
  Table table({"", "ranks", "tokens/s", "p10..p90", "s a step", "cpu s", "exposed wait", "PSS peak MiB",
               "at start", "difference", "counted", "loss"});
  for (const Trainer& t : trainers_) {
    if (t.rate.empty()) continue;
    table.row({t.name, std::to_string(t.ranks), fixed(t.rate.median(), 0),
               fixed(t.rate.p10(), 0) + ".." + fixed(t.rate.p90(), 0), fixed(t.seconds.median(), 3),
               fixed(t.cpu.median(), 3), t.name.rfind("FSDP", 0) == 0 ? percent(t.wait.median()) : "-",
               mib(t.peak_bytes), mib(t.start_bytes), mib(t.peak_bytes - t.start_bytes),
               std::isnan(t.counted_bytes) ? "-" : mib(t.counted_bytes), fixed(t.loss, 4)});
  }
  table.print();
  for (const Trainer& t : trainers_) {
    if (!t.side)
      std::printf("%s ABSENT: %s\n", t.name.c_str(), t.absent.c_str());
    else if (!t.side->alive())
      std::printf("%s was lost: %s\n", t.name.c_str(), t.side->why().c_str());
    else if (t.name == "PyTorch" || t.name == "gangway f32")
      std::printf("%s: %s\n", t.name.c_str(), t.side->greeting().c_str());
  }
  std::printf("\n");
  Table ratios({"", "", "goal", ""});
  for (const Goal& g : goals())
    ratios.row({g.what, g.is_share ? percent(g.value) : fixed(g.value, 2) + "x", g.goal,
                std::isnan(g.value) ? "not measured"
                : g.met             ? "met"
                                    : "MISSED"});
  ratios.print();
  std::printf("outside products, s a step: ours %s, PyTorch %s\n", fixed(outside_in_step("f32"), 3).c_str(),
              fixed(torch_outside_.median(), 3).c_str());
  for (const char* dtype : {"f32", "bf16"}) print_operations(dtype);
}

nlohmann::json Benchmark::json() const {
  nlohmann::json j;
  for (const Trainer& t : trainers_) {
    nlohmann::json& at = j["sides"][t.name];
    at = {{"ranks", t.ranks},
          {"tokens_per_s", t.rate.values},
          {"median", t.rate.median()},
          {"p10", t.rate.p10()},
          {"p90", t.rate.p90()},
          {"wait", t.wait.median()},
          {"cpu_s", t.cpu.values},
          {"pss_peak", t.peak_bytes},
          {"pss_start", t.start_bytes},
          {"counted", t.counted_bytes},
          {"loss", t.loss}};
    at["version"] = t.side ? t.side->greeting() : "absent: " + t.absent;
  }
  for (const auto& [dtype, o] : operations_) {
    nlohmann::json& at = j["operations"][dtype];
    at = {{"linear_alone", o.linear.values}, {"head_alone", o.head.values}, {"step", o.total.values}};
    for (const auto& [name, seconds] : o.spent) at["spent"][name] = seconds.values;
  }
  for (const Goal& g : goals()) j["goals"][g.what] = {{"value", g.value}, {"goal", g.goal}, {"met", g.met}};
  j["torch_outside_s"] = torch_outside_.values;
  return j;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Training of the reference model beside its own products and beside PyTorch.", "train");
  app.add_option("--rounds", settings.rounds, "alternating rounds (5)")->check(CLI::Range(1, 1000));
  app.add_option("--only", settings.only, "sides whose name contains this");
  app.add_option("--json", settings.json, "file for the same numbers");
  app.add_flag("--peers", settings.peers, "install PyTorch into the build folder first (5.6 GB)");
  CLI11_PARSE(app, argc, argv);
  if (settings.peers && !install_peers("train")) std::printf("installation of PyTorch failed\n");
  const Machine machine = probe_machine();
  print(machine);
  Benchmark benchmark(settings);
  benchmark.run();
  benchmark.print();
  if (!settings.json.empty()) {
    nlohmann::json report = benchmark.json();
    report["machine"] = json_of(machine);
    report["rounds"] = settings.rounds;
    std::ofstream(settings.json) << report.dump(1) << "\n";
  }
  return 0;
}
