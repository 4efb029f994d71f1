// Writes state.json, and checks the values of a state.
#include "checkpoint/run/state.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "base/line.h"
#include "checkpoint/run/state_text.h"

namespace gangway {
namespace {

// A name from an untrusted file must not lead out of the checkpoint's folder.
bool stays_inside(const std::string& name) {
  size_t from = 0;
  for (;;) {
    const size_t slash = name.find('/', from);
    const std::string part = name.substr(from, slash == std::string::npos ? slash : slash - from);
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string::npos) return false;
    if (slash == std::string::npos) return true;
    from = slash + 1;
  }
}

bool is_object(const std::string& json) {
  return json.size() >= 2 && json.front() == '{' && json.back() == '}' && is_json(json);
}

std::string problem_of_block(const StoredBlock& block) {
  constexpr int64_t kMostRows = int64_t{1} << 58;  // of a Shape; the sum of two is no overflow
  for (int d = 0; d < block.box.shape.rank(); ++d) {
    const int64_t first = block.box.first[static_cast<size_t>(d)];
    if (first < 0 || first > kMostRows || block.box.shape[d] < 1)
      return text("a block of tensor ", printable(block.tensor), " has ", block.box.shape[d], " rows from ",
                  first, " of dim ", d);
  }
  return "";
}

std::string problem_of_files(const std::vector<StoredFile>& files) {
  const std::string* before = nullptr;
  for (const StoredFile& file : files) {
    if (!stays_inside(file.name)) return "files: " + printable(file.name) + " is no file of the folder";
    if (file.name == kStateName) return "files: state.json has its own hash and is not in the list";
    if (before != nullptr && !(*before < file.name))
      return "files: " + printable(file.name) + " comes after " + printable(*before) +
             "; they must be sorted";
    before = &file.name;
    for (const StoredBlock& block : file.blocks)
      if (std::string problem = problem_of_block(block); !problem.empty())
        return "files: " + printable(file.name) + ": " + problem;
  }
  return "";
}

std::string problem_of_optimizer(const StoredOptimizer& optimizer) {
  for (const auto& [name, value] : {std::pair{"lr", optimizer.lr},
                                    {"configured_lr", optimizer.configured_lr},
                                    {"loss_scale", optimizer.loss_scale}})
    if (!std::isfinite(value)) return text(name, " is ", value);
  if (optimizer.steps < 0) return text("steps is ", optimizer.steps);
  if (optimizer.finite_steps < 0) return text("finite_steps is ", optimizer.finite_steps);
  for (const auto& [parameter, step] : optimizer.first_steps)
    if (step < 0) return text("first_steps.", printable(parameter), " is ", step);
  if (!optimizer.hyperparameters.empty() && !is_object(optimizer.hyperparameters))
    return "hyperparameters is no JSON object";
  return "";
}

// Appends an object or a list with one line for each item; nothing stands between the brackets if it is
// empty.
class Lines {
 public:
  Lines(std::string& out, const char* brackets, size_t indent)
      : out_(out), brackets_(brackets), indent_(indent) {
    out_ += brackets_[0];
  }
  void add(const std::string& line) {
    out_ += (empty_ ? "\n" : ",\n") + std::string(indent_, ' ') + line;
    empty_ = false;
  }
  void close() {
    if (!empty_) out_ += "\n" + std::string(indent_ - 2, ' ');
    out_ += brackets_[1];
  }

 private:
  std::string& out_;
  const char* brackets_;
  size_t indent_;
  bool empty_ = true;
};

std::string or_empty_object(const std::string& json) { return json.empty() ? "{}" : json; }

std::string line_of(const StoredOptimizer& optimizer) {
  JsonObject first_steps(0);
  for (const auto& [parameter, step] : optimizer.first_steps)
    first_steps.add(parameter, std::to_string(step));
  JsonObject json(0);
  json.add("kind", json_scalar(optimizer.kind));
  json.add("steps", std::to_string(optimizer.steps));
  json.add("lr", json_scalar(optimizer.lr));
  json.add("configured_lr", json_scalar(optimizer.configured_lr));
  json.add("loss_scale", json_scalar(optimizer.loss_scale));
  json.add("finite_steps", std::to_string(optimizer.finite_steps));
  json.add("first_steps", std::move(first_steps).close());
  json.add("hyperparameters", or_empty_object(optimizer.hyperparameters));
  return std::move(json).close();
}

// [first of each dim, rows of each dim, "hash"]
std::string list_of(const StoredBlock& block) {
  std::string list = "[";
  for (int d = 0; d < block.box.shape.rank(); ++d)
    list += std::to_string(block.box.first[static_cast<size_t>(d)]) + ",";
  for (const int64_t rows : block.box.shape.dims()) list += std::to_string(rows) + ",";
  return list + "\"" + hex(block.hash) + "\"]";
}

// The blocks of one tensor that follow each other share a line.
std::string entry_of(const StoredFile& file) {
  JsonObject json(0);
  json.add("name", json_scalar(path_to_utf8(file.name)));
  json.add("bytes", std::to_string(file.bytes));
  json.add("hash", "\"" + hex(file.hash) + "\"");
  if (file.blocks.empty()) return std::move(json).close();
  std::string tensors;
  Lines lines(tensors, "[]", 6);
  for (size_t i = 0; i < file.blocks.size();) {
    const std::string& tensor = file.blocks[i].tensor;
    std::string blocks;
    for (; i < file.blocks.size() && file.blocks[i].tensor == tensor; ++i)
      blocks += (blocks.empty() ? "[" : ",") + list_of(file.blocks[i]);
    JsonObject line(0);
    line.add("name", json_scalar(tensor));
    line.add("blocks", blocks + "]");
    lines.add(std::move(line).close());
  }
  lines.close();
  json.add("tensors", tensors);
  return std::move(json).close();
}

// Appends one value of the outermost object.
void add(std::string& out, const char* key, const std::string& value) {
  out += (out == "{" ? "\n  \"" : ",\n  \"") + std::string(key) + "\": " + value;
}

template <typename Map, typename Value>
std::string object_of(const Map& map, Value&& value) {
  std::string out;
  Lines lines(out, "{}", 4);
  for (const auto& [name, entry] : map) lines.add(json_scalar(name) + ": " + value(entry));
  lines.close();
  return out;
}

}  // namespace

std::string problem_of(const CheckpointState& state) {
  if (state.step < 0) return text("step is ", state.step);
  if (state.tokens < 0) return text("tokens is ", state.tokens);
  if (!state.mesh.empty() && !is_object(state.mesh)) return "mesh is no JSON object";
  for (const auto& [name, model] : state.models)
    if (!model.empty() && !is_object(model)) return "models: " + printable(name) + " is no JSON object";
  for (const auto& [name, optimizer] : state.optimizers)
    if (const std::string problem = problem_of_optimizer(optimizer); !problem.empty())
      return "optimizers: " + printable(name) + ": " + problem;
  if (state.user.size() > kUserLimit)
    return text("user has ", state.user.size(), " bytes, over the limit of ", kUserLimit);
  return problem_of_files(state.files);
}

std::string hex(uint64_t number) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(number));
  return digits;
}

std::string last_lines(std::string_view before) {
  return "  \"hash\": \"" + hex(XXH3_64bits(before.data(), before.size())) + "\"\n}\n";
}

std::string to_base64(std::string_view bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // EVP_EncodeBlock adds a zero byte
  const int count =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(count));
  return out;
}

bool from_base64(std::string_view text, std::string& bytes) {
  bytes.assign(text.size() / 4 * 3, '\0');
  if (text.empty()) return true;
  if (text.size() % 4 != 0 || text.size() > 2 * kUserLimit) return false;
  const int count =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                      reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  if (count < 0) return false;
  // EVP_DecodeBlock counts the padding as zero bytes.
  const size_t padding = (text.back() == '=' ? 1u : 0u) + (text[text.size() - 2] == '=' ? 1u : 0u);
  bytes.resize(static_cast<size_t>(count) - padding);
  return true;
}

std::string write_state(const CheckpointState& state) {
  std::string out = "{";
  add(out, "format", std::to_string(CheckpointState::kFormat));
  add(out, "step", std::to_string(state.step));
  add(out, "tokens", std::to_string(state.tokens));
  add(out, "mesh", or_empty_object(state.mesh));
  add(out, "models", object_of(state.models, or_empty_object));
  add(out, "optimizers", object_of(state.optimizers, line_of));
  add(out, "texts", object_of(state.texts, [](const std::string& value) { return json_scalar(value); }));
  add(out, "user", "\"" + to_base64(state.user) + "\"");
  std::string files;
  Lines lines(files, "[]", 4);
  for (const StoredFile& file : state.files) lines.add(entry_of(file));
  lines.close();
  add(out, "files", files);
  out += ",\n";
  return out + last_lines(out);
}

std::string to_json(const CheckpointState& state) {
  const std::string problem = problem_of(state);
  if (!problem.empty()) fail(Code::invalid_argument, "state.json: ", problem);
  try {
    return write_state(state);
  } catch (const NotUtf8&) {
    fail(Code::invalid_argument, "state.json: a name or a text is not UTF-8");
  }
}

}  // namespace gangway
