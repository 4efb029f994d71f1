#include "checkpoint/run/tensor_set.h"

#include <fcntl.h>
#include <xxhash.h>

#include <cstdio>

#include "base/error.h"
#include "base/interrupt.h"
#include "checkpoint/folders.h"
#include "checkpoint/header_json.h"
#include "checkpoint/json_text.h"
#include "checkpoint/run/blocks.h"
#include "checkpoint/run/plain_files.h"
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
    const uint64_t bytes = bytes_of(spec.shape, item_bytes(spec.dtype));
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

std::vector<StoredFile> create_files(const TensorSetPlan& plan, const std::string& folder) {
  std::vector<StoredFile> records;
  for (const TensorSetPlan::File& file : plan.files()) {
    const std::string path = folder + "/" + file.name;
    make_folders(path.substr(0, path.rfind('/')));
    OutputFile out(path, O_WRONLY | O_CREAT | O_EXCL);
    out.reserve(file.bytes);
    out.write(0, file.header.data(), file.header.size());
    out.sync();
    out.close();
    records.push_back({file.name, file.bytes, XXH3_64bits(file.header.data(), file.header.size()), {}});
  }
  if (!plan.index_name().empty()) records.push_back(write_file(folder, plan.index_name(), plan.index()));
  return records;
}

TensorSetWriter::TensorSetWriter(const TensorSetPlan& plan, const std::string& folder)
    : plan_(plan), folder_(folder) {}

void TensorSetWriter::write(const std::string& tensor, const Box& box, const void* data) {
  const TensorSetPlan::Place& place = plan_.place(tensor);
  if (!is_inside(box, place.spec.shape))
    fail(Code::invalid_argument, "checkpoint: box ", text_of(box), " is not inside tensor ",
         printable(tensor), " of shape ", place.spec.shape.text());
  const std::string& name = plan_.files()[place.file].name;
  DirectFile& file = files_[place.file];
  if (!file.is_open()) file.open(folder_ + "/" + name);
  const size_t item = item_bytes(place.spec.dtype);
  for_each_block(box.shape, item, [&](const Box& part, int64_t at) {
    poll_interrupt_throttled();
    StoredBlock block{tensor, part, 0};
    for (int d = 0; d < box.shape.rank(); ++d)
      block.box.first[static_cast<size_t>(d)] += box.first[static_cast<size_t>(d)];
    const char* const bytes = static_cast<const char*>(data) + static_cast<size_t>(at) * item;
    block.hash = XXH3_64bits(bytes, bytes_of(part.shape, item));
    for_each_run(place.spec.shape, block.box, [&](int64_t global, int64_t local, int64_t count) {
      file.write(place.first + static_cast<uint64_t>(global) * item,
                 bytes + static_cast<size_t>(local) * item, static_cast<size_t>(count) * item);
    });
    blocks_[name].push_back(std::move(block));
  });
}

void TensorSetWriter::sync() {
  for (auto& [index, file] : files_) {
    file.sync();
    file.close();
  }
  files_.clear();
}

}  // namespace gangway
