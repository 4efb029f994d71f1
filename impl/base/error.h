// The base layer. Belongs here: errors, the log, configuration, element types, random numbers, deadlines, the
// interrupt hook, the fork guard. Does not belong here: anything that knows a tensor, a device or a gang.
//
// Errors inside the library: one exception type that carries a status code, a one-line text, and where the
// error happened. It is thrown anywhere below the C ABI, and capi turns it into a gw_status.
//
// Thread rule: values, no shared state.
#pragma once

#include <cstdint>
#include <exception>
#include <sstream>
#include <string>
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

// Joins its arguments into one string: text("rank ", 3, " of ", 4).
template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  // Without it, the stream would swallow bad_alloc and return a truncated text.
  out.exceptions(std::ios::badbit);
  (out << ... << parts);
  return out.str();
}

template <typename... Parts>
[[noreturn]] void fail(Code code, const Parts&... parts) {
  throw Error(code, text(parts...));
}

// Throws an Error whose text ends with the system's description of `system_error` (an errno).
[[noreturn]] void fail_system(Code code, const std::string& message, int system_error);
// Throws Error{io} for a file, with the text "message path: description of the errno".
[[noreturn]] void fail_file(const std::string& message, const std::string& path, int system_error);

namespace detail {
template <typename A, typename B>
[[noreturn]] void check_failed(const char* file, int line, const char* expression, const A& a, const B& b) {
  fail(Code::internal, file, ":", line, ": ", expression, " does not hold (", a, " and ", b, ")");
}
}  // namespace detail

}  // namespace gangway

// Checks an invariant of the library itself, and prints both values if it does not hold. Use fail() for a
// caller's mistakes.
#define GW_CHECK(a, op, b)                                                                             \
  do {                                                                                                 \
    if (!((a)op(b))) ::gangway::detail::check_failed(__FILE__, __LINE__, #a " " #op " " #b, (a), (b)); \
  } while (false)
