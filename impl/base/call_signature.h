// The values on which all ranks of a collective call must agree, as text: the call's name, then one line for
// each named value. Ranks compare a hash of the text. They exchange the texts only when the hashes differ, to
// report which value differs.
//
// Thread rule: values.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/dtype.h"

namespace gangway {

class CallSignature {
 public:
  explicit CallSignature(std::string_view call = {}) : text_(call) {}

  // Sets a prefix for the names of the values that follow: with the scope "model.norm", "eps" becomes
  // "model.norm.eps". An empty scope adds no prefix.
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  void add(std::string_view name, std::string_view value);
  void add(std::string_view name, const char* value) { add(name, std::string_view(value)); }
  void add(std::string_view name, DType value) { add(name, gangway::name(value)); }
  // Every bit of a number counts: a double is written with as many digits as are needed to restore it.
  template <typename Number>
  requires std::is_arithmetic_v<Number> || std::is_enum_v<Number>
  void add(std::string_view name, Number value) {
    if constexpr (std::is_enum_v<Number>) {
      add(name, static_cast<std::underlying_type_t<Number>>(value));
    } else if constexpr (std::is_same_v<Number, bool>) {
      add(name, value ? "on" : "off");
    } else {
      char digits[32];
      add(name, std::string_view(digits, std::to_chars(digits, digits + sizeof digits, value).ptr));
    }
  }
  void add(const CallSignature& others) { text_ += others.text_; }

  const std::string& text() const { return text_; }

 private:
  std::string text_, scope_;
};

// Returns the error text for a rank whose values differ from rank 0's: it quotes the first line that differs.
// It names `gang` if the calls themselves differ.
std::string difference(const std::string& gang, std::string_view of_rank_0, std::string_view of_other,
                       int rank);

}  // namespace gangway
