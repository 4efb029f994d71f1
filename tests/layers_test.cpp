// Reads every #include under impl/ against the table of layers: one direction only, and a leaf (a backend) is
// included by itself, by the leaf of the same name to its right, and by its registry alone. Inside a layer
// the rooms of a folder stand on floors, and an include leads downwards only.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "support/placed.h"

namespace {

namespace fs = std::filesystem;
using gangway::placed;
using Names = std::set<std::string>;

const std::map<std::string, Names>& layers() {
  static const Names compute = {"device", "tensor", "ops"};
  static const Names below_parallel = {"device", "tensor", "ops", "nn", "families", "optim", "gang", "mesh"};
  static const Names above = {"device", "tensor", "ops",  "nn",      "families",
                              "optim",  "gang",   "mesh", "parallel"};
  static const Names all = {"device",   "tensor", "ops",        "nn",   "families", "optim",   "gang", "mesh",
                            "parallel", "train",  "checkpoint", "plan", "tools",    "metrics", "data"};
  static const std::map<std::string, Names> table = {
      {"base", {}},
      {"data", {}},
      {"device", {}},
      {"tensor", {"device"}},
      {"ops", {"device", "tensor"}},
      {"nn", compute},
      {"families", {"nn"}},
      {"optim", {"device", "tensor", "ops", "nn"}},  // one row with nn: it steps nn's parameters
      {"gang", {"device", "tensor"}},
      {"mesh", {"device", "tensor", "gang"}},
      {"parallel", below_parallel},
      {"train", above},
      {"checkpoint", above},
      {"metrics",
       {"device", "tensor", "ops", "nn", "families", "optim", "gang", "mesh", "parallel", "train"}},
      {"plan", {"device", "tensor", "ops", "nn", "families", "optim", "gang", "mesh", "parallel", "train"}},
      {"cuda", {"device", "tensor", "ops", "gang"}},  // puts the loadable module together
      {"tools", all},
  };
  return table;
}

// Folders that are leaves, each with its registry: the only file of another folder that may include them.
const std::map<std::string, Names>& leaves() {
  static const std::map<std::string, Names> table = {
      {"device/cpu", {"device/device.cpp"}},
      {"device/meta", {"device/device.cpp"}},
      {"device/cuda", {"cuda/module.cpp"}},
      {"ops/cpu", {"ops/registry.cpp"}},
      {"ops/meta", {"ops/registry.cpp"}},
      {"ops/cuda", {"cuda/module.cpp"}},
      {"ops/cuda/cudnn", {"ops/cuda/attention_paths.h"}},
      {"gang/host", {"gang/registry.cpp", "gang/network/host_memory.cpp"}},
      {"gang/nccl", {"cuda/module.cpp"}},
      {"gang/mpi", {"gang/registry.cpp"}},
      {"gang/network", {"gang/registry.cpp"}},
      {"gang/fabric", {"gang/registry.cpp"}},
  };
  return table;
}

// The floors of a folder, from the bottom up. A name is a folder of it, or a file without its extension; what
// is not named stands on top. Files that lie directly in the folder and share a floor are one room; any other
// two rooms of a floor may not include each other.
const std::map<std::string, std::vector<Names>>& floors() {
  static const std::map<std::string, std::vector<Names>> table = {
      {"gang",
       {{"byte_gather", "call_log", "collective", "descriptor", "engine", "engine_options", "fabric_module",
         "mpi_module", "backoff", "rank", "read_only", "work"},
        {"kernels"},
        {"local", "planes", "rendezvous"},
        {"host", "mpi", "nccl", "fabric"},
        {"network"},
        {"modules", "registry"}}},
      {"gang/host", {{"memory"}, {"presence"}, {"call"}, {"algorithms"}}},
      // checkpoint/run stands on top.
      {"checkpoint", {{"config_fields", "config_json", "config_read",     "config_rope", "config_window",
                       "file_names",    "file_place",  "folders",         "header_json", "input_file",
                       "load",          "lora_config", "lora_files",      "model_files", "named_tensors",
                       "output_file",   "pieces",      "row_copies",      "safetensors", "save",
                       "save_folder",   "source",      "tensor_set_plan", "writing_rank"}}},
      {"parallel",
       {{"pipeline/schedule"},
        {"collective_call", "memory_use", "options", "plan", "recompute", "redistribute",
         "redistribution_plan", "stream_order", "tree_state", "full_tensor_gather"},
        {"context", "fsdp", "movement"},
        {"pipeline", "tensor"},
        {"activation_offload"},
        {"model"}}},
  };
  return table;
}

std::string folder(const std::string& file) { return fs::path(file).parent_path().generic_string(); }
std::string layer(const std::string& file) { return file.substr(0, file.find('/')); }

// Deepest leaf that holds the file, or "".
std::string leaf_of(const std::string& file) {
  for (std::string at = folder(file); !at.empty(); at = folder(at))
    if (leaves().count(at) != 0) return at;
  return "";
}

struct Room {
  std::string name;  // "" for the files on top
  size_t floor = 0;
};

// The room of a file inside `house`, a folder with floors.
Room room_of(const std::string& house, const std::string& file) {
  const std::vector<Names>& all = floors().at(house);
  const std::string inside = fs::path(file).lexically_relative(house).replace_extension().generic_string();
  for (std::string at = inside; !at.empty(); at = folder(at))
    for (size_t floor = 0; floor < all.size(); ++floor)
      if (all[floor].count(at) != 0) return {at == inside && folder(at).empty() ? "" : at, floor};
  return {"", all.size()};
}

// Empty when the rooms let `from` include `to`.
std::string refusal_of_rooms(const std::string& from, const std::string& to) {
  for (const auto& [house, unused] : floors()) {
    if (from.rfind(house + "/", 0) != 0 || to.rfind(house + "/", 0) != 0) continue;
    const Room a = room_of(house, from), b = room_of(house, to);
    if (b.floor > a.floor || (b.floor == a.floor && b.name != a.name))
      return to + " does not stand below " + from + " in " + house;
  }
  return "";
}

// Empty when `from` may include `to`; both relative to impl/.
std::string refusal(const std::string& from, const std::string& to) {
  const std::string a = layer(from), b = layer(to);
  if (layers().count(a) == 0) return "layer " + a + " is not in the table";
  if (a != b && b != "base" && layers().at(a).count(b) == 0)
    return "layer " + a + " may not include layer " + b;
  if (const std::string why = refusal_of_rooms(from, to); !why.empty()) return why;
  const std::string leaf = leaf_of(to), own = leaf_of(from);
  if (leaf.empty() || leaf == own || leaves().at(leaf).count(from) != 0) return "";
  // NCCL works on CUDA's devices.
  const auto backend = [](const std::string& of) {
    const std::string name = fs::path(of).filename();
    return name == "nccl" ? "cuda" : name;
  };
  const bool same_backend = !own.empty() && backend(own) == backend(leaf);
  return same_backend ? "" : leaf + " is a leaf: only its registry may include it";
}

struct Include {
  std::string from, to;
};

std::vector<Include> includes(const fs::path& impl) {
  static const std::regex line(R"re(^\s*#\s*include\s*"([^"]+)")re");
  std::vector<Include> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(impl)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".h" && extension != ".cpp" && extension != ".inc" && extension != ".cu") continue;
    const std::string from = entry.path().lexically_relative(impl).generic_string();
    std::ifstream in(entry.path());
    std::smatch match;
    for (std::string text; std::getline(in, text);)
      if (std::regex_search(text, match, line)) found.push_back({from, match[1]});
  }
  return found;
}

TEST(Layers, EveryIncludeFollowsTheTable) {
  const fs::path impl = placed("@source@/impl");
  const std::vector<Include> all = includes(impl);
  EXPECT_GT(all.size(), 50u) << "found too few includes under " << impl;
  for (const Include& i : all) {
    EXPECT_TRUE(fs::exists(impl / i.to) || i.to.rfind("gangway/", 0) == 0)
        << i.from << " includes \"" << i.to << "\", which is not written relative to impl/";
    if (i.to.rfind("gangway/", 0) == 0) {
      EXPECT_EQ(layer(i.from), "tools") << i.from << " includes the public header " << i.to;
      continue;
    }
    EXPECT_EQ(refusal(i.from, i.to), "") << i.from << " includes " << i.to;
  }
}

// Each file that includes one of these takes the compiler many seconds.
TEST(Layers, OneSourceIncludesALibraryThatIsDear) {
  const fs::path impl = placed("@source@/impl");
  for (const auto& [header, source] : std::vector<std::pair<std::string, std::string>>{
           {"#include <CLI/", "tools/arguments.cpp"}, {"#include <nlohmann/", "base/json.cpp"}})
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(impl)) {
      if (!entry.is_regular_file() || fs::equivalent(entry.path(), impl / source)) continue;
      std::ifstream in(entry.path());
      for (std::string text; std::getline(in, text);)
        EXPECT_FALSE(text.starts_with(header)) << entry.path() << " includes what only " << source << " may";
    }
}

TEST(Layers, EveryRoomOfTheTableExists) {
  const fs::path impl = placed("@source@/impl");
  for (const auto& [house, all] : floors())
    for (const Names& floor : all)
      for (const std::string& name : floor) {
        const std::string room = (impl / house / name).generic_string();
        EXPECT_TRUE(fs::is_directory(room) || fs::exists(room + ".h") || fs::exists(room + ".cpp")) << room;
      }
}

TEST(Layers, TheRuleRefusesUpwardIncludes) {
  EXPECT_EQ(refusal("nn/decoder.h", "gang/gang.h"), "layer nn may not include layer gang");
  EXPECT_EQ(refusal("nn/decoder.cpp", "families/family.h"), "layer nn may not include layer families");
  EXPECT_EQ(refusal("families/llama.cpp", "parallel/plan.h"),
            "layer families may not include layer parallel");
  EXPECT_EQ(refusal("device/device.h", "tensor/tensor.h"), "layer device may not include layer tensor");
  EXPECT_EQ(refusal("gang/gang.h", "ops/ops.h"), "layer gang may not include layer ops");
  EXPECT_EQ(refusal("data/dataset.h", "gang/gang.h"), "layer data may not include layer gang");
  EXPECT_EQ(refusal("train/step.cpp", "checkpoint/manifest.h"),
            "layer train may not include layer checkpoint");
  EXPECT_EQ(refusal("base/log.cpp", "device/device.h"), "layer base may not include layer device");
  EXPECT_EQ(refusal("gang/engine.h", "gang/gang.h"),
            "gang/gang.h does not stand below gang/engine.h in gang");
  EXPECT_EQ(refusal("gang/local/self.cpp", "gang/registry.h"),
            "gang/registry.h does not stand below gang/local/self.cpp in gang");
  EXPECT_EQ(refusal("gang/planes/lowering.cpp", "gang/rendezvous/store.h"),
            "gang/rendezvous/store.h does not stand below gang/planes/lowering.cpp in gang");
  EXPECT_EQ(refusal("gang/host/call/op.h", "gang/host/algorithms/table.h"),
            "gang/host/algorithms/table.h does not stand below gang/host/call/op.h in gang/host");
  EXPECT_EQ(refusal("gang/host/memory/arena.cpp", "gang/host/presence/member.h"),
            "gang/host/presence/member.h does not stand below gang/host/memory/arena.cpp in gang/host");
  EXPECT_EQ(refusal("gang/host/presence/team.cpp", "gang/host/core.h"),
            "gang/host/core.h does not stand below gang/host/presence/team.cpp in gang/host");
  EXPECT_EQ(refusal("parallel/fsdp/wrap.cpp", "parallel/pipeline/runtime.h"),
            "parallel/pipeline/runtime.h does not stand below parallel/fsdp/wrap.cpp in parallel");
  EXPECT_EQ(refusal("parallel/tensor/apply.cpp", "parallel/pipeline/stage.h"),
            "parallel/pipeline/stage.h does not stand below parallel/tensor/apply.cpp in parallel");
  EXPECT_EQ(refusal("parallel/redistribute.cpp", "parallel/movement/movement.h"),
            "parallel/movement/movement.h does not stand below parallel/redistribute.cpp in parallel");
  EXPECT_EQ(refusal("parallel/movement/along.cpp", "parallel/fsdp/packing.h"),
            "parallel/fsdp/packing.h does not stand below parallel/movement/along.cpp in parallel");
  EXPECT_EQ(refusal("parallel/options.cpp", "parallel/pipeline/stage.h"),
            "parallel/pipeline/stage.h does not stand below parallel/options.cpp in parallel");
  EXPECT_EQ(refusal("checkpoint/save.cpp", "checkpoint/run/state.h"),
            "checkpoint/run/state.h does not stand below checkpoint/save.cpp in checkpoint");
  EXPECT_EQ(refusal("gang/gang.cpp", "gang/host/host.h"),
            "gang/host is a leaf: only its registry may include it");
  EXPECT_EQ(refusal("parallel/fsdp.cpp", "ops/cpu/gemm.h"),
            "ops/cpu is a leaf: only its registry may include it");
  EXPECT_EQ(refusal("ops/cuda/cuda_ops.cpp", "ops/cuda/cudnn/plans.h"),
            "ops/cuda/cudnn is a leaf: only its registry may include it");
  EXPECT_EQ(refusal("ops/cuda/cudnn/frontend.cpp", "ops/cuda/families.h"),
            "ops/cuda is a leaf: only its registry may include it");
  EXPECT_EQ(refusal("new/x.h", "base/log.h"), "layer new is not in the table");
  EXPECT_EQ(refusal("gang/registry.cpp", "gang/host/host.h"), "");
  EXPECT_EQ(refusal("gang/host/presence/board.cpp", "gang/host/memory/arena.h"), "");
  EXPECT_EQ(refusal("gang/host/call/awaited.cpp", "gang/host/call/lanes.h"), "");
  EXPECT_EQ(refusal("gang/gang_create.cpp", "gang/registry.h"), "");
  EXPECT_EQ(refusal("parallel/options.cpp", "parallel/pipeline/schedule.h"), "");
  EXPECT_EQ(refusal("parallel/movement/movement.cpp", "parallel/collective_call.h"), "");
  EXPECT_EQ(refusal("parallel/shard_group.cpp", "parallel/model/model.h"), "");
  EXPECT_EQ(refusal("ops/cpu/gemm.cpp", "device/cpu/pool.h"), "");
  EXPECT_EQ(refusal("ops/cuda/attention_paths.h", "ops/cuda/cudnn/plans.h"), "");
  EXPECT_EQ(refusal("ops/cpu/avx2/norm.cpp", "ops/cpu/operations.h"), "");
  EXPECT_EQ(refusal("parallel/fsdp.cpp", "mesh/gangs.h"), "");
  EXPECT_EQ(refusal("checkpoint/run/verify.cpp", "checkpoint/input_file.h"), "");
}

}  // namespace
