// Training of the reference model: ours beside its products alone and beside PyTorch, on one rank, fully sharded and in other
// meshes. README.md says what each column is.
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/machine.h"
#include "common/peers.h"
#include "common/report.h"
#include "train/gpu.h"
#include "train/meshes.h"
#include "train/model.h"
#include "train/reference.h"

using namespace gangway::bench;

namespace {

struct Settings {
  int rounds = 5;
  std::string device = "cpu";
  GpuSettings gpu;
  bool peers = false;
  std::string json;
  std::vector<std::string> only;
};

// Where the ranks of a PyTorch side meet.
struct Folder {
  char path[32] = "/tmp/gangway-train-XXXXXX";
  Folder() {
    if (mkdtemp(path) == nullptr) path[0] = 0;
  }
  ~Folder() {
    if (path[0] != 0) std::filesystem::remove_all(path);
  }
};

void run_on_gpus(const Settings& settings) {
  const Folder folder;
  train_on_gpus(settings.gpu, settings.rounds, folder.path, [&](nlohmann::json& report) {
    report["rounds"] = settings.rounds;
    save(report, settings.json);
  });
}

void run(const Settings& settings) {
  const Machine machine = probe_machine();
  print(machine);
  std::printf(
      "\nS32: %d wide, %d layers, vocabulary %d, sequence %d, %d rows a rank, AdamW; one thread a rank; %d "
      "rounds\n",
      S32_DIM, S32_LAYERS, S32_VOCAB, S32_SEQUENCE, S32_BATCH, settings.rounds);
  const Folder folder;
  nlohmann::json report = {{"machine", json_of(machine)}, {"rounds", settings.rounds}};
  {
    Reference reference(settings.only, folder.path);
    reference.run(settings.rounds);
    reference.print();
    reference.add_to(report);
    save(report, settings.json);
  }
  std::fflush(stdout);
  measure_meshes(settings.only, settings.rounds, folder.path, [&](const Mesh& mesh) {
    print(mesh, machine);
    std::fflush(stdout);
    add_to(report, mesh, machine);
    save(report, settings.json);
  });
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Training of the reference model beside its own products and beside PyTorch.", "train");
  app.add_option("--rounds", settings.rounds, "alternating rounds (5)")->check(CLI::Range(1, 1000));
  app.add_option("--only", settings.only, "sides and meshes whose name contains one of these words");
  app.add_option("--json", settings.json, "file for the same numbers");
  app.add_flag("--peers", settings.peers, "install PyTorch into the build folder first (5.6 GB)");
  app.add_option("--device", settings.device, "cpu (S32), or cuda: the presets")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--preset", settings.gpu.presets, "models on a GPU (0.5B 1.5B)")
      ->check(CLI::IsMember(preset_names()));
  app.add_option("--ranks", settings.gpu.ranks, "GPUs (1)")->check(CLI::Range(1, 1024));
  app.add_option("--steps", settings.gpu.steps, "steps a round on a GPU (10)")->check(CLI::Range(1, 10000));
  app.add_option("--peak", settings.gpu.peak_tflops,
                 "bf16 peak of one GPU in TFLOP/s (989.4), of which MFU is a share");
  CLI11_PARSE(app, argc, argv);
  watch_for_stop();
  if (settings.peers && !install_peers("train")) std::printf("installation of PyTorch failed\n");
  if (settings.device == "cuda")
    run_on_gpus(settings);
  else
    run(settings);
  return exit_status();
}
