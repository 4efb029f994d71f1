// JSON: reads a text as events, and writes one from scalars. There are no documents. The JSON library's own
// are not used, because their destructors of arrays and objects allocate memory, which ends the process when
// memory has run out. json.cpp alone includes that library, whose header takes seconds to compile.
//
// Thread rule: pure functions and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace gangway {

// Why a text is not JSON. JSON has a zero byte nowhere, and other readers refuse a byte order mark.
enum class JsonFault : uint8_t { syntax, zero_byte, byte_order_mark };

// What read_json finds, in the order of the text. An event that returns false ends the reading.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;

  virtual bool null() = 0;
  virtual bool boolean(bool value) = 0;
  virtual bool integer(int64_t value) = 0;  // that has a minus
  virtual bool unsigned_integer(uint64_t value) = 0;
  // A number that has a fraction or an exponent, or is too large for an integer. `token`: as it stands there.
  virtual bool real(double value, const std::string& token) = 0;
  virtual bool string(const std::string& value) = 0;
  virtual bool start_object() = 0;
  virtual bool key(const std::string& key) = 0;
  virtual bool end_object() = 0;
  virtual bool start_list() = 0;
  virtual bool end_list() = 0;
  // The text is not JSON. `position`: how many bytes were read; of a zero byte, its place. Only a fault of
  // syntax comes after other events.
  virtual void parse_error(JsonFault fault, size_t position) = 0;
};

// Takes everything. For readers that look at few events.
class AnyJson : public JsonEvents {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool integer(int64_t) override { return true; }
  bool unsigned_integer(uint64_t) override { return true; }
  bool real(double, const std::string&) override { return true; }
  bool string(const std::string&) override { return true; }
  bool start_object() override { return true; }
  bool key(const std::string&) override { return true; }
  bool end_object() override { return true; }
  bool start_list() override { return true; }
  bool end_list() override { return true; }
  void parse_error(JsonFault, size_t) override {}
};

// Returns whether the text is one value of JSON and no event has returned false.
bool read_json(std::string_view json, JsonEvents& events);
bool is_json(std::string_view json);
// Returns what a text of JSON stands for, which begins with its quote; nothing: `json` is none.
std::optional<std::string> json_string(std::string_view json);

// A text is not UTF-8, so JSON cannot have it. A caller that takes texts from outside says which one it is.
class NotUtf8 : public std::exception {
 public:
  const char* what() const noexcept override { return "a text is not UTF-8, and JSON cannot have it"; }
};

// Return the JSON text of a scalar. A number that is not finite becomes null. Throw NotUtf8.
std::string json_scalar(bool value);
std::string json_scalar(int value);
std::string json_scalar(int64_t value);
std::string json_scalar(uint64_t value);
std::string json_scalar(double value);
std::string json_scalar(const char* value);
std::string json_scalar(std::string_view value);
inline std::string json_scalar(const std::string& value) { return json_scalar(std::string_view(value)); }
template <typename Enum>
requires std::is_enum_v<Enum> std::string json_scalar(Enum value) {  // its number
  return json_scalar(static_cast<int64_t>(value));
}

// Returns the JSON text of a list of scalars. Throws NotUtf8.
template <typename Range>
std::string json_list(const Range& scalars) {
  std::string list;
  for (const auto& scalar : scalars) list += (list.empty() ? "" : ", ") + json_scalar(scalar);
  return "[" + list + "]";
}

class JsonObject {
 public:
  // `indent`: spaces before each key; 0: everything on one line.
  explicit JsonObject(size_t indent) : indent_(indent) {}

  void add(const std::string& key, const std::string& value);  // `value` is JSON. Throws NotUtf8.
  std::string close() &&;

 private:
  size_t indent_;
  std::string text_ = "{";
};

// Returns the same value with a line for each key and each element, as the value of a key that stands behind
// `indent` spaces; each level has two more. CORRUPT: it is not JSON. The caller bounds the levels.
std::string indented_json(std::string_view json, size_t indent);

}  // namespace gangway
