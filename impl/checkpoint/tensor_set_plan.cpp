#include "checkpoint/tensor_set_plan.h"

#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "base/line.h"
#include "checkpoint/safetensors.h"

namespace gangway {
namespace {

// Returns "model-00001-of-00003.safetensors" and the like.
std::string file_name(const std::string& stem, size_t index, size_t count) {
  if (count == 1) return stem + ".safetensors";
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, "-%05zu-of-%05zu", index + 1, count);
  return stem + numbers + ".safetensors";
}

std::string name_without_folder(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

TensorSetPlan::TensorSetPlan(const std::string& stem, std::vector<TensorSpecOnDisk> tensors,
                             uint64_t max_file_bytes, const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsHeader> headers(1);
  uint64_t filled = 0, total = 0;
  for (TensorSpecOnDisk& spec : tensors) {
    const uint64_t bytes = static_cast<uint64_t>(spec.shape.count()) * item_bytes(spec.dtype);
    if (max_file_bytes > 0 && filled > 0 && filled + bytes > max_file_bytes) {
      headers.emplace_back();
      filled = 0;
    }
    filled += bytes;
    total += bytes;
    headers.back().tensors[spec.name] = {spec.dtype, spec.shape, 0, 0};
    const std::string name = spec.name;
    if (name == "__metadata__" ||
        !places_.emplace(name, Place{headers.size() - 1, 0, std::move(spec)}).second)
      fail(Code::invalid_argument, "checkpoint: ", stem, " has two tensors ", printable(name));
  }
  for (SafetensorsHeader& header : headers) {
    header.metadata = metadata;
    header.metadata.emplace("format", "pt");
    File& file = files_.emplace_back();
    file.name = file_name(stem, files_.size() - 1, headers.size());
    file.header = make_safetensors_header(header);
    file.bytes = file.header.size();
    for (const auto& [name, tensor] : header.tensors) {
      places_.at(name).first = file.header.size() + tensor.first;
      file.bytes += tensor.last - tensor.first;
    }
  }
  if (files_.size() > 1) make_index(stem, total);
}

// The form of Hugging Face. Names of tensors are UTF-8 here, since they are in the headers.
void TensorSetPlan::make_index(const std::string& stem, uint64_t total) {
  JsonObject metadata(4), map(4), json(2);
  metadata.add("total_size", std::to_string(total));
  for (const auto& [name, place] : places_)
    map.add(name, json_scalar(name_without_folder(files_[place.file].name)));
  json.add("metadata", std::move(metadata).close());
  json.add("weight_map", std::move(map).close());
  index_name_ = stem + ".safetensors.index.json";
  index_ = std::move(json).close() + "\n";
}

const TensorSetPlan::Place& TensorSetPlan::place(const std::string& tensor) const {
  const auto found = places_.find(tensor);
  if (found == places_.end())
    fail(Code::not_found, "checkpoint: ", files_.front().name, " has no tensor ", printable(tensor));
  return found->second;
}

}  // namespace gangway
