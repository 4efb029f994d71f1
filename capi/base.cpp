#include <gangway/base.h>

#include "base/config.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "bytes.h"
#include "callbacks.h"
#include "device/host_memory.h"
#include "level.h"

using namespace gangway;
using namespace gangway::capi;

static_assert(static_cast<int>(Code::internal) == GW_E_INTERNAL &&
              static_cast<int>(Code::busy) == GW_E_BUSY && static_cast<int>(Code::caller) == GW_E_CALLER);
static_assert(static_cast<int>(Code::invalid_argument) == GW_E_INVALID_ARGUMENT);
static_assert(static_cast<int>(Code::peer_lost) == GW_E_PEER_LOST &&
              static_cast<int>(Code::forked) == GW_E_FORKED);
static_assert(static_cast<int>(DType::f32) == GW_F32 && static_cast<int>(DType::f64) == GW_F64);
static_assert(static_cast<int>(DType::bf16) == GW_BF16 && static_cast<int>(DType::f16) == GW_F16);
static_assert(static_cast<int>(DType::i8) == GW_I8 && static_cast<int>(DType::i16) == GW_I16);
static_assert(static_cast<int>(DType::i32) == GW_I32 && static_cast<int>(DType::i64) == GW_I64);
static_assert(static_cast<int>(DType::u8) == GW_U8 && static_cast<int>(DType::u16) == GW_U16);
static_assert(static_cast<int>(DType::u32) == GW_U32 && static_cast<int>(DType::u64) == GW_U64);
static_assert(static_cast<int>(DType::c64) == GW_C64 && static_cast<int>(DType::c128) == GW_C128);
static_assert(static_cast<int>(DType::boolean) == GW_BOOL);
static_assert(static_cast<int>(DType::f8_e4m3) == GW_F8_E4M3 &&
              static_cast<int>(DType::f8_e5m2) == GW_F8_E5M2);

const char* gw_status_name(gw_status status) {
  if (status < 0 || status > GW_E_BUSY) return "UNKNOWN";
  return name(static_cast<Code>(status));
}

const char* gw_dtype_name(gw_dtype dtype) {
  switch (dtype) {
    case GW_I8: return "i8";
    case GW_I16: return "i16";
    case GW_I32: return "i32";
    case GW_I64: return "i64";
    case GW_U8: return "u8";
    case GW_U16: return "u16";
    case GW_U32: return "u32";
    case GW_U64: return "u64";
    case GW_F16: return "f16";
    case GW_F32: return "f32";
    case GW_F64: return "f64";
    case GW_BF16: return "bf16";
    case GW_C64: return "c64";
    case GW_C128: return "c128";
    case GW_BOOL: return "bool";
    case GW_F8_E4M3: return "f8_e4m3";
    case GW_F8_E5M2: return "f8_e5m2";
    default: return "unknown";  // gw_dtype is an open enum
  }
}

size_t gw_dtype_bytes(gw_dtype dtype) {
  const DType t = static_cast<DType>(dtype);
  return dtype > 0 && is_movable(t) ? item_bytes(t) : 0;
}

void gw_version(int32_t* out_major, int32_t* out_minor, int32_t* out_patch) {
  if (out_major != nullptr) *out_major = GANGWAY_VERSION_MAJOR;
  if (out_minor != nullptr) *out_minor = GANGWAY_VERSION_MINOR;
  if (out_patch != nullptr) *out_patch = GANGWAY_VERSION_PATCH;
}

void gw_abi_version(int32_t* out_major, int32_t* out_minor) {
  if (out_major != nullptr) *out_major = kAbiMajor;
  if (out_minor != nullptr) *out_minor = kAbiMinor;
}

void gw_abi_range(int32_t* out_lowest, int32_t* out_highest) {
  if (out_lowest != nullptr) *out_lowest = 0;
  if (out_highest != nullptr) *out_highest = kAbiMinor;
}

gw_status gw_interrupt_set(gw_interrupt_fn check, void* user, gw_free_fn release) {
  CallerObject object(user, release);  // frees the object unless set_interrupt takes it
  return guarded([&] {
    if (check != nullptr) object.dismiss();
    set_interrupt(check, user, check != nullptr ? release : nullptr);
  });
}

gw_status gw_log_read(uint64_t first, char* text, size_t capacity, size_t* out_len, uint64_t* out_next) {
  return guarded([&] {
    static const char* const kLevels[] = {"debug", "info", "warning", "error"};
    std::string all;
    uint64_t next = first;
    for (const LogLine& line : log_lines(first)) {
      all += gangway::text(line.number, " ", kLevels[static_cast<int>(line.level)], " ", line.message, "\n");
      next = line.number + 1;
    }
    if (out_next != nullptr) *out_next = next;
    copy_text(all, text, capacity, out_len);
  });
}

gw_status gw_config_text(char* text, size_t capacity, size_t* out_len) {
  return guarded([&] { copy_text(describe(config()), text, capacity, out_len); });
}

void gw_memory_info_init(gw_memory_info* info, size_t size) { start_struct(info, size); }

gw_status gw_host_memory(gw_memory_info* info) {
  return guarded([&] {
    check_out_struct(info, "info");
    write_struct(info, gw_memory_info{0, nullptr, total_memory(), available_memory(), used_memory()});
  });
}

namespace {

// An allocator of the caller. Its functions may be C++ and throw.
struct CallerAllocator {
  gw_allocator functions;
  CallerObject owned;
};

void* allocate(void* user, size_t bytes, size_t alignment) {
  const gw_allocator& a = static_cast<CallerAllocator*>(user)->functions;
  try {
    return a.allocate(a.user, bytes, alignment);
  } catch (const abi::__forced_unwind&) {
    thread_ends();
    throw;
  } catch (...) {
    callback_threw("allocate", "the caller's allocator");
  }
}

void deallocate(void* user, void* data, size_t bytes) {
  const gw_allocator& a = static_cast<CallerAllocator*>(user)->functions;
  try {
    a.deallocate(a.user, data, bytes);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {  // only logged: the functions that free blocks cannot return an error
    error_thrown_by([&] {
      log(LogLevel::error, text("the caller's deallocate threw; its ", bytes, " bytes may be lost"));
    });
  }
}

}  // namespace

void gw_allocator_init(gw_allocator* allocator, size_t size) { start_struct(allocator, size); }

gw_status gw_allocator_set(const gw_allocator* allocator) {
  CallerObject owned = object_of(allocator);
  return guarded([&] {
    if (allocator == nullptr) return set_host_memory_hooks(nullptr);
    const gw_allocator a = read_struct(allocator, gw_allocator_init, "allocator");
    required(a.allocate, "allocator.allocate");
    required(a.deallocate, "allocator.deallocate");
    auto own = std::make_shared<CallerAllocator>(CallerAllocator{a, std::move(owned)});
    void* const user = own.get();
    set_host_memory_hooks(
        std::make_shared<HostMemoryHooks>(HostMemoryHooks{allocate, deallocate, user, std::move(own)}));
  });
}

const void* gw_bytes_data(const gw_bytes* bytes) { return bytes != nullptr ? bytes->data.data() : nullptr; }
size_t gw_bytes_size(const gw_bytes* bytes) { return bytes != nullptr ? bytes->data.size() : 0; }
gw_bytes* gw_bytes_retain(gw_bytes* bytes) { return retain(bytes); }
void gw_bytes_release(gw_bytes* bytes) { release(bytes); }
