// Saving: rank 0 creates the new files in a staging folder and writes the header; every rank writes its rows;
// when all rows are on disk, rank 0 commits. No rank needs memory for more than its shards and a small
// buffer.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>

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
std::vector<NamedParameter> parameters_to_save(Model& model) {
  if (const DecoderOptions* decoder = decoder_options(model.root())) check_saves(*decoder);
  std::vector<NamedParameter> all;
  for (const NamedParameter& p : model.inspect().parameters())
    if (!is_adapter(*p.parameter)) all.push_back({name_in_files(model.root(), p.name), p.parameter});
  const auto settings = lora_settings(model.inspect().parameters());
  if (settings != nullptr && settings->enabled)
    fail(Code::invalid_state,
         "save: the model has adapters, which model.safetensors does not hold: lora_save writes them, "
         "lora_merge adds them to the weights, and lora_enable(0) leaves them out");
  return all;
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
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

SafetensorsHeader header_of(const std::vector<NamedParameter>& tensors, const SaveOptions& options) {
  SafetensorsHeader header;
  header.metadata = options.metadata;
  header.metadata.emplace("format", "pt");  // Hugging Face's loader requires it
  for (const NamedParameter& named : tensors)
    header.tensors[named.name] = {stored_dtype(*named.parameter, options), named.parameter->shape, 0, 0};
  return header;
}

// Writes this rank's rows of one parameter, piece by piece.
void write_rows(const Parameter& parameter, const StoredTensor& stored, uint64_t data_start,
                RowWriter& writer) {
  if (!parameter.shard) return;
  const Tensor rows = parameter.shard.reshape(Shape{parameter.shard.count()});
  for_pieces(parameter, item_bytes(stored.dtype), [&](int64_t at, int64_t count, uint64_t to) {
    writer.write(rows.slice(0, at, at + count), stored.dtype, data_start + stored.first + to);
  });
}

// The text that must be equal on all ranks. It includes the header, because each rank writes its rows at the
// offsets of the header that it made itself.
std::string signature(const SaveOptions& options, const std::string& header) {
  CallSignature signature("save");
  signature.add("dtype", options.dtype == DType{} ? "the master's" : name(options.dtype));
  for (const auto& [key, value] : options.metadata) signature.add("metadata " + key, value);
  signature.add("header hash", philox_key(0, header));
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
void commit(SaveFolder& folder, Model& model, DType stored, const std::string& path) {
  std::vector<std::string> names = {kWeightsName, kIndexName};
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
    if (is_shard_name(name)) folder.remove(name);
}

}  // namespace

DType stored_dtype(const Parameter& parameter, const SaveOptions& options) {
  return options.dtype == DType{} ? parameter.dtype : options.dtype;
}

void stage(const SaveFolder& folder, const std::string& name, const std::string& bytes) {
  OutputFile file(folder.staged(name), O_WRONLY | O_CREAT | O_EXCL);
  file.write(0, bytes.data(), bytes.size());
  file.sync();
  file.close();
}

void save_tensors(Model& model, const std::string& path, const SaveOptions& options,
                  const std::function<TensorsToSave()>& describe,
                  const std::function<void(SaveFolder&)>& commit) {
  Gangs& gangs = model.gangs();
  Gang& root = *gangs.root();
  Stream& stream = model.device().stream();
  std::optional<SaveFolder> folder;  // on rank 0 only
  TensorsToSave what;
  SafetensorsHeader header;
  std::string bytes, weights, arguments;
  const CollectiveCall call(gangs, "save");
  call.check(
      [&] {
        check(model, path, options);
        what = describe();
        header = header_of(what.tensors, options);
        bytes = make_safetensors_header(header);
        arguments = signature(options, bytes);
        if (root.rank() != 0) return;
        folder.emplace(path);
        weights = folder->staged(what.file);
        OutputFile(weights, O_WRONLY | O_CREAT | O_EXCL).write(0, bytes.data(), bytes.size());
      },
      arguments);

  // Rank 0 sends the absolute path, because the ranks' working directories may differ.
  weights = root.agreement().broadcast_bytes(Channel::control, weights, 0);
  call.check([&] {
    OutputFile own(weights, O_WRONLY);
    model.run().order(stream);
    RowWriter writer(model, own, stream);
    for (const NamedParameter& named : what.tensors)
      if (writes_rows(named.parameter->layout, gangs))
        write_rows(*named.parameter, header.tensors.at(named.name), bytes.size(), writer);
    writer.finish();
    own.sync();
    own.close();
  });

  call.check([&] {
    if (root.rank() == 0) commit(*folder);
  });
}

void save_model(Model& model, const std::string& path, const SaveOptions& options) {
  save_tensors(
      model, path, options,
      [&] {
        return TensorsToSave{kWeightsName, parameters_to_save(model)};
      },
      [&](SaveFolder& folder) {
        commit(folder, model, stored_dtype(*model.inspect().parameters()[0].parameter, options), path);
      });
}

}  // namespace gangway
