// The base layer. Belongs here: errors, the log, configuration, JSON, element types, random numbers, deadlines,
// the interrupt hook, the fork guard. Does not belong here: anything that knows a tensor, a device or a gang.
//
// Errors inside the library: one exception type that carries a status code, a one-line text, and where the
// error happened. It is thrown anywhere below the C ABI, and capi turns it into a gw_status.
//
// Thread rule: values, no shared state.
#pragma once

#include <cstdint>
#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace gangway {

// The numbers are those of gw_status_value in gangway/base.h (capi asserts it).
enum class Code : int32_t {
  ok = 0,
  invalid_argument = 1,
  not_supported = 2,
  invalid_state = 3,
  gang = 4,
  peer_lost = 5,
  timeout = 6,
  mismatch = 7,
  aborted = 8,
  not_ready = 9,
  not_found = 10,
  forked = 11,
  caller = 12,
  out_of_memory = 13,
  io = 14,
  corrupt = 15,
  internal = 16,
  busy = 17,
};

const char* name(Code code) noexcept;  // Returns "INVALID_ARGUMENT" and the like.

class Error : public std::exception {
 public:
  Error(Code code, std::string message);  // Converts `message` to one line of UTF-8.

  const char* what() const noexcept override { return message_.c_str(); }
  Code code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }

  // Where the error happened. A field that does not apply is empty, -1 or 0. Ranks are relative to `gang`.
  std::string gang;
  std::string op;
  int rank = -1;
  int peer = -1;
  int system_error = 0;  // errno, or 0
  std::string path;      // the file of the failed system call

 private:
  Code code_;
  std::string message_;
};

// One argument of text(): a text, a character, a number or an address. It is valid as long as the argument.
// A class of its own, and no stream, because a thousand calls would each compile one.
class TextPart {
 public:
  TextPart(const char* text) : TextPart(std::string_view(text)) {}
  TextPart(const std::string& text) : TextPart(std::string_view(text)) {}
  TextPart(std::string_view text) : kind_(Kind::text), length_(text.size()), text_(text.data()) {}
  TextPart(const void* address) : kind_(Kind::address), address_(address) {}
  // A template, since no enumerator and no small number may become a character.
  template <typename Value>
  requires std::is_arithmetic_v<Value> || std::is_enum_v<Value> TextPart(Value value) {
    if constexpr (std::is_same_v<Value, char>) {
      kind_ = Kind::character;
      character_ = value;
    } else if constexpr (std::is_floating_point_v<Value>) {
      kind_ = Kind::real;
      real_ = static_cast<double>(value);
    } else if constexpr (std::is_unsigned_v<Value>) {
      kind_ = Kind::natural;
      natural_ = value;
    } else {
      kind_ = Kind::integer;
      integer_ = value;  // of the enumerations only those that are numbers: not an enum class
    }
  }

  void append_to(std::string& out) const;

 private:
  enum class Kind : uint8_t { text, address, character, integer, natural, real };
  Kind kind_ = Kind::text;
  size_t length_ = 0;  // of a text
  union {
    const char* text_;
    const void* address_;
    char character_;
    int64_t integer_;
    uint64_t natural_;
    double real_;
  };
};

namespace detail {
std::string join(std::initializer_list<TextPart> parts);
[[noreturn]] void fail_with(Code code, std::initializer_list<TextPart> parts);
[[noreturn]] void check_failed(const char* file, int line, const char* expression, TextPart a, TextPart b);
}  // namespace detail

// Joins its arguments into one string: text("rank ", 3, " of ", 4). A real number has six digits, as %g writes
// it; a bool is 0 or 1.
template <typename... Parts>
std::string text(const Parts&... parts) {
  return detail::join({TextPart(parts)...});
}

template <typename... Parts>
[[noreturn]] void fail(Code code, const Parts&... parts) {
  detail::fail_with(code, {TextPart(parts)...});
}

// Throws an Error whose text ends with the system's description of `system_error` (an errno).
[[noreturn]] void fail_system(Code code, const std::string& message, int system_error);
// Throws Error{io} for a file, with the text "message path: description of the errno".
[[noreturn]] void fail_file(const std::string& message, const std::string& path, int system_error);

}  // namespace gangway

// Checks an invariant of the library itself, and prints both values if it does not hold. Use fail() for a
// caller's mistakes.
#define GW_CHECK(a, op, b)                                                                             \
  do {                                                                                                 \
    if (!((a)op(b))) ::gangway::detail::check_failed(__FILE__, __LINE__, #a " " #op " " #b, (a), (b)); \
  } while (false)
