// A small checkpoint, written as ranks write one: each writes other boxes of the tensors.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/run/blocks.h"
#include "checkpoint/run/plain_files.h"
#include "checkpoint/run/tensor_set.h"
#include "checkpoint/run/verify.h"

namespace gangway::test {

// In memory where the host has such a file system, since saves call fsync often.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    path += "/gangway_run_XXXXXX";
    path_ = mkdtemp(path.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
inline void write_all(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Elements that differ from each other, from those of other names, and from those of other seeds.
inline std::vector<char> values_of(const TensorSpecOnDisk& spec, int seed) {
  const auto count = static_cast<size_t>(spec.shape.count());
  std::vector<char> bytes(count * item_bytes(spec.dtype));
  for (size_t i = 0; i < count; ++i) {
    const double value =
        0.5 * static_cast<double>(i) + 1000 * seed + static_cast<double>(spec.name.size()) / 16;
    const auto put = [&](auto element) {
      std::memcpy(bytes.data() + i * sizeof element, &element, sizeof element);
    };
    if (spec.dtype == DType::f64) put(value);
    if (spec.dtype == DType::f32) put(static_cast<float>(value));
    if (spec.dtype == DType::bf16) put(to_bf16(static_cast<float>(value)));
    if (spec.dtype == DType::i64) put(static_cast<int64_t>(value));
    if (spec.dtype == DType::u8) put(static_cast<uint8_t>(static_cast<int64_t>(value)));
  }
  return bytes;
}

// Copies the elements of a box out of a row-major tensor, one by one.
inline std::vector<char> part_of(const std::vector<char>& whole, const Shape& shape, const Box& box,
                                 size_t item) {
  std::vector<char> part;
  for (int64_t i = 0; i < shape.count(); ++i) {
    bool inside = true;
    int64_t rest = i;
    for (int d = shape.rank() - 1; d >= 0; rest /= shape[d--]) {
      const int64_t at = rest % shape[d];
      inside = inside && at >= box.first[static_cast<size_t>(d)] && at < box.last(d);
    }
    const char* const from = whole.data() + static_cast<size_t>(i) * item;
    if (inside) part.insert(part.end(), from, from + item);
  }
  return part;
}

// Cuts a tensor into boxes over its first two dims, at `cuts` of each.
inline std::vector<Box> boxes_of(const Shape& shape, const std::vector<int64_t>& cuts) {
  std::vector<Box> boxes = {whole_box(shape)};
  for (int d = 0; d < std::min(2, shape.rank()); ++d) {
    std::vector<Box> parts;
    for (const Box& box : boxes) {
      int64_t first = 0;
      for (size_t i = 0; i <= cuts.size(); ++i) {
        const int64_t last = i < cuts.size() ? std::min(cuts[i], shape[d]) : shape[d];
        if (last <= first) continue;
        Box part = box;
        part.first[static_cast<size_t>(d)] = first;
        part.shape[d] = last - first;
        parts.push_back(part);
        first = last;
      }
    }
    boxes = parts;
  }
  return boxes;
}

// Writes a set of tensors by `ranks` writers; returns the records of its files.
inline std::vector<StoredFile> write_set(const std::string& folder, const std::string& stem,
                                         const std::vector<TensorSpecOnDisk>& specs, uint64_t max_file_bytes,
                                         int seed, size_t ranks = 3) {
  const TensorSetPlan plan(stem, specs, max_file_bytes, {});
  std::map<std::string, StoredFile> records;
  for (StoredFile& file : create_files(plan, folder)) {
    const std::string name = file.name;
    records[name] = std::move(file);
  }
  for (size_t rank = 0; rank < ranks; ++rank) {
    TensorSetWriter writer(plan, folder);
    size_t next = 0;
    for (const TensorSpecOnDisk& spec : specs)
      for (const Box& box : boxes_of(spec.shape, {2, 3}))
        if (next++ % ranks == rank)
          writer.write(spec.name, box,
                       part_of(values_of(spec, seed), spec.shape, box, item_bytes(spec.dtype)).data());
    writer.sync();
    for (const auto& [name, blocks] : writer.blocks())
      records[name].blocks.insert(records[name].blocks.end(), blocks.begin(), blocks.end());
  }
  std::vector<StoredFile> all;
  for (auto& [name, file] : records) all.push_back(std::move(file));
  return all;
}

// Sizes 0, 1 and odd, several dtypes, and a scalar.
inline std::vector<TensorSpecOnDisk> small_tensors() {
  return {{"embed.weight", DType::f32, {7, 5}},
          {"norm.weight", DType::f32, {5}},
          {"one", DType::f32, {1}},
          {"scalar", DType::f64, {}},
          {"empty", DType::f32, {0, 3}},
          {"odd.weight", DType::bf16, {3, 3, 3}},
          {"steps", DType::i64, {2}},
          {"mask", DType::u8, {13}}};
}

// Writes a checkpoint of two models and an optimizer into a folder, state.json included.
inline CheckpointState write_checkpoint(const std::string& folder, int64_t step, int seed) {
  CheckpointState state;
  state.step = step;
  state.tokens = 100 * step + seed;
  state.mesh = R"({"dp_shard":3})";
  state.models[""] = R"({"dtype":"f32"})";
  state.models["teacher"] = R"({"dtype":"bf16"})";
  state.optimizers[""] = {"adamw", step, 3e-4, 1e-3, 1024, 7, {{"one", 3}}, R"({"beta1": 0.9})"};
  state.texts["data"] = "position " + std::to_string(step);
  state.user = std::string("\0\xff note", 7);
  std::vector<TensorSpecOnDisk> moments;
  for (const char* moment : {"exp_avg.", "exp_avg_sq."})
    for (const TensorSpecOnDisk& spec : small_tensors())
      if (spec.dtype == DType::f32) moments.push_back({moment + spec.name, DType::f32, spec.shape});
  const auto add = [&](std::vector<StoredFile> files) {
    state.files.insert(state.files.end(), files.begin(), files.end());
  };
  add(write_set(folder, "model", small_tensors(), 60, seed));
  add(write_set(folder, "teacher/model", {{"weight", DType::bf16, {3, 5}}}, 0, seed));
  add(write_set(folder, "optimizer", moments, 0, seed));
  add({write_file(
      folder, "config.json",
      "{\n  \"model_type\": \"qwen3\",\n  \"torch_dtype\": \"float32\",\n  \"unknown\": [1, 2]\n}\n")});
  add({write_file(folder, "tokenizer.json", "{}")});
  std::sort(state.files.begin(), state.files.end(),
            [](const StoredFile& a, const StoredFile& b) { return a.name < b.name; });
  write_file(folder, kStateName, to_json(state));
  return state;
}

// Verifies a checkpoint as ranks do: each its share.
inline void verify_all(const std::string& folder, size_t shares = 3) {
  const CheckpointState state = read_state(folder);
  for (size_t share = 0; share < shares; ++share) verify_checkpoint(folder, state, share, shares);
}

}  // namespace gangway::test
