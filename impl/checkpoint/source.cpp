#include "checkpoint/source.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "base/json_scalars.h"
#include "base/line.h"
#include "checkpoint/config_json.h"
#include "checkpoint/folders.h"
#include "checkpoint/model_files.h"

namespace gangway {
namespace {

constexpr int kOpeningTries = 10;
constexpr const char* kEndsOfTorch[] = {".bin", ".pt", ".pth", ".ckpt"};

bool leads_to_something(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

// Throws NOT_SUPPORTED if the folder, which has no safetensors file of the wanted name, has weights of
// PyTorch or llama.cpp.
void refuse_other_weights(const std::string& folder) {
  for (const std::string& name : sorted_names(folder)) {
    const bool of_torch = name == "pytorch_model.bin.index.json" ||
                          std::any_of(std::begin(kEndsOfTorch), std::end(kEndsOfTorch),
                                      [&](const char* end) { return name.ends_with(end); });
    if (of_torch)
      fail(Code::not_supported, "load: ", folder, " has no safetensors file, but ", printable(name),
           " of torch.save, which this library does not read; ", kHowToConvert);
    if (name.ends_with(".gguf"))
      fail(Code::not_supported, "load: ", folder, " has no safetensors file, but ", printable(name),
           " of llama.cpp, which this library does not read; take the model in Hugging Face's format");
  }
}

// Throws CORRUPT unless `file` is a plain name: a path in an untrusted index could lead out of the folder.
void check_file_name(const std::string& index, const std::string& tensor, const std::string& file) {
  if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos ||
      file.find('\0') != std::string::npos)
    fail(Code::corrupt, "load: ", index, ": weight_map.", printable(tensor), " is ", printable(file),
         ", not a file of this folder");
}

std::string described(const InputFile& file, uint64_t hash, bool same_host) {
  const std::string& path = file.path();
  char digits[17];
  std::snprintf(digits, sizeof digits, "%llx", static_cast<unsigned long long>(hash));
  std::string line = text(path.substr(path.rfind('/') + 1), " (", file.opened().text(), ", header ",
                          std::string_view(digits));
  if (same_host) line += text(", inode ", file.opened().inode, " of device ", file.opened().device);
  return line + ")";
}

}  // namespace

Source Source::open(const std::string& path, const std::string& stem) {
  for (int i = 0; i < kOpeningTries; ++i) {
    Source source;
    if (is_folder(path))
      source.open_folder(path, stem);
    else
      source.open_file(path);
    const std::vector<const InputFile*> files = source.files();
    if (std::all_of(files.begin(), files.end(), [](const InputFile* file) { return file->is_at_its_path(); }))
      return source;
  }
  fail(Code::io, "load: ", path, " was replaced ", kOpeningTries, " times while it was opened");
}

void Source::open_file(const std::string& path) {
  const SafetensorsFile& opened = add(path);
  for (const auto& [tensor, stored] : opened.tensors()) tensors_[tensor] = {&opened, stored};
}

void Source::open_folder(const std::string& path, const std::string& stem) {
  const std::string weights = stem + ".safetensors", index = weights + ".index.json";
  if (leads_to_something(path + "/" + kConfigName)) {
    config_ = std::make_unique<InputFile>(path + "/" + kConfigName);
    config_text_ = config_->read_all(kConfigLimit);
  }
  const bool has_weights = leads_to_something(path + "/" + weights);
  if (!has_weights && leads_to_something(path + "/" + index)) return open_index(path, index);
  if (!has_weights && stem == "model") refuse_other_weights(path);
  open_file(path + "/" + weights);
}

// The index is {"metadata": {...}, "weight_map": {tensor: file}}.
void Source::open_index(const std::string& folder, const std::string& name) {
  index_ = std::make_unique<InputFile>(folder + "/" + name);
  const std::string json = index_->read_all(kSafetensorsHeaderLimit);
  index_hash_ = XXH3_64bits(json.data(), json.size());
  const std::string& index = index_->path();
  const JsonScalars scalars = read_json_scalars(json, "load: " + index);
  const auto map = scalars.find({"weight_map", ""});
  if (map == scalars.end() || map->second.kind != JsonValue::Kind::object)
    fail(Code::corrupt, "load: ", index, " has no object weight_map");
  std::map<std::string, Listed> opened;
  for (auto entry = std::next(map); entry != scalars.end() && entry->first.first == "weight_map"; ++entry) {
    const std::string& tensor = entry->first.second;
    if (entry->second.kind != JsonValue::Kind::text)
      fail(Code::corrupt, "load: ", index, ": weight_map.", printable(tensor), " is not text");
    const std::string& file = entry->second.text;
    check_file_name(index, tensor, file);
    if (opened.count(file) == 0) opened[file] = open_listed(folder + "/" + file);
    const Listed& listed = opened.at(file);
    if (listed.missing) {
      absent_.emplace(tensor, *listed.missing);
      continue;
    }
    const auto found = listed.file->tensors().find(tensor);
    if (found == listed.file->tensors().end())
      absent_.emplace(tensor, Error(Code::corrupt, text("load: ", index, " places ", printable(tensor),
                                                        " in ", printable(file), ", where it is missing")));
    else
      tensors_[tensor] = {listed.file, found->second};
  }
}

// Opens a file that the index names.
Source::Listed Source::open_listed(const std::string& path) {
  try {
    return {&add(path), std::nullopt};
  } catch (const Error& error) {
    if (error.system_error != ENOENT) throw;
    return {nullptr, error};
  }
}

void Source::check_complete() const {
  if (!absent_.empty()) throw absent_.begin()->second;
}

const SafetensorsFile& Source::add(const std::string& path) {
  weights_.push_back(std::make_unique<SafetensorsFile>(path));
  return *weights_.back();
}

std::vector<const InputFile*> Source::files() const {
  std::vector<const InputFile*> all;
  for (const InputFile* file : {config_.get(), index_.get()})
    if (file != nullptr) all.push_back(file);
  for (const auto& file : weights_) all.push_back(&file->file());
  return all;
}

std::vector<std::string> Source::lines(bool same_host) const {
  std::vector<std::string> all;
  if (config_)
    all.push_back(described(*config_, XXH3_64bits(config_text_.data(), config_text_.size()), same_host));
  if (index_) all.push_back(described(*index_, index_hash_, same_host));
  for (const auto& file : weights_) all.push_back(described(file->file(), file->header_hash(), same_host));
  return all;
}

void Source::check_unchanged() const {
  for (const InputFile* file : files())
    if (!file->is_unchanged())
      fail(Code::io, "load: ", file->path(), " was changed while it was read (it had ", file->opened().text(),
           "); load it again when nothing writes it");
}

}  // namespace gangway
