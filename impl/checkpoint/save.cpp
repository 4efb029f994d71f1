// Saving: rank 0 creates the new files in a staging folder and writes their headers; every rank writes its
// rows; when all rows are on disk, rank 0 commits. No rank needs memory for more than its shards and a small
// buffer.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/philox.h"
#include "checkpoint/config_json.h"
#include "checkpoint/file_names.h"
#include "checkpoint/folders.h"
#include "checkpoint/input_file.h"
#include "checkpoint/named_tensors.h"
#include "checkpoint/output_file.h"
#include "checkpoint/pieces.h"
#include "checkpoint/row_copies.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/writing_rank.h"
#include "gang/agreement.h"
#include "nn/lora.h"
#include "parallel/collective_call.h"

namespace gangway {
namespace {

void check(Model& model, const std::string& folder, const SaveOptions& options) {
  if (!model.materialized())
    fail(Code::invalid_state, "save: the model has no storage yet; call parallelize or materialize first");
  if (model.device().kind() == DeviceKind::meta)
    fail(Code::invalid_argument, "save: a meta device has no values");
  if (folder.empty()) fail(Code::invalid_argument, "save: the folder's name is empty");
  if (options.dtype != DType{} && !is_floating(options.dtype))
    fail(Code::invalid_argument, "save: dtype = ", name(options.dtype), " is not floating");
}

// Returns the parameters of the model's files. Adapters are not among them, and may not be part of what the
// model computes.
TensorsToSave tensors_of(Model& model) {
  if (const DecoderOptions* decoder = decoder_options(model.root())) check_saves(*decoder);
  const FilePlaces places(model.root(), model.inspect().names());
  TensorsToSave what{"model", {}};
  for (const NamedParameter& p : model.inspect().saved())
    if (!is_adapter(*p.parameter)) what.tensors.push_back({p.parameter, places.of(p.name)});
  const auto settings = lora_settings(model.inspect().parameters());
  if (settings != nullptr && settings->enabled)
    fail(Code::invalid_state,
         "save: the model has adapters, which model.safetensors does not hold: lora_save writes them, "
         "lora_merge adds them to the weights, and lora_enable(0) leaves them out");
  return what;
}

// The new config.json keeps keys that this library does not need. Returns the text that has them: the
// config.json of the folder from which the model was loaded; or else the one that the save replaces, if that
// describes the same model.
std::string config_to_keep(Model& model, const DecoderOptions& options, const std::string& folder) {
  const std::string path = folder + "/" + kConfigName;
  struct stat status {};
  if (!model.origin().config.empty() || stat(path.c_str(), &status) != 0) return model.origin().config;
  try {
    const std::string json = InputFile(path).read_all(kConfigLimit);
    check_same_function(parse_config_json(json, path), options, path);
    return json;
  } catch (const Error&) {  // the file of another model, or none that can be read
    return "";
  }
}

TensorSetPlan plan_files(const TensorsToSave& what, const SaveOptions& options) {
  std::vector<TensorSpecOnDisk> tensors;
  std::set<std::string> seen;
  for (const auto& [parameter, place] : what.tensors)
    if (seen.insert(place.name).second)  // parameters that are fused in the files have one tensor
      tensors.push_back({place.name, stored_dtype(*parameter, options.dtype), place.shape});
  return TensorSetPlan(what.stem, std::move(tensors), options.max_file_bytes, options.metadata);
}

// Writes this rank's rows of one parameter, piece by piece.
void write_rows(const Parameter& parameter, const FilePlace& place, const TensorSetPlan::Place& there,
                RowWriter& writer) {
  if (!parameter.shard) return;
  const DType dtype = there.spec.dtype;
  for_pieces(place, parameter.box(), parameter.shard, item_bytes(dtype),
             [&](const Tensor& rows, std::span<const FileRun> runs) {
               writer.write(rows, dtype, there.first, runs);
             });
}

// A file of weights that this rank has open.
struct OpenFile {
  OpenFile(Model& model, const std::string& path, Stream& stream)
      : file(path, O_WRONLY), writer(model, file, stream) {}
  OutputFile file;
  RowWriter writer;
};

// Writes the rows of this rank; opens each file at its first write. `folder`: of the staged files.
void write_own_rows(Model& model, const TensorsToSave& what, const TensorSetPlan& plan,
                    const std::string& folder, Stream& stream) {
  std::map<size_t, OpenFile> files;
  for (const auto& [parameter, place] : what.tensors) {
    if (!writes_rows(parameter->layout, model.gangs())) continue;
    const TensorSetPlan::Place& there = plan.place(place.name);
    auto opened = files.find(there.file);
    if (opened == files.end())
      opened = files.try_emplace(there.file, model, folder + plan.files()[there.file].name, stream).first;
    write_rows(*parameter, place, there, opened->second.writer);
  }
  for (auto& [index, opened] : files) {
    opened.writer.finish();
    opened.file.sync();
    opened.file.close();
  }
}

// The text that must be equal on all ranks. It includes the headers, because each rank writes its rows at the
// offsets of the headers that it made itself.
std::string signature(const SaveOptions& options, const TensorSetPlan& plan) {
  std::string headers;
  for (const TensorSetPlan::File& file : plan.files()) headers += file.name + "\n" + file.header;
  CallSignature signature("save");
  signature.add("dtype", options.dtype == DType{} ? "the master's" : name(options.dtype));
  for (const auto& [key, value] : options.metadata) signature.add("metadata " + key, value);
  signature.add("max_file_bytes", options.max_file_bytes);
  signature.add("header hash", philox_key(0, headers));
  return signature.text();
}

// Returns whether a file, by its name, is part of a checkpoint in several files:
// model-00001-of-00003.safetensors.
bool is_shard_name(const std::string& name) {
  constexpr std::string_view kForm = "model-00000-of-00000.safetensors";
  return name.size() == kForm.size() &&
         std::equal(name.begin(), name.end(), kForm.begin(),
                    [](char c, char form) { return form == '0' ? c >= '0' && c <= '9' : c == form; });
}

void stage_copy(const SaveFolder& folder, const std::string& name, const std::string& from) {
  const InputFile source(from);
  OutputFile file(folder.staged(name), O_WRONLY | O_CREAT | O_EXCL);
  std::string piece;
  for (uint64_t at = 0; at < source.opened().bytes; at += piece.size()) {
    poll_interrupt_throttled();
    piece.resize(static_cast<size_t>(std::min<uint64_t>(kPieceBytes, source.opened().bytes - at)));
    source.read(at, piece.size(), piece.data());
    file.write(at, piece.data(), piece.size());
  }
  file.sync();
  file.close();
}

// Replaces an earlier checkpoint by the staged files, config.json included. Files that belong to the model,
// such as its tokenizer, come along from the folder of its origin unless there are some of their names.
void commit(SaveFolder& folder, Model& model, const TensorSetPlan& plan, DType stored,
            const std::string& path) {
  std::set<std::string> weights = {kWeightsName, kIndexName};
  for (const TensorSetPlan::File& file : plan.files()) weights.insert(file.name);
  if (!plan.index_name().empty()) stage(folder, plan.index_name(), plan.index());
  std::vector<std::string> names(weights.begin(), weights.end());
  if (const DecoderOptions* options = decoder_options(model.root())) {
    stage(folder, kConfigName, config_json(*options, stored, config_to_keep(model, *options, path)));
    names.push_back(kConfigName);
  }
  const std::string& origin = model.origin().folder;
  const std::vector<std::string> there = folder.names();
  for (const std::string& name : is_folder(origin) ? files_to_carry(origin) : std::vector<std::string>())
    if (std::find(there.begin(), there.end(), name) == there.end()) {
      stage_copy(folder, name, origin + "/" + name);
      names.push_back(name);
    }
  folder.commit(names);
  for (const std::string& name : folder.names())
    if (is_shard_name(name) && !weights.contains(name)) folder.remove(name);
}

}  // namespace

DType stored_dtype(const Parameter& parameter, DType wanted) {
  return wanted == DType{} || parameter.kind == Parameter::Kind::buffer ? parameter.dtype : wanted;
}

void stage(const SaveFolder& folder, const std::string& name, const std::string& bytes) {
  OutputFile file(folder.staged(name), O_WRONLY | O_CREAT | O_EXCL);
  file.write(0, bytes.data(), bytes.size());
  file.sync();
  file.close();
}

void save_tensors(Model& model, const std::string& path, const SaveOptions& options,
                  const std::function<TensorsToSave()>& describe,
                  const std::function<void(SaveFolder&, const TensorSetPlan&)>& commit) {
  Gangs& gangs = model.gangs();
  Gang& root = *gangs.root();
  Stream& stream = model.device().stream();
  std::optional<SaveFolder> folder;  // on rank 0 only
  std::optional<TensorSetPlan> plan;
  TensorsToSave what;
  std::string staged, arguments;
  const CollectiveCall call(gangs, "save");
  call.check(
      [&] {
        check(model, path, options);
        what = describe();
        plan = plan_files(what, options);
        arguments = signature(options, *plan);
        if (root.rank() != 0) return;
        folder.emplace(path);
        staged = folder->staged("");
        for (const TensorSetPlan::File& file : plan->files())
          OutputFile(staged + file.name, O_WRONLY | O_CREAT | O_EXCL)
              .write(0, file.header.data(), file.header.size());
      },
      arguments);

  // Rank 0 sends the absolute path, because the ranks' working directories may differ.
  staged = root.agreement().broadcast_bytes(Channel::control, staged, 0);
  call.check([&] {
    model.run().order(stream);
    write_own_rows(model, what, *plan, staged, stream);
  });

  call.check([&] {
    if (root.rank() == 0) commit(*folder, *plan);
  });
}

void save_model(Model& model, const std::string& path, const SaveOptions& options) {
  save_tensors(
      model, path, options, [&] { return tensors_of(model); },
      [&](SaveFolder& folder, const TensorSetPlan& plan) {
        commit(folder, model, plan, stored_dtype(*model.inspect().parameters()[0].parameter, options.dtype),
               path);
      });
}

}  // namespace gangway
