#include "train/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "common/peers.h"
#include "common/report.h"
#include "common/table.h"

namespace gangway::bench {
namespace {

// A model of S32's width in the shape of a qwen3: the heads are wider together than the model, q and k are
// normed.
const MeshWords kQwen3Words = {"family=qwen3", "head_dim=128", "ffn=1536"};
constexpr const char *kQwen3 = "gangway qwen3", *kTorchQwen3 = "PyTorch qwen3";

}  // namespace

Reference::Reference(const std::vector<std::string>& only, const std::string& folder) {
  all_are_asked_for_ = only.empty();
  const auto add = [&](const std::string& name, int ranks, auto&& start) {
    trainers_.push_back(asked_for(name, only) ? start(name, ranks) : absent(name, ranks, kNotAskedFor));
  };
  const auto ours = [&](const std::string& name, int ranks, const std::string& dtype, bool connected) {
    add(name, ranks, [&](const std::string& n, int r) { return start_ours(n, r, {dtype, connected, {}}); });
  };
  const auto torch = [&](const std::string& name, int ranks) {
    add(name, ranks, [&](const std::string& n, int r) { return start_torch(n, r, folder); });
  };
  for (const std::string dtype : {"f32", "bf16"}) {
    ours("gangway " + dtype, 1, dtype, true);
    start_operations(dtype, only);
  }
  for (const std::string dtype : {"f32", "bf16"}) ours("FSDP " + dtype, 2, dtype, true);
  for (const std::string dtype : {"f32", "bf16"}) ours("two alone " + dtype, 2, dtype, false);
  torch("PyTorch", 1);
  torch("PyTorch FSDP2", 2);
  add(kQwen3, 1, [&](const std::string& n, int r) { return start_ours(n, r, {"f32", true, kQwen3Words}); });
  add(kTorchQwen3, 1, [&](const std::string& n, int r) { return start_torch(n, r, folder, kQwen3Words); });
}

void Reference::start_operations(const std::string& dtype, const std::vector<std::string>& only) {
  Launch launch;
  launch.command = {beside_this_program("ops_rank"), "{socket}", dtype};
  std::string why;
  Operations& o = operations_[dtype];
  if (!asked_for("operations " + dtype, only)) return;
  o.side = Side::start("operations " + dtype, 1, launch, 60, &why);
  if (!o.side) std::printf("operations %s: %s\n", dtype.c_str(), why.c_str());
}

void Reference::run(int rounds) {
  for (Trainer& t : trainers_) t.prepare();
  for (auto& [dtype, o] : operations_)
    if (o.side) {
      o.side->ask("setup", kPatience);
      o.side->ask("step 2", kPatience);  // the second still takes fresh memory
    }
  for (int round = 0; round < rounds && !stopped(); ++round) {
    show_progress("reference", round, rounds);
    for (Trainer& t : trainers_) t.step();
    for (auto& [dtype, o] : operations_) step(o);
  }
  if (!stopped()) profile_torch();
}

void Reference::profile_torch() {
  if (!of("PyTorch").runs()) return;
  for (int i = 0; i < 2; ++i)
    if (const auto replies = of("PyTorch").side->ask("profile", kPatience); !replies.empty()) {
      double total = 0, products = 0;
      std::sscanf(replies[0].c_str(), "%lf %lf", &total, &products);
      torch_outside_.add(total - products);
    }
}

const Trainer& Reference::of(const std::string& name) const {
  return *std::find_if(trainers_.begin(), trainers_.end(), [&](const Trainer& t) { return t.name == name; });
}

void Reference::step(Operations& o) {
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

double Reference::products_alone(const std::string& dtype) const {
  const Operations& o = operations_.at(dtype);
  return o.linear.median() + o.head.median();
}

// Seconds of a step that are not matrix products: the timed step less its own products; of the head's fused
// operation its products alone count.
double Reference::outside_in_step(const std::string& dtype) const {
  const Operations& o = operations_.at(dtype);
  const auto found = o.spent.find("gemm");
  return found == o.spent.end() ? NAN : o.total.median() - found->second.median() - o.head.median();
}

std::vector<Goal> Reference::goals() const {
  std::vector<Goal> all;
  const auto least = [&](const std::string& what, double value, double goal, bool is_share) {
    all.push_back(at_least(what, value, goal, is_share));
  };
  const auto most = [&](const std::string& what, double value, double goal, bool is_share) {
    all.push_back(at_most(what, value, goal, is_share));
  };
  const Trainer &f32 = of("gangway f32"), &bf16 = of("gangway bf16"), &fsdp = of("FSDP f32");
  const Trainer &torch = of("PyTorch"), &fsdp2 = of("PyTorch FSDP2");
  least("f32: own products alone / step", products_alone("f32") / f32.seconds.median(), 0.80, true);
  least("bf16: own products alone / step", products_alone("bf16") / bf16.seconds.median(), 0.80, true);
  least("f32: the same / processor time of the step", products_alone("f32") / f32.cpu.median(), 0.80, true);
  least("bf16: the same / processor time", products_alone("bf16") / bf16.cpu.median(), 0.80, true);
  least("bf16 / f32, tokens/s", paired_ratio(bf16.rate, f32.rate), 0.9, false);
  for (const std::string dtype : {"f32", "bf16"})
    least("FSDP / two alone, " + dtype, paired_ratio(of("FSDP " + dtype).rate, of("two alone " + dtype).rate),
          0.95, true);
  most("exposed wait of FSDP f32", fsdp.wait.median(), 0.02, true);
  most("exposed wait of FSDP bf16", of("FSDP bf16").wait.median(), 0.02, true);
  least("one rank / PyTorch", paired_ratio(f32.rate, torch.rate), 1, false);
  most("time outside products / PyTorch's", outside_in_step("f32") / torch_outside_.median(), 0.5, true);
  least("PyTorch / one rank, processor time", paired_ratio(torch.cpu, f32.cpu), 1, false);
  least("FSDP / FSDP2", paired_ratio(fsdp.rate, fsdp2.rate), 1.5, false);
  most("memory, one rank / PyTorch", f32.taken_bytes() / torch.taken_bytes(), 0.7, true);
  most("memory, FSDP / FSDP2", fsdp.taken_bytes() / fsdp2.taken_bytes(), 0.7, true);
  const Trainer &qwen3 = of(kQwen3), &torch_qwen3 = of(kTorchQwen3);
  least("qwen3: one rank / PyTorch", paired_ratio(qwen3.rate, torch_qwen3.rate), 1, false);
  least("qwen3: PyTorch / one rank, processor time", paired_ratio(torch_qwen3.cpu, qwen3.cpu), 1, false);
  most("qwen3: memory, one rank / PyTorch", qwen3.taken_bytes() / torch_qwen3.taken_bytes(), 0.7, true);
  // A side that --only leaves out has no goal.
  if (!all_are_asked_for_) std::erase_if(all, [](const Goal& goal) { return std::isnan(goal.value); });
  return all;
}

void Reference::print_operations(const std::string& dtype) const {
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

void Reference::print() const {
  std::vector<const Trainer*> asked;
  for (const Trainer& t : trainers_)
    if (t.absent != kNotAskedFor) asked.push_back(&t);
  if (asked.empty()) return;
  std::printf("\none rank, and fully sharded over two\n");
  bench::print(asked);
  for (const char* name : {"PyTorch", "gangway f32", kQwen3, kTorchQwen3})
    if (of(name).runs()) std::printf("%s: %s\n", name, of(name).version.c_str());
  bench::print(goals());
  if (all_are_asked_for_ || !torch_outside_.empty())
    std::printf("outside products, s a step: ours %s, PyTorch %s\n", fixed(outside_in_step("f32"), 3).c_str(),
                fixed(torch_outside_.median(), 3).c_str());
  for (const char* dtype : {"f32", "bf16"}) print_operations(dtype);
}

void Reference::add_to(nlohmann::json& report) const {
  for (const Trainer& t : trainers_) report["sides"][t.name] = json_of(t);
  for (const auto& [dtype, o] : operations_) {
    nlohmann::json& at = report["operations"][dtype];
    at = {{"linear_alone", o.linear.values}, {"head_alone", o.head.values}, {"step", o.total.values}};
    for (const auto& [name, seconds] : o.spent) at["spent"][name] = seconds.values;
  }
  for (const Goal& g : goals())
    report["goals"][g.what] = {{"value", g.value}, {"goal", g.goal}, {"met", g.met}};
  report["torch_outside_s"] = torch_outside_.values;
}

}  // namespace gangway::bench
