// Reads state.json. The reader accepts only the form that the writer gives a state: a cursor walks over the
// text, and what it has read must give the same text again.
#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/line.h"
#include "checkpoint/run/state.h"
#include "checkpoint/run/state_text.h"

namespace gangway {
namespace {

class Cursor {
 public:
  Cursor(std::string_view json, const std::string& path) : json_(json), path_(path) {}

  [[noreturn]] void corrupt(const std::string& what) const {
    fail(Code::corrupt, path_, ": ", field_, " (byte ", at_, "): ", what);
  }
  bool accept(std::string_view token) {
    if (json_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  bool is_next(char c) const { return at_ < json_.size() && json_[at_] == c; }
  void expect(std::string_view token) {
    if (!accept(token)) corrupt("not " + printable(token) + " but " + printable(json_.substr(at_, 20)));
  }
  // Steps over the key of a field; later errors name it.
  void key(std::string_view before, const char* field) {
    expect(before);
    field_ = field;
    expect("\"" + field_ + "\":");
  }
  template <typename Number>
  Number number() {
    Number value{};
    const char* const from = json_.data() + at_;
    const auto [end, error] = std::from_chars(from, json_.data() + json_.size(), value);
    if (error != std::errc()) corrupt("no number of this kind, but " + printable(json_.substr(at_, 20)));
    at_ += static_cast<size_t>(end - from);
    return value;
  }
  uint64_t hash() {
    expect("\"");
    uint64_t value = 0;
    const char* const from = json_.data() + at_;
    const size_t digits = std::min<size_t>(16, json_.size() - at_);
    const auto [end, error] = std::from_chars(from, from + digits, value, 16);
    if (error != std::errc() || end != from + 16) corrupt("no hash of 16 digits");
    at_ += 16;
    expect("\"");
    return value;
  }
  std::string string() {
    const std::string_view literal = json_.substr(at_, end_of_string(at_) - at_);
    std::optional<std::string> value = json_string(literal);
    if (!value) corrupt("no text");
    at_ += literal.size();
    return *std::move(value);
  }
  // The text of an object, whose contents are not looked at.
  std::string object() {
    if (!is_next('{')) corrupt("no JSON object");
    size_t end = at_;
    for (int depth = 0; end < json_.size();) {
      const char c = json_[end];
      end = c == '"' ? end_of_string(end) : end + 1;
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (depth == 0) break;
    }
    const std::string found(json_.substr(at_, end - at_));
    at_ = end;
    return found;
  }
  // Calls each(name) behind the name of every entry.
  template <typename Each>
  void map(Each&& each) {
    expect("{");
    if (accept("}")) return;
    do {
      expect("\n    ");
      const std::string name = string();
      expect(": ");
      each(name);
    } while (accept(","));
    expect("\n  }");
  }

 private:
  // Returns the place behind the text that begins with a quote at `from`.
  size_t end_of_string(size_t from) const {
    if (from >= json_.size() || json_[from] != '"') corrupt("no text");
    for (size_t i = from + 1; i < json_.size(); ++i) {
      if (json_[i] == '"') return i + 1;
      if (json_[i] == '\\') ++i;
    }
    corrupt("a text without an end");
  }

  std::string_view json_;
  const std::string& path_;
  size_t at_ = 0;
  std::string field_ = "format";
};

StoredOptimizer parse_optimizer(Cursor& at) {
  StoredOptimizer optimizer;
  at.key("{", "kind");
  optimizer.kind = at.string();
  at.key(",", "steps");
  optimizer.steps = at.number<int64_t>();
  at.key(",", "lr");
  optimizer.lr = at.number<double>();
  at.key(",", "configured_lr");
  optimizer.configured_lr = at.number<double>();
  at.key(",", "loss_scale");
  optimizer.loss_scale = at.number<double>();
  at.key(",", "finite_steps");
  optimizer.finite_steps = at.number<int64_t>();
  at.key(",", "first_steps");
  at.expect("{");
  while (!at.accept("}")) {
    if (!optimizer.first_steps.empty()) at.expect(",");
    const std::string parameter = at.string();
    at.expect(":");
    optimizer.first_steps[parameter] = at.number<int64_t>();
  }
  at.key(",", "hyperparameters");
  optimizer.hyperparameters = at.object();
  at.expect("}");
  return optimizer;
}

// A list has an entry for the first row and one for the number of rows of each dim, and the hash.
StoredBlock parse_block(Cursor& at, const std::string& tensor) {
  StoredBlock block;
  block.tensor = tensor;
  std::vector<int64_t> numbers;
  at.expect("[");
  while (!at.is_next('"')) {
    if (numbers.size() == 2 * kMaxDims) at.corrupt(text("over ", kMaxDims, " dims"));
    numbers.push_back(at.number<int64_t>());
    at.expect(",");
  }
  block.hash = at.hash();
  at.expect("]");
  if (numbers.size() % 2 != 0) at.corrupt("first rows and numbers of rows of different dims");
  const size_t dims = numbers.size() / 2;
  std::copy_n(numbers.begin(), dims, block.box.first.begin());
  try {
    block.box.shape = Shape(std::span<const int64_t>(numbers.data() + dims, dims));
  } catch (const Error& error) {
    at.corrupt(error.message());
  }
  return block;
}

void parse_tensors(Cursor& at, std::vector<StoredBlock>& blocks) {
  at.expect("[");
  do {
    at.key("\n      {", "name");
    const std::string tensor = at.string();
    at.key(",", "blocks");
    at.expect("[");
    do {
      blocks.push_back(parse_block(at, tensor));
    } while (at.accept(","));
    at.expect("]}");
  } while (at.accept(","));
  at.expect("\n    ]");
}

std::vector<StoredFile> parse_files(Cursor& at) {
  std::vector<StoredFile> files;
  at.expect("[");
  if (at.accept("]")) return files;
  do {
    StoredFile& file = files.emplace_back();
    at.key("\n    {", "name");
    const std::optional<std::string> name = path_from_utf8(at.string());
    if (!name) at.corrupt("no name of a file");
    file.name = *name;
    at.key(",", "bytes");
    file.bytes = at.number<uint64_t>();
    at.key(",", "hash");
    file.hash = at.hash();
    if (at.accept("}")) continue;
    at.key(",", "tensors");
    parse_tensors(at, file.blocks);
    at.expect("}");
  } while (at.accept(","));
  at.expect("\n  ]");
  return files;
}

CheckpointState parse(Cursor& at, const std::string& path) {
  CheckpointState state;
  at.expect("{\n  \"format\": ");
  const int64_t format = at.number<int64_t>();
  if (format != CheckpointState::kFormat)
    fail(Code::not_supported, path, " has format ", format, "; this library reads format ",
         CheckpointState::kFormat, ", so use the release that wrote it, or a later one");
  const auto next = [&](const char* field) {
    at.key(",\n  ", field);
    at.expect(" ");
  };
  next("step");
  state.step = at.number<int64_t>();
  next("tokens");
  state.tokens = at.number<int64_t>();
  next("mesh");
  state.mesh = at.object();
  next("models");
  at.map([&](const std::string& name) { state.models[name] = at.object(); });
  next("optimizers");
  at.map([&](const std::string& name) { state.optimizers[name] = parse_optimizer(at); });
  next("texts");
  at.map([&](const std::string& name) { state.texts[name] = at.string(); });
  next("user");
  if (!from_base64(at.string(), state.user)) at.corrupt("no base64");
  next("files");
  state.files = parse_files(at);
  return state;
}

// Whether parse() has read the whole text exactly is left to this comparison.
bool is_text_of(const CheckpointState& state, std::string_view json) {
  try {
    return write_state(state) == json;
  } catch (const NotUtf8&) {
    return false;
  }
}

}  // namespace

CheckpointState parse_state(std::string_view json, const std::string& path) {
  const size_t end = last_lines("").size();  // the same for every text
  if (json.size() < end) fail(Code::corrupt, path, " has ", json.size(), " bytes, too few for a state.json");
  const std::string_view before = json.substr(0, json.size() - end);
  if (json.substr(before.size()) != last_lines(before))
    fail(Code::corrupt, path,
         ": its hash differs from its contents, or its end is missing: bytes of the file were changed");
  Cursor at(json, path);
  CheckpointState state = parse(at, path);
  if (const std::string problem = problem_of(state); !problem.empty())
    fail(Code::corrupt, path, ": ", problem);
  if (!is_text_of(state, json)) fail(Code::corrupt, path, " is not in the form that this library writes");
  return state;
}

}  // namespace gangway
