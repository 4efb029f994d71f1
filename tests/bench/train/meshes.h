// The reference model split in other ways than fully sharded: tensor, sequence, context and pipeline parallel, and products.
// Each mesh is measured beside PyTorch's and beside as many ranks of ours that do not know of each other.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/machine.h"
#include "train/trainer.h"

namespace gangway::bench {

// A mesh with its three sides, which live while it is measured. Rounds alternate between them.
struct Mesh {
  std::string name;
  int ranks = 2;
  MeshWords words;
  Trainer ours, alone, torch;
};

// Measures the meshes whose name `only` asks for, one after another, and hands each one on when it is done.
void measure_meshes(const std::vector<std::string>& only, int rounds, const std::string& folder,
                    const std::function<void(const Mesh&)>& done);
void print(const Mesh& mesh, const Machine& machine);
void add_to(nlohmann::json& report, const Mesh& mesh, const Machine& machine);

}  // namespace gangway::bench
