#include "base/json.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"

namespace gangway {
namespace {

using Json = nlohmann::json;

// Hands the library's events on.
class Bridge final : public nlohmann::json_sax<Json> {
 public:
  explicit Bridge(JsonEvents& events) : events_(events) {}

  bool null() override { return events_.null(); }
  bool boolean(bool value) override { return events_.boolean(value); }
  bool number_integer(number_integer_t value) override { return events_.integer(value); }
  bool number_unsigned(number_unsigned_t value) override { return events_.unsigned_integer(value); }
  bool number_float(number_float_t value, const string_t& token) override {
    return events_.real(value, token);
  }
  bool string(string_t& value) override { return events_.string(value); }
  bool binary(binary_t&) override { return false; }  // a text of JSON has none
  bool start_object(size_t) override { return events_.start_object(); }
  bool key(string_t& key) override { return events_.key(key); }
  bool end_object() override { return events_.end_object(); }
  bool start_array(size_t) override { return events_.start_list(); }
  bool end_array() override { return events_.end_list(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    events_.parse_error(JsonFault::syntax, position);
    return false;
  }

 private:
  JsonEvents& events_;
};

class StringEvents final : public AnyJson {
 public:
  bool string(const std::string& value) override {
    last = value;
    return true;
  }
  std::string last;
};

// Writes what it gets.
class IndentingEvents final : public JsonEvents {
 public:
  explicit IndentingEvents(size_t indent) : indent_(indent) {}

  bool null() override { return add("null"); }
  bool boolean(bool value) override { return add(json_scalar(value)); }
  bool integer(int64_t value) override { return add(json_scalar(value)); }
  bool unsigned_integer(uint64_t value) override { return add(json_scalar(value)); }
  bool real(double value, const std::string&) override { return add(json_scalar(value)); }
  bool string(const std::string& value) override { return add(json_scalar(value)); }
  bool start_object() override { return open('{', false); }
  bool start_list() override { return open('[', true); }
  bool end_object() override { return close('}'); }
  bool end_list() override { return close(']'); }
  bool key(const std::string& key) override {
    new_line();
    out += json_scalar(key) + ": ";
    return true;
  }
  void parse_error(JsonFault, size_t) override {}

  std::string out;

 private:
  struct Level {
    bool is_list, is_empty;
  };

  bool add(std::string_view value) {
    if (!open_.empty() && open_.back().is_list) new_line();
    out += value;
    return true;
  }
  void new_line() {
    out += std::exchange(open_.back().is_empty, false) ? "\n" : ",\n";
    out.append(indent_ + 2 * open_.size(), ' ');
  }
  bool open(char bracket, bool is_list) {
    add({&bracket, 1});
    open_.push_back({is_list, true});
    return true;
  }
  bool close(char bracket) {
    const bool is_empty = open_.back().is_empty;
    open_.pop_back();
    if (!is_empty) out.append("\n").append(indent_ + 2 * open_.size(), ' ');
    out += bracket;
    return true;
  }

  size_t indent_;
  std::vector<Level> open_;
};

template <typename Scalar>
std::string dumped(Scalar&& value) {
  try {
    return Json(std::forward<Scalar>(value)).dump();
  } catch (const Json::exception&) {
    throw NotUtf8();
  }
}

}  // namespace

bool read_json(std::string_view json, JsonEvents& events) {
  // The library takes a zero byte for the end of the text, and ignores whatever comes after it.
  if (const size_t zero = json.find('\0'); zero != std::string_view::npos) {
    events.parse_error(JsonFault::zero_byte, zero);
    return false;
  }
  // The library skips it.
  if (json.starts_with("\xef\xbb\xbf")) {
    events.parse_error(JsonFault::byte_order_mark, 0);
    return false;
  }
  Bridge bridge(events);
  return Json::sax_parse(json.begin(), json.end(), &bridge);
}

bool is_json(std::string_view json) {
  AnyJson events;
  return read_json(json, events);
}

std::optional<std::string> json_string(std::string_view json) {
  StringEvents events;
  if (!json.starts_with('"') || !read_json(json, events)) return std::nullopt;
  return std::move(events.last);
}

std::string json_scalar(bool value) { return value ? "true" : "false"; }
std::string json_scalar(int value) { return std::to_string(value); }
std::string json_scalar(int64_t value) { return std::to_string(value); }
std::string json_scalar(uint64_t value) { return std::to_string(value); }
std::string json_scalar(double value) { return dumped(value); }
std::string json_scalar(const char* value) { return dumped(value); }
std::string json_scalar(std::string_view value) { return dumped(std::string(value)); }

void JsonObject::add(const std::string& key, const std::string& value) {
  if (text_.size() > 1) text_ += ',';
  if (indent_ > 0) text_ += "\n" + std::string(indent_, ' ');
  text_ += json_scalar(key) + (indent_ > 0 ? ": " : ":") + value;
}

std::string JsonObject::close() && {
  if (indent_ > 2) text_ += "\n" + std::string(indent_ - 2, ' ');
  if (indent_ == 2) text_ += '\n';
  return std::move(text_) + "}";
}

std::string indented_json(std::string_view json, size_t indent) {
  IndentingEvents events(indent);
  if (!read_json(json, events)) fail(Code::corrupt, "a text is not JSON");
  return std::move(events.out);
}

}  // namespace gangway
