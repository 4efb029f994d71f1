// What all ranks of a collective call must have alike, as text: the call's name, then one named value a line. Ranks
// compare a hash of the text; the texts travel only when hashes differ, to say which value it is.
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

class Facts {
 public:
  explicit Facts(std::string_view call = {}) : text_(call) {}

  // Of the facts that follow: "model.norm" makes "model.norm.eps"; empty: none.
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  void add(std::string_view name, std::string_view value);
  void add(std::string_view name, const char* value) { add(name, std::string_view(value)); }
  void add(std::string_view name, DType value) { add(name, gangway::name(value)); }
  // Every bit counts: a double gets as many digits as it takes.
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
  void add(const Facts& others) { text_ += others.text_; }

  const std::string& text() const { return text_; }

 private:
  std::string text_, scope_;
};

// What to tell when the text of `rank` is another one than rank 0's: the first line that differs. `gang` is named when
// already the calls do.
std::string difference(const std::string& gang, std::string_view of_rank_0, std::string_view of_other,
                       int rank);

}  // namespace gangway
