#include "base/json_scalars.h"

#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/line.h"

namespace gangway {
namespace {

using Kind = JsonValue::Kind;

constexpr int kDeepest = 8;
constexpr int kDeepestKey = 3;
constexpr int kDeepestMember = 64;

std::string refusal_of(JsonFault fault, size_t position) {
  switch (fault) {
    case JsonFault::syntax: return text("it is not JSON at byte ", position);
    case JsonFault::zero_byte: return text("it is not JSON at its byte ", position);
    case JsonFault::byte_order_mark: return "it is not JSON: a byte order mark";
  }
  return "";
}

class ScalarEvents final : public JsonEvents {
 public:
  explicit ScalarEvents(JsonScalars& scalars) : scalars_(scalars) {}

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add({Kind::boolean, value, 0, 0, ""}); }
  bool integer(int64_t value) override {
    return add({Kind::integer, false, value, static_cast<double>(value), std::to_string(value)});
  }
  bool unsigned_integer(uint64_t value) override {
    if (value <= INT64_MAX) return integer(static_cast<int64_t>(value));
    return real(static_cast<double>(value), std::to_string(value));
  }
  bool real(double value, const std::string& token) override {
    return add({Kind::real, false, 0, value, token});
  }
  bool string(const std::string& value) override { return add({Kind::text, false, 0, 0, value}); }

  bool start_object() override { return enter(Kind::object); }
  bool start_list() override { return enter(Kind::list); }
  bool end_object() override { return leave(); }
  bool end_list() override { return leave(); }

  bool key(const std::string& key) override {
    if (listed_ > 0 || depth_ > kDeepestKey) return true;
    forget_keys_below(depth_ - 1);
    key_[depth_ - 1] = key;
    if (scalars_.contains(path())) return refuse(printable(key) + " stands there twice");
    return true;
  }

  void parse_error(JsonFault fault, size_t position) override { refuse(refusal_of(fault, position)); }

  std::string refusal;

 private:
  std::pair<std::string, std::string> path() const {
    return {key_[0], key_[2].empty() ? key_[1] : key_[1] + "." + key_[2]};
  }
  void forget_keys_below(int depth) {
    for (int i = depth; i < kDeepestKey; ++i) key_[i].clear();
  }
  // Adds a value to the result, unless it lies in a list or below the third level.
  bool add(JsonValue value) {
    if (depth_ == 0) return refuse("it is no JSON object");
    if (listed_ == 0 && depth_ <= kDeepestKey) {
      scalars_.emplace(path(), std::move(value));
    } else if (listed_ == 1 && list_ != nullptr) {
      add_element(*list_, value);
    }
    return true;
  }
  static void add_element(JsonValue& list, JsonValue& element) {
    ++list.count;
    if (element.kind == Kind::text) list.texts.push_back(std::move(element.text));
    if (element.is_number() && list.numbers.size() < JsonValue::kMostNumbers)
      list.numbers.push_back(element.real);
  }
  bool enter(Kind kind) {
    if (depth_ == 0 && kind == Kind::list) return refuse("it is no JSON object");
    if (depth_ == kDeepest) return refuse(text("it is nested over ", kDeepest, " deep"));
    if (depth_ > 0) add({kind, false, 0, 0, ""});
    if (kind == Kind::list && listed_ == 0 && depth_ <= kDeepestKey) list_ = &scalars_.at(path());
    ++depth_;
    // listed_ counts the open lists and objects whose contents do not go into the result.
    if (listed_ > 0 || kind == Kind::list || depth_ > kDeepestKey) ++listed_;
    return true;
  }
  bool leave() {
    --depth_;
    if (listed_ > 0 && --listed_ == 0) list_ = nullptr;
    if (depth_ > 0) forget_keys_below(depth_);
    return true;
  }
  bool refuse(std::string what) {
    if (refusal.empty()) refusal = std::move(what);
    return false;
  }

  JsonScalars& scalars_;
  std::string key_[kDeepestKey];
  int depth_ = 0, listed_ = 0;
  JsonValue* list_ = nullptr;  // the list whose elements are the next values
};

// Looks at the keys of the outermost object alone.
class MemberEvents final : public AnyJson {
 public:
  bool start_object() override { return enter(); }
  bool start_list() override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_list() override { return leave(); }
  bool key(const std::string& key) override {
    if (depth_ == 1 && !keys_.insert(key).second) refusal = printable(key) + " stands there twice";
    return refusal.empty();
  }
  void parse_error(JsonFault fault, size_t position) override { refusal = refusal_of(fault, position); }

  std::string refusal;

 private:
  bool enter() {
    if (++depth_ > kDeepestMember) refusal = text("it is nested over ", kDeepestMember, " deep");
    return refusal.empty();
  }
  bool leave() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  std::set<std::string> keys_;
};

}  // namespace

std::string JsonValue::display() const {
  switch (kind) {
    case Kind::null: return "null";
    case Kind::boolean: return boolean ? "true" : "false";
    case Kind::integer:
    case Kind::real: return text.substr(0, 40);
    case Kind::text: return printable(text);
    case Kind::list: return "a list";
    case Kind::object: return "an object";
  }
  return "";
}

JsonScalars read_json_scalars(std::string_view json, const std::string& name) {
  JsonScalars scalars;
  ScalarEvents events(scalars);
  if (!read_json(json, events)) fail(Code::corrupt, name, ": ", events.refusal);
  return scalars;
}

std::optional<JsonScalars> find_json_scalars(std::string_view json) {
  JsonScalars scalars;
  ScalarEvents events(scalars);
  if (!read_json(json, events)) return std::nullopt;
  return scalars;
}

const JsonValue* find_scalar(const JsonScalars& scalars, const std::string& key, const std::string& subkey) {
  const auto found = scalars.find({key, subkey});
  return found == scalars.end() ? nullptr : &found->second;
}

JsonMembers json_members(std::string_view json, const std::string& name) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto after_space = [&](size_t at) { return json.find_first_not_of(kSpace, at); };
  MemberEvents events;
  if (!read_json(json, events)) fail(Code::corrupt, name, ": ", events.refusal);
  if (json[after_space(0)] != '{') fail(Code::corrupt, name, ": it is no JSON object");
  const auto after_text = [&](size_t at) {
    for (++at; json[at] != '"'; ++at)
      if (json[at] == '\\') ++at;
    return at + 1;
  };
  JsonMembers members;
  size_t at = after_space(json.find('{') + 1);
  while (json[at] != '}') {
    const size_t key_end = after_text(at);
    const std::optional<std::string> key = json_string(json.substr(at, key_end - at));
    const size_t first = after_space(json.find(':', key_end) + 1);
    size_t last = first;
    for (int depth = 0; depth > 0 || (json[last] != ',' && json[last] != '}');) {
      const char c = json[last];
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      last = c == '"' ? after_text(last) : last + 1;
    }
    const std::string_view value = json.substr(first, last - first);
    members.emplace_back(*key, value.substr(0, value.find_last_not_of(kSpace) + 1));
    at = after_space(json[last] == ',' ? last + 1 : last);
  }
  return members;
}

const std::string_view* find_member(const JsonMembers& members, std::string_view key) {
  for (const auto& [name, value] : members)
    if (name == key) return &value;
  return nullptr;
}

}  // namespace gangway
