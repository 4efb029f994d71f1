// Gangs: their properties, traffic and traces, shutdown, abort and shrinking.
#include <gangway/gang.h>

#include <cerrno>

#include "gang/begin_trace.h"
#include "gang_handle.h"

using namespace gangway;
using namespace gangway::capi;

gw_gang* gw_gang_retain(gw_gang* gang) { return retain(gang); }
void gw_gang_release(gw_gang* gang) { release(gang); }

int32_t gw_gang_rank(const gw_gang* gang) { return gang != nullptr ? gang->gang->rank() : -1; }
int32_t gw_gang_size(const gw_gang* gang) { return gang != nullptr ? gang->gang->size() : -1; }
const char* gw_gang_name(const gw_gang* gang) { return gang != nullptr ? gang->gang->name().c_str() : ""; }
const char* gw_gang_engine(const gw_gang* gang) { return gang != nullptr ? gang->gang->engine_name() : ""; }
const char* gw_gang_device(const gw_gang* gang) {
  if (gang == nullptr) return "";
  switch (gang->gang->device().kind()) {
    case DeviceKind::cpu: return "cpu";
    case DeviceKind::cuda: return "cuda";
    case DeviceKind::extension: return "extension";
    case DeviceKind::meta: return "meta";
  }
  return "";
}

gw_status gw_gang_native_handle(gw_gang* gang, void** out_handle) {
  return guarded([&] {
    void*& result = out(out_handle, "out_handle");
    result = gang_of(gang).engine().native_handle();
    if (result == nullptr)
      fail(Code::not_supported, "engine \"", gang_of(gang).engine_name(), "\" has no native handle");
  });
}

void gw_gang_traffic_init(gw_gang_traffic* traffic, size_t size) { start_struct(traffic, size); }

gw_status gw_gang_get_traffic(const gw_gang* gang, gw_gang_traffic* traffic) {
  return guarded([&] {
    required(gang, "gang");
    check_out_struct(traffic, "traffic");
    const Traffic t = gang->gang->traffic();
    write_struct(traffic, gw_gang_traffic{0, nullptr, t.calls, t.bytes_moved, t.bytes_staged});
  });
}

gw_status gw_gang_begin_trace(gw_gang* gang, const char* folder) {
  return guarded([&] { begin_trace(gang_of(gang), text_or(folder, "")); });
}

gw_status gw_gang_end_trace(gw_gang* gang) {
  return guarded([&] { gang_of(gang).owner()->tracer().end(); });
}

gw_status gw_gang_shutdown(gw_gang* gang, int64_t timeout_ms) {
  return guarded([&] { gang_of(gang).shutdown(timeout_ms); });
}

gw_status gw_gang_abort(gw_gang* gang, const char* reason) {
  // In a signal handler, nothing else of the library may run, the guard included.
  if (gang == nullptr || forked_child()) return guarded([&] { static_cast<void>(gang_of(gang)); });
  const int error_of_the_interrupted = errno;
  gang->gang->abort(reason != nullptr ? reason : "no reason given");
  errno = error_of_the_interrupted;
  return GW_OK;
}

gw_status gw_gang_async_error(gw_gang* gang) {
  return guarded([&] {
    if (const auto error = gang_of(gang).error()) throw *error;
  });
}

gw_status gw_gang_shrink(gw_gang* gang, const int32_t* survivors, size_t survivor_count, gw_gang** out_gang) {
  return guarded([&] {
    gw_gang*& result = out(out_gang, "out_gang");
    if (survivor_count > 0) required(survivors, "survivors");
    result = wrap(gang_of(gang).shrink(std::span<const int>(survivors, survivor_count)));
  });
}

gw_status gw_gang_flight_record(const gw_gang* gang, char* text, size_t capacity, size_t* out_len) {
  return guarded([&] {
    required(gang, "gang");
    std::string all;
    for (const FlightEntry& e : gang->gang->flight_record())
      all += gangway::text(name(e.channel), " ", name(e.op), " #", e.sequence, " ", e.bytes, " bytes, start ",
                           e.start_ns, " ns, end ", e.end_ns, " ns, ", e.state, "\n");
    copy_text(all, text, capacity, out_len);
  });
}
