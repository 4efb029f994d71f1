// Loading: every rank reads headers, then its own rows. All checks are agreed before the fence opens; a read
// that fails after that is agreed too, and the values are then undefined.
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "checkpoint/header_json.h"
#include "checkpoint/pieces.h"
#include "checkpoint/safetensors.h"
#include "parallel/collective_call.h"
#include "parallel/model/model.h"

namespace gangway {
namespace {

using Json = nlohmann::json;

// The tensors of one file or of a folder's shards, by name.
struct Source {
  struct Entry {
    const SafetensorsFile* file;
    StoredTensor tensor;
  };
  std::map<std::string, Entry> tensors;
  std::vector<std::unique_ptr<SafetensorsFile>> files;
};

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}
bool exists(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

std::string read_text(const std::string& path) {
  struct stat status {};  // opening a fifo would block
  if (stat(path.c_str(), &status) != 0) fail_system(Code::io, text("load: reading ", path), errno);
  if (!S_ISREG(status.st_mode)) fail(Code::io, "load: ", path, " is not a regular file");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(file.tellg());
  if (!file || size < 0) fail_system(Code::io, text("load: reading ", path), errno);
  if (static_cast<uint64_t>(size) > kSafetensorsHeaderLimit)
    fail(Code::corrupt, "load: ", path, " has ", size, " bytes, over the limit of ", kSafetensorsHeaderLimit);
  std::string content(static_cast<size_t>(size), '\0');
  file.seekg(0).read(content.data(), size);
  if (!file) fail_system(Code::io, text("load: reading ", path), errno);
  return content;
}

// {"metadata": {...}, "weight_map": {tensor: file}}. Nesting is cut off, and a key that stands twice is
// CORRUPT.
Json parse_index(const std::string& path) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > 8) fail(Code::corrupt, "load: ", path, " is nested over 8 deep");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      fail(Code::corrupt, "load: ", path, ": ", printable(value.get<std::string>()), " stands there twice");
    return true;
  };
  try {
    return Json::parse(read_text(path), watch);
  } catch (const Json::exception&) {
    fail(Code::corrupt, "load: ", path, " is not JSON");
  }
}

// A plain name: what has a separator or a parent could point outside of the folder.
void check_file_name(const std::string& index, const std::string& tensor, const std::string& file) {
  if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos ||
      file.find('\0') != std::string::npos)
    fail(Code::corrupt, "load: ", index, ": weight_map.", printable(tensor), " is ", printable(file),
         ", not a file of this folder");
}

const SafetensorsFile& add_file(Source& source, const std::string& path) {
  source.files.push_back(std::make_unique<SafetensorsFile>(path));
  return *source.files.back();
}

void open_index(Source& source, const std::string& folder, const std::string& index) {
  const Json json = parse_index(index);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object())
    fail(Code::corrupt, "load: ", index, " has no object weight_map");
  std::map<std::string, const SafetensorsFile*> opened;
  for (const auto& [tensor, value] : map->items()) {
    if (!value.is_string())
      fail(Code::corrupt, "load: ", index, ": weight_map.", printable(tensor), " is not text");
    const std::string file = value.get<std::string>();
    check_file_name(index, tensor, file);
    if (opened[file] == nullptr) opened[file] = &add_file(source, folder + "/" + file);
    const auto found = opened[file]->tensors().find(tensor);
    if (found == opened[file]->tensors().end())
      fail(Code::corrupt, "load: ", index, " places ", printable(tensor), " in ", printable(file),
           ", which lacks it");
    source.tensors[tensor] = {opened[file], found->second};
  }
}

Source open_source(const std::string& path) {
  Source source;
  std::string file = path;
  if (is_folder(path)) {
    file = path + "/model.safetensors";
    const std::string index = file + ".index.json";
    if (!exists(file) && exists(index)) {
      open_index(source, path, index);
      return source;
    }
  }
  const SafetensorsFile& opened = add_file(source, file);
  for (const auto& [tensor, stored] : opened.tensors()) source.tensors[tensor] = {&opened, stored};
  return source;
}

// Rotary tables that old files carry; they follow from config.json.
bool is_derived(const std::string& name) { return name.ends_with(".rotary_emb.inv_freq"); }

// For each parameter, in order, its entry. Takes them out of source.tensors, so that what is left is extra.
std::vector<Source::Entry> match(Model& model, Source& source, const std::string& path, bool strict) {
  std::vector<Source::Entry> entries;
  std::set<std::string> known;
  for (const NamedParameter& named : named_parameters_with_aliases(model.root())) known.insert(named.name);
  for (const NamedParameter& named : model.parameters()) {
    known.insert(named.name);
    auto found = source.tensors.find(named.name);
    if (found == source.tensors.end()) {
      // A tied parameter may stand under a later name.
      for (const NamedParameter& alias : named_parameters_with_aliases(model.root()))
        if (alias.parameter == named.parameter && found == source.tensors.end())
          found = source.tensors.find(alias.name);
    }
    if (found == source.tensors.end()) fail(Code::not_found, "load: ", path, " has no tensor ", named.name);
    const StoredTensor& stored = found->second.tensor;
    if (!(stored.shape == named.parameter->shape))
      fail(Code::invalid_argument, "load: ", named.name, " has shape ", stored.shape.text(), " in ", path,
           ", ", named.parameter->shape.text(), " in the model");
    if (!is_floating(stored.dtype))
      fail(Code::invalid_argument, "load: ", named.name, " is ", name(stored.dtype), " in ", path,
           ", not a floating dtype");
    entries.push_back(found->second);
  }
  if (strict)
    for (const auto& [tensor, entry] : source.tensors)
      if (known.count(tensor) == 0 && !is_derived(tensor))
        fail(Code::invalid_argument, "load: ", path, " has a tensor ", printable(tensor),
             " that the model lacks");
  return entries;
}

void read_rows(Model& model, const Parameter& parameter, const Source::Entry& entry, Stream& stream) {
  if (!parameter.shard) return;
  const Tensor rows = parameter.shard.reshape(Shape{parameter.shard.count()});
  const size_t item = item_bytes(entry.tensor.dtype);
  std::vector<char> bytes(std::min<size_t>(kPieceBytes, static_cast<size_t>(rows.count()) * item));
  for_pieces(parameter, item, [&](int64_t at, int64_t count, uint64_t from) {
    StackScope scope(model.temporaries());
    const Tensor stored = model.temporaries().allocate(entry.tensor.dtype, Shape{count});
    entry.file->read(entry.tensor, from, from + stored.bytes(), bytes.data());
    model.device().copy(stored.raw(), bytes.data(), stored.bytes(), stream);
    model.ops().cast(stored, rows.slice(0, at, at + count), stream);
    stream.synchronize();  // `bytes` is read again
  });
}

}  // namespace

void load_model(Model& model, const std::string& path, bool strict) {
  Stream& stream = model.device().stream();
  Source source;
  std::vector<Source::Entry> entries;
  const CollectiveCall call(model.gangs(), "load");
  call.check(
      [&] {
        if (!model.materialized())
          fail(Code::invalid_state,
               "load: the model has no storage yet; call parallelize or materialize first");
        if (model.device().kind() == DeviceKind::meta)
          fail(Code::invalid_argument, "load: a meta device has no values");
        model.check_update();
        source = open_source(path);
        entries = match(model, source, path, strict);
      },
      text("load, strict ", strict));

  call.run([&] { model.begin_update(stream); });
  call.check([&] {
    try {
      for (size_t i = 0; i < entries.size(); ++i)
        read_rows(model, *model.parameters()[i].parameter, entries[i], stream);
    } catch (...) {
      // The fence closes on every rank, whatever happened, so that the gangs work on.
      model.end_update(stream);
      throw;
    }
    model.end_update(stream);
  });
}

}  // namespace gangway
