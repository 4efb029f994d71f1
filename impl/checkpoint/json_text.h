// Writes JSON text from scalars, and checks JSON text before nlohmann's parser reads it. nlohmann's arrays
// and objects are not used, because their destructors allocate memory, which ends the process when memory has
// run out.
//
// Thread rule: values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace gangway {

// CORRUPT, with a text that begins with `name`: the text has a zero byte, which JSON has nowhere. nlohmann's
// parser takes it for the end of the text and ignores whatever comes after it.
inline void check_no_zero_byte(std::string_view json, const std::string& name) {
  const size_t at = json.find('\0');
  if (at != std::string_view::npos) fail(Code::corrupt, name, " is not JSON at its byte ", at);
}

// Returns the JSON text of a scalar. Throws nlohmann::json::exception if a text is not UTF-8.
template <typename Scalar>
std::string json_scalar(const Scalar& value) {
  return nlohmann::json(value).dump();
}

// Returns the JSON text of a list of scalars. Throws as json_scalar.
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

  void add(const std::string& key, const std::string& value) {
    if (text_.size() > 1) text_ += ',';
    if (indent_ > 0) text_ += "\n" + std::string(indent_, ' ');
    text_ += json_scalar(key) + (indent_ > 0 ? ": " : ":") + value;
  }
  std::string close() && {
    if (indent_ > 2) text_ += "\n" + std::string(indent_ - 2, ' ');
    if (indent_ == 2) text_ += '\n';
    return std::move(text_) + "}";
  }

 private:
  size_t indent_;
  std::string text_ = "{";
};

}  // namespace gangway
