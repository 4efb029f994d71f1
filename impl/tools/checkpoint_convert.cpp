// The commands convert and weights: a model's files as a new folder of Hugging Face.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/json_scalars.h"
#include "base/line.h"
#include "checkpoint/config_json.h"
#include "checkpoint/folders.h"
#include "checkpoint/run/blocks.h"
#include "checkpoint/run/model_record.h"
#include "checkpoint/run/plain_files.h"
#include "checkpoint/run/tensor_set.h"
#include "checkpoint/run/verify.h"
#include "checkpoint/source.h"
#include "tools/checkpoint_commands.h"
#include "tools/checkpoint_values.h"
#include "tools/progress_line.h"

namespace gangway {
namespace {

bool is_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// Returns whether a file belongs to a model beside its weights and config.json: tokenizer, generation config,
// license and the like.
bool is_carried_along(const std::string& name) {
  constexpr const char* kWeights[] = {".safetensors", ".index.json", ".bin",     ".pt",   ".pth",
                                      ".ckpt",        ".gguf",       ".msgpack", ".onnx", ".h5"};
  return !name.starts_with(".") && name != kConfigName && name != kStateName &&
         std::none_of(std::begin(kWeights), std::end(kWeights),
                      [&](const char* end) { return name.ends_with(end); });
}

// Verifies the files of one model of a checkpoint. A plain folder of Hugging Face has no hashes.
void verify_model(const std::string& folder, const std::string& model) {
  if (!is_there(folder + "/" + kStateName)) return;
  CheckpointState state = read_state(folder);
  const std::string inside = model.empty() ? "" : model + "/";
  std::erase_if(state.files, [&](const StoredFile& file) {
    if (!file.name.starts_with(inside)) return true;
    const std::string name = file.name.substr(inside.size());
    return name.find('/') != std::string::npos ||
           (name.ends_with(".safetensors") && !name.starts_with("model"));  // an optimizer's
  });
  uint64_t bytes = 0;
  for (const StoredFile& file : state.files) bytes += file.bytes;
  ProgressLine line("verifying", bytes);
  verify_checkpoint(folder, state, 0, 1, [&](uint64_t count) { line.add(count); });
}

// A checkpoint of adapters has no whole model.
void refuse_adapters(const std::string& folder, const std::string& model) {
  if (!is_there(folder + "/" + kStateName)) return;
  const CheckpointState state = read_state(folder);
  const auto record = state.models.find(model);
  if (record != state.models.end() && stored_base(record->second))
    fail(Code::invalid_argument, folder,
         " has adapters, and not the base that they were trained over; gw-checkpoint merge ", folder,
         " BASE OUT makes one model of both");
}

TensorSetPlan plan_of(const Source& source, const ConvertCommand& command) {
  std::vector<TensorSpecOnDisk> specs;
  std::map<std::string, std::string> metadata;
  for (const auto& [name, entry] : source.tensors()) {
    check_readable(entry.tensor, name, entry.file->file().path(), "convert");
    const DType dtype = entry.tensor.dtype;
    specs.push_back({name, command.dtype && is_floating(dtype) ? *command.dtype : dtype, entry.tensor.shape});
    if (metadata.empty()) metadata = entry.file->metadata();
  }
  return TensorSetPlan("model", std::move(specs), command.max_file_bytes, metadata);
}

void write_tensor(const std::string& name, const Source::Entry& entry, DType dtype, TensorSetWriter& writer,
                  ProgressLine& line) {
  const size_t item = item_bytes(entry.tensor.dtype);
  std::vector<char> bytes, converted;
  std::vector<double> values;
  for_each_block(entry.tensor.shape, item, [&](const Box& box, int64_t at) {
    bytes.resize(bytes_of(box.shape, item));
    const uint64_t first = static_cast<uint64_t>(at) * item;
    entry.file->read(entry.tensor, first, first + bytes.size(), bytes.data());
    line.add(bytes.size());
    if (dtype == entry.tensor.dtype) return writer.write(name, box, bytes.data());
    to_doubles(entry.tensor.dtype, bytes, values);
    const size_t lost = from_doubles(dtype, values, converted);
    if (lost < values.size())
      fail(Code::invalid_argument, "tensor ", printable(name), " has the value ", values[lost], " at ",
           place_text(at + static_cast<int64_t>(lost), entry.tensor.shape), ", which ", gangway::name(dtype),
           " cannot hold; choose a dtype with a larger range");
    writer.write(name, box, converted.data());
  });
}

void write_weights(const Source& source, const TensorSetPlan& plan, const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& [name, entry] : source.tensors()) bytes += entry.tensor.last - entry.tensor.first;
  ProgressLine line("writing", bytes);
  create_files(plan, folder);
  TensorSetWriter writer(plan, folder);
  for (const auto& [name, entry] : source.tensors())
    write_tensor(name, entry, plan.place(name).spec.dtype, writer, line);
  writer.sync();
}

// Changes only the dtype of a config.json, which may have keys that this library does not know.
std::string config_with(const std::string& text, DType dtype, const std::string& path) {
  const JsonMembers members = json_members(text, path);
  // The names of transformers 5 and 4.
  const std::string key = find_member(members, "dtype") != nullptr ? "dtype" : "torch_dtype";
  const std::string name = json_scalar(dtype == DType::f64    ? "float64"
                                       : dtype == DType::f32  ? "float32"
                                       : dtype == DType::bf16 ? "bfloat16"
                                                              : "float16");
  JsonObject json(2);
  for (const auto& [own, value] : members) json.add(own, own == key ? name : indented_json(value, 2));
  if (find_member(members, key) == nullptr) json.add(key, name);
  return std::move(json).close() + "\n";
}

void write_others(const Source& source, const std::string& from, const std::string& folder,
                  const ConvertCommand& command) {
  if (source.config() != nullptr)
    write_file(folder, kConfigName,
               command.dtype ? config_with(source.config_text(), *command.dtype, source.config()->path())
                             : source.config_text());
  for (const std::string& name : sorted_names(from))
    if (is_carried_along(name) && is_file(from + "/" + name)) copy_file(from + "/" + name, folder, name);
}

}  // namespace

void convert_model(const ConvertCommand& given) {
  ConvertCommand command = given;
  command.folder = checkpoint_in(given.folder);
  const std::string from = command.folder + (command.model.empty() ? "" : "/" + command.model);
  const std::string out = absolute_path(command.out);
  if (is_there(out))
    fail(Code::invalid_argument, out, " exists already; choose a folder that does not exist yet");
  refuse_adapters(command.folder, command.model);
  if (command.verify) verify_model(command.folder, command.model);
  const Source source = Source::open(from);
  source.check_complete();
  const TensorSetPlan plan = plan_of(source, command);
  const size_t slash = out.rfind('/');
  const std::string writing =
      text(out.substr(0, slash), "/.", out.substr(slash + 1), ".writing-", ::getpid());
  try {
    make_folders(writing);
    write_weights(source, plan, writing);
    write_others(source, from, writing, command);
    source.check_unchanged();
    sync_folder(writing);
    if (::rename(writing.c_str(), out.c_str()) != 0) fail_file("renaming " + writing + " to", out, errno);
    sync_folder(out.substr(0, slash));
  } catch (...) {
    remove_tree(AT_FDCWD, writing);
    throw;
  }
  std::printf("%s: %zu tensors in %zu files\n", out.c_str(), source.tensors().size(), plan.files().size());
}

}  // namespace gangway
