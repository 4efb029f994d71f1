// JSON as text, put together from scalars. nlohmann's arrays and objects take memory to free memory, which
// would end the process when there is none left.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace gangway {

// Throws nlohmann::json::exception when a text is not UTF-8.
template <typename Scalar>
std::string json_scalar(const Scalar& value) {
  return nlohmann::json(value).dump();
}

class JsonObject {
 public:
  explicit JsonObject(size_t indent) : indent_(indent) {}  // 0: all on one line

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
