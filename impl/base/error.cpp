#include "base/error.h"

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
  }
  return "UNKNOWN";
}

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
