// Errors of calls: the thread's last one, and those that are kept.
#include <gangway/base.h>

#include "callbacks.h"
#include "handles.h"

using namespace gangway;
using namespace gangway::capi;

struct gw_error : Handle {
  explicit gw_error(Error e) : error(std::move(e)) {}
  Error error;
};

namespace {

void describe_into(const Error& error, gw_error_info* info) {
  gw_error_info filled{};
  filled.code = static_cast<gw_status>(error.code());
  filled.rank = error.rank;
  filled.peer = error.peer;
  filled.system_error = error.system_error;
  filled.message = error.message().c_str();
  filled.gang = error.gang.c_str();
  filled.op = error.op.c_str();
  filled.path = error.path.c_str();
  write_struct(info, filled);
}

}  // namespace

void gw_error_info_init(gw_error_info* info, size_t size) {
  gw_error_info d{};
  d.rank = d.peer = -1;
  d.message = d.gang = d.op = d.path = "";
  init_struct(info, size, d);
}

gw_status gw_last_error(gw_error_info* info) {
  const LastError& last = last_error();
  if (info == nullptr || info->struct_size < sizeof(size_t) + sizeof(void*)) return GW_E_INVALID_ARGUMENT;
  if (last.error) {
    describe_into(*last.error, info);
    return GW_OK;
  }
  gw_error_info filled{};
  filled.code = static_cast<gw_status>(last.code);
  filled.rank = filled.peer = -1;
  filled.message = last.fixed;
  filled.gang = filled.op = filled.path = "";
  write_struct(info, filled);
  return GW_OK;
}

const char* gw_last_error_text(void) {
  LastError& last = last_error();
  if (last.code == Code::ok) return "";
  const char* message = last.error ? last.error->message().c_str() : last.fixed;
  try {
    last.line = text(name(last.code), ": ", message);
  } catch (...) {
    return message;  // there was no memory for the line
  }
  return last.line.c_str();
}

gw_error* gw_error_take(void) {
  const LastError& last = last_error();
  try {
    if (last.error) return new gw_error(*last.error);
    if (last.code != Code::ok) return new gw_error(Error(last.code, last.fixed));
  } catch (...) {
  }
  return nullptr;
}

gw_status gw_error_describe(const gw_error* error, gw_error_info* info) {
  return guarded([&] {
    required(error, "error");
    check_out_struct(info, "info");
    describe_into(error->error, info);
  });
}

gw_error* gw_error_retain(gw_error* error) { return retain(error); }
void gw_error_release(gw_error* error) { release(error); }

gw_status gw_error_set(const char* message) {
  return guarded([&] {
    const char* const text = &required(message, "message");
    CallbackText* callback = CallbackText::innermost();
    if (callback == nullptr)
      fail(Code::invalid_state, "gw_error_set is for callbacks, and none runs on this thread");
    callback->text = text;
  });
}
