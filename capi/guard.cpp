#include "guard.h"

#include <new>
#include <stdexcept>

#include "base/line.h"

namespace gangway::capi {

namespace {

thread_local LastError last;
thread_local int armed_fault = 0;

}  // namespace

LastError& last_error() noexcept { return last; }

void clear_error() noexcept {
  if (last.code == Code::ok) return;
  last.error.reset();
  last.code = Code::ok;
  last.fixed[0] = '\0';
}

gw_status set_error(Code code, const char* message) noexcept {
  last.error.reset();
  last.code = code;
  copy_line(last.fixed, sizeof last.fixed, message);
  return static_cast<gw_status>(code);
}

gw_status set_error(const Error& error) noexcept {
  try {
    last.error = error;
    last.code = error.code();
  } catch (...) {
    return set_error(Code::out_of_memory, "out of memory");
  }
  return static_cast<gw_status>(error.code());
}

namespace {

// Returns the error with the name of the call in its text, if it is a refusal whose text names nothing yet,
// and as its op, if no collective is.
Error with_call_name(const Error& error, const char* call) {
  const bool refusal = error.code() == Code::invalid_argument || error.code() == Code::not_supported ||
                       error.code() == Code::invalid_state || error.code() == Code::busy;
  const bool named = !refusal || error.message().find(": ") != std::string::npos;
  Error result(error.code(), named ? error.message() : text(call, ": ", error.message()));
  result.gang = error.gang;
  result.op = error.op.empty() ? call : error.op;
  result.rank = error.rank;
  result.peer = error.peer;
  result.system_error = error.system_error;
  result.path = error.path;
  return result;
}

}  // namespace

gw_status current_exception_status(const char* call) noexcept try {
  try {
    throw;
  } catch (const Error& error) {
    return set_error(with_call_name(error, call));
  } catch (const std::bad_alloc&) {
    return set_error(Code::out_of_memory, "the process has no memory left");
  } catch (const std::exception& error) {
    return set_error(Code::internal, error.what());
  } catch (...) {
    return set_error(Code::internal, "an unknown exception was thrown inside the library");
  }
} catch (...) {  // there was no memory for the text
  return set_error(Code::out_of_memory, "out of memory");
}

thread_local constinit Stream* EntryStream::now_ = nullptr;

void EntryStream::submit_last() noexcept {
  try {
    end();
  } catch (...) {  // the caller gets the entry's own error
  }
}

std::atomic<bool> fault_was_armed{false};

void arm_fault(int kind) noexcept {
  armed_fault = kind;
  fault_was_armed.store(true, std::memory_order_relaxed);
}

void throw_armed_fault() {
  if (armed_fault == 0) return;
  switch (std::exchange(armed_fault, 0)) {
    case 1: throw std::bad_alloc();
    case 2: throw std::runtime_error("armed fault");
    default: throw 3;
  }
}

}  // namespace gangway::capi
