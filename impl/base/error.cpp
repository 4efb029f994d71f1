#include "base/error.h"

#include <charconv>
#include <cstring>

#include "base/line.h"

namespace gangway {

Error::Error(Code code, std::string message) : code_(code), message_(std::move(message)) {
  sanitize_line(message_);
}

const char* name(Code code) noexcept {
  switch (code) {
    case Code::ok: return "OK";
    case Code::invalid_argument: return "INVALID_ARGUMENT";
    case Code::not_supported: return "NOT_SUPPORTED";
    case Code::invalid_state: return "INVALID_STATE";
    case Code::gang: return "GANG";
    case Code::peer_lost: return "PEER_LOST";
    case Code::timeout: return "TIMEOUT";
    case Code::mismatch: return "MISMATCH";
    case Code::aborted: return "ABORTED";
    case Code::not_ready: return "NOT_READY";
    case Code::not_found: return "NOT_FOUND";
    case Code::forked: return "FORKED";
    case Code::caller: return "CALLER";
    case Code::out_of_memory: return "OUT_OF_MEMORY";
    case Code::io: return "IO";
    case Code::corrupt: return "CORRUPT";
    case Code::internal: return "INTERNAL";
    case Code::busy: return "BUSY";
  }
  return "UNKNOWN";
}

void TextPart::append_to(std::string& out) const {
  constexpr int kDigits = 6;
  char digits[32];
  std::to_chars_result end{digits, std::errc()};
  switch (kind_) {
    case Kind::text: out.append(text_, length_); return;
    case Kind::character: out += character_; return;
    case Kind::address: {
      digits[0] = '0', digits[1] = 'x';
      end = std::to_chars(digits + 2, std::end(digits), reinterpret_cast<uintptr_t>(address_), 16);
      break;
    }
    case Kind::integer: end = std::to_chars(digits, std::end(digits), integer_); break;
    case Kind::natural: end = std::to_chars(digits, std::end(digits), natural_); break;
    case Kind::real:
      end = std::to_chars(digits, std::end(digits), real_, std::chars_format::general, kDigits);
      break;
  }
  out.append(digits, end.ptr);
}

namespace detail {

std::string join(std::initializer_list<TextPart> parts) {
  std::string out;
  for (const TextPart& part : parts) part.append_to(out);
  return out;
}

void fail_with(Code code, std::initializer_list<TextPart> parts) { throw Error(code, join(parts)); }

void check_failed(const char* file, int line, const char* expression, TextPart a, TextPart b) {
  fail(Code::internal, file, ":", line, ": ", expression, " does not hold (", a, " and ", b, ")");
}

}  // namespace detail

namespace {

Error system_error_of(Code code, const std::string& message, int system_error) {
  char buffer[256] = "";
  // The GNU form of strerror_r returns the text, which need not lie in the given buffer.
  const char* description = strerror_r(system_error, buffer, sizeof buffer);
  Error error(code, message + ": " + description);
  error.system_error = system_error;
  return error;
}

}  // namespace

void fail_system(Code code, const std::string& message, int system_error) {
  throw system_error_of(code, message, system_error);
}

void fail_file(const std::string& message, const std::string& path, int system_error) {
  Error error = system_error_of(Code::io, message + " " + path, system_error);
  error.path = path;
  throw error;
}

}  // namespace gangway
