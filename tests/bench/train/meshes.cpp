#include "train/meshes.h"

#include <cstdio>
#include <numeric>

#include "common/report.h"
#include "common/table.h"
#include "parallel/pipeline/checker.h"
#include "parallel/pipeline/generators.h"
#include "train/model.h"

namespace gangway::bench {
namespace {

// Of a pipeline's stages the ranks' shares are as even as whole layers allow, the head counted: 5 layers | 3 and the head.
const MeshWords k1f1b = {"pp=2", "schedule=1f1b", "first_layers=0,5"};
const MeshWords kZbv = {"pp=2", "schedule=zbv", "first_layers=0,2,5,7"};

MeshWords with(MeshWords words, const std::string& more) {
  words.push_back(more);
  return words;
}

std::vector<Mesh> all_meshes() {
  std::vector<Mesh> all;
  const auto add = [&](const std::string& name, int ranks, MeshWords words) {
    all.push_back({name, ranks, std::move(words), {}, {}, {}});
  };
  add("tp 2", 2, {"tp=2"});
  add("tp 2 sequence parallel", 2, {"tp=2", "sequence_parallel=1"});
  for (const std::string microbatches : {"4", "8"}) {
    add("pp 2 1F1B, " + microbatches + " microbatches", 2, with(k1f1b, "microbatches=" + microbatches));
    add("pp 2 ZBV, " + microbatches + " microbatches", 2, with(kZbv, "microbatches=" + microbatches));
  }
  add("cp 2", 2, {"cp=2"});
  add("tp 2 x dp_shard 2", 4, {"tp=2", "dp_shard=2"});
  add("pp 2 x tp 2", 4, with(with(k1f1b, "microbatches=4"), "tp=2"));
  add("pp 2 x dp_shard 2", 4, with(with(k1f1b, "microbatches=4"), "dp_shard=2"));
  return all;
}

// The value of a word, or `otherwise`.
std::string value_of(const MeshWords& words, const std::string& key, const std::string& otherwise) {
  for (const std::string& word : words)
    if (word.rfind(key + "=", 0) == 0) return word.substr(key.size() + 1);
  return otherwise;
}
int number_of(const MeshWords& words, const std::string& key) { return std::stoi(value_of(words, key, "1")); }

// Ranks alone cut their own rows into microbatches of as many rows as the mesh's, so that their products are as large.
MeshWords alone_words(const Mesh& mesh) {
  const int data = number_of(mesh.words, "dp_shard"), microbatches = number_of(mesh.words, "microbatches");
  const int microbatches_alone = microbatches * data / mesh.ranks;
  return microbatches_alone > 1 ? MeshWords{"microbatches=" + std::to_string(microbatches_alone)}
                                : MeshWords{};
}

void measure(Mesh& mesh, int rounds, const std::string& folder) {
  mesh.ours = start_ours(mesh.name, mesh.ranks, {"f32", true, mesh.words});
  mesh.alone =
      start_ours(std::to_string(mesh.ranks) + " alone", mesh.ranks, {"f32", false, alone_words(mesh)});
  mesh.torch = start_torch("PyTorch " + mesh.name, mesh.ranks, folder, mesh.words);
  Trainer* const sides[] = {&mesh.ours, &mesh.alone, &mesh.torch};
  for (Trainer* t : sides) t->prepare();
  for (int round = 0; round < rounds && !stopped(); ++round) {
    show_progress(mesh.name, round, rounds);
    for (Trainer* t : sides) t->step();
  }
  for (Trainer* t : sides) t->stop();
}

// Multiply-adds of a token in a stage's products. Of a block each product comes once in forward and in each half of the
// backward; the head makes its loss and all gradients in the first half of the backward.
std::vector<StageCost> costs_of(const MeshWords& words) {
  constexpr double kHeadWidth = S32_DIM / S32_HEADS;
  constexpr double kBlock = 2.0 * S32_DIM * S32_DIM + 2 * S32_DIM * S32_KV_HEADS * kHeadWidth +
                            3.0 * S32_DIM * S32_FFN + S32_DIM * S32_SEQUENCE;
  constexpr double kHead = double{S32_DIM} * S32_VOCAB;
  std::vector<int> first;
  for (const char& c : value_of(words, "first_layers", ""))
    if (c != ',') first.push_back(c - '0');
  first.push_back(S32_LAYERS);
  std::vector<StageCost> costs;
  for (size_t s = 0; s + 1 < first.size(); ++s) {
    const double blocks = (first[s + 1] - first[s]) * kBlock;
    costs.push_back({blocks, blocks, blocks, 0, 0});
  }
  costs.back().input += 3 * kHead;
  return costs;
}

// The checker's, with these costs; NaN without a pipeline.
double ideal_bubble(const MeshWords& words) {
  if (number_of(words, "pp") == 1) return NAN;
  const Schedule schedule = make_schedule(value_of(words, "schedule", ""),
                                          {number_of(words, "pp"), number_of(words, "microbatches"), 0});
  return simulate(schedule, costs_of(words)).bubble();
}

std::vector<Goal> goals_of(const Mesh& mesh, const Machine& machine) {
  const bool avx512 = machine.instruction_sets.find("avx512") != std::string::npos;
  const bool only_tp = number_of(mesh.words, "tp") == mesh.ranks;
  const double least = !only_tp ? 1 : avx512 ? 1.8 : 1.5;
  std::vector<Goal> goals = {
      at_least(mesh.name + " / PyTorch", paired_ratio(mesh.ours.rate, mesh.torch.rate), least, false),
      at_most(mesh.name + ": memory / PyTorch", mesh.ours.taken_bytes() / mesh.torch.taken_bytes(), 0.6,
              true)};
  if (const double ideal = ideal_bubble(mesh.words); !std::isnan(ideal) && mesh.ranks == 2)
    goals.push_back(at_most(mesh.name + ": idle, less the checker's " + percent(ideal),
                            mesh.ours.idle.median() - ideal, 0.03, true));
  return goals;
}

}  // namespace

void measure_meshes(const std::vector<std::string>& only, int rounds, const std::string& folder,
                    const std::function<void(const Mesh&)>& done) {
  for (Mesh& mesh : all_meshes()) {
    if (stopped()) return;
    if (!asked_for(mesh.name, only)) continue;
    measure(mesh, rounds, folder);
    done(mesh);
  }
}

void print(const Mesh& mesh, const Machine& machine) {
  std::printf("\n%s, f32; \"alone\": as many ranks of ours, unconnected, with microbatches of as many rows\n",
              mesh.name.c_str());
  print(std::vector<const Trainer*>{&mesh.ours, &mesh.alone, &mesh.torch});
  std::printf("\n");
  Table table(
      {"mesh", "tokens/s / alone", "/ PyTorch", "wait, mean", "checker's bubble", "memory / PyTorch"});
  const double ideal = ideal_bubble(mesh.words);
  table.row({mesh.name, percent(paired_ratio(mesh.ours.rate, mesh.alone.rate)),
             fixed(paired_ratio(mesh.ours.rate, mesh.torch.rate), 2) + "x", percent(mesh.ours.idle.median()),
             std::isnan(ideal) ? "-" : percent(ideal),
             percent(mesh.ours.taken_bytes() / mesh.torch.taken_bytes())});
  table.print();
  print(goals_of(mesh, machine));
}

void add_to(nlohmann::json& report, const Mesh& mesh, const Machine& machine) {
  nlohmann::json& at = report["meshes"][mesh.name];
  at["words"] = mesh.words;
  at["gangway"] = json_of(mesh.ours);
  at["alone"] = json_of(mesh.alone);
  at["PyTorch"] = json_of(mesh.torch);
  at["ideal_bubble"] = ideal_bubble(mesh.words);
  for (const Goal& g : goals_of(mesh, machine))
    report["goals"][g.what] = {{"value", g.value}, {"goal", g.goal}, {"met", g.met}};
}

}  // namespace gangway::bench
