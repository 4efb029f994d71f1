#include "checkpoint/json_scalars.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/header_json.h"
#include "checkpoint/json_text.h"

namespace gangway {
namespace {

using Json = nlohmann::json;
using Kind = JsonValue::Kind;

constexpr int kDeepest = 8;
constexpr int kDeepestKey = 3;

class ScalarEvents final : public nlohmann::json_sax<Json> {
 public:
  explicit ScalarEvents(JsonScalars& scalars) : scalars_(scalars) {}

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add({Kind::boolean, value, 0, 0, ""}); }
  bool number_integer(number_integer_t value) override {
    return add({Kind::integer, false, value, static_cast<double>(value), std::to_string(value)});
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= INT64_MAX) return number_integer(static_cast<number_integer_t>(value));
    return number_float(static_cast<double>(value), std::to_string(value));
  }
  bool number_float(number_float_t value, const string_t& token) override {
    return add({Kind::real, false, 0, value, token});
  }
  bool string(string_t& value) override { return add({Kind::text, false, 0, 0, value}); }
  bool binary(binary_t&) override { return refuse("bytes stand in it"); }

  bool start_object(size_t) override { return enter(Kind::object); }
  bool start_array(size_t) override { return enter(Kind::list); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }

  bool key(string_t& key) override {
    if (listed_ > 0 || depth_ > kDeepestKey) return true;
    forget_keys_below(depth_ - 1);
    key_[depth_ - 1] = key;
    if (scalars_.contains(path())) return refuse(printable(key) + " stands there twice");
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse(text("it is not JSON at byte ", position));
  }

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
    const bool is_number = element.kind == Kind::integer || element.kind == Kind::real;
    if (element.kind == Kind::text) list.texts.push_back(std::move(element.text));
    if (is_number && list.numbers.size() < JsonValue::kMostNumbers) list.numbers.push_back(element.real);
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
  check_no_zero_byte(json, name + ": it");
  // nlohmann's parser skips a byte order mark, which other readers of these files refuse.
  if (json.starts_with("\xef\xbb\xbf")) fail(Code::corrupt, name, ": it is not JSON: a byte order mark");
  JsonScalars scalars;
  ScalarEvents events(scalars);
  try {
    if (!Json::sax_parse(json.begin(), json.end(), &events)) fail(Code::corrupt, name, ": ", events.refusal);
  } catch (const Json::exception&) {
    fail(Code::corrupt, name, ": it is not JSON");
  }
  return scalars;
}

JsonMembers json_members(std::string_view json, const std::string& name) {
  read_json_scalars(json, name);  // throws unless it is an object; the scanner below relies on that
  constexpr std::string_view kSpace = " \t\r\n";
  const auto after_space = [&](size_t at) { return json.find_first_not_of(kSpace, at); };
  const auto after_text = [&](size_t at) {
    for (++at; json[at] != '"'; ++at)
      if (json[at] == '\\') ++at;
    return at + 1;
  };
  JsonMembers members;
  size_t at = after_space(json.find('{') + 1);
  while (json[at] != '}') {
    const size_t key_end = after_text(at);
    const std::string key = Json::parse(json.substr(at, key_end - at)).get<std::string>();
    const size_t first = after_space(json.find(':', key_end) + 1);
    size_t last = first;
    for (int depth = 0; depth > 0 || (json[last] != ',' && json[last] != '}');) {
      const char c = json[last];
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      last = c == '"' ? after_text(last) : last + 1;
    }
    const std::string_view value = json.substr(first, last - first);
    members.emplace_back(key, value.substr(0, value.find_last_not_of(kSpace) + 1));
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
