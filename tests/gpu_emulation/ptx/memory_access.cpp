// Loads, stores and asynchronous copies. Every address is checked for its alignment, and those of shared
// memory and of a thread's own for their bounds. Protected pages show accesses outside of a device's memory.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "gpu_emulation/kernel.h"
#include "gpu_emulation/ptx/site.h"
#include "gpu_emulation/ptx/types.h"

namespace gpu_emulation::ptx {
namespace {

enum class Space { generic, global, shared, own };

// Returns the place behind an address, after all checks.
template <Space space>
char* place(const Instruction& i, const State& s, uint32_t slot, int64_t offset, size_t bytes) {
  uint64_t address = space == Space::shared ? s.get<uint32_t>(slot) : s.slots[slot];
  address += static_cast<uint64_t>(offset);
  if constexpr (space == Space::shared) {
    address &= 0xffffffffu;
    if (address > s.shared_bytes || bytes > s.shared_bytes - address)
      stop_kernel("reaches beyond the shared memory of its block", site(i, s, "an access"));
    address += reinterpret_cast<uint64_t>(s.shared);
  }
  if constexpr (space == Space::own) {
    const auto first = reinterpret_cast<uint64_t>(s.frame);
    if (address < first || address + bytes > first + s.program->frame_bytes)
      stop_kernel("reaches beyond its parameters and local memory", site(i, s, "an access"));
  }
  require_aligned(reinterpret_cast<const void*>(address), bytes, site(i, s, "an access"));
  return reinterpret_cast<char*>(address);
}

// Tells of an access, for the search for races.
template <Space space>
void note(const Instruction& i, const void* at, size_t bytes, AccessKind kind) {
  if constexpr (space != Space::own) note_access(at, bytes, kind, &i);
}

template <Space space, typename T>
void load(const Instruction& i, State& s) {
  const size_t n = i.vector;
  const char* const from = place<space>(i, s, i.at[n], i.offset[0], n * sizeof(T));
  note<space>(i, from, n * sizeof(T), AccessKind::read);
  for (size_t k = 0; k < n; ++k) {
    T value;
    std::memcpy(&value, from + k * sizeof(T), sizeof(T));
    if constexpr (std::is_signed_v<T> && std::is_integral_v<T>)
      s.put<int64_t>(i.at[k], value);  // the register may be wider
    else
      s.put<T>(i.at[k], value);
  }
}
template <Space space, typename T>
void store(const Instruction& i, State& s) {
  const size_t n = i.vector;
  char* const to = place<space>(i, s, i.at[0], i.offset[0], n * sizeof(T));
  note<space>(i, to, n * sizeof(T), AccessKind::write);
  for (size_t k = 0; k < n; ++k) {
    const T value = s.get<T>(i.at[k + 1]);
    std::memcpy(to + k * sizeof(T), &value, sizeof(T));
  }
}

// The target is NaN until the wait, as in ops/cuda/ptx.h of the software GPU.
template <int bytes>
void copy(const Instruction& i, State& s) {
  char* const to = place<Space::shared>(i, s, i.at[0], i.offset[0], bytes);
  const char* const from = place<Space::global>(i, s, i.at[1], i.offset[1], bytes);
  const uint32_t read = s.get<uint32_t>(i.at[3]);
  if (read != 0 && read != bytes) stop_kernel("copies a part only", site(i, s, "cp.async"));
  note_access(to, bytes, AccessKind::write, &i);
  std::memset(to, 0xff, bytes);
  copies().push_back({to, read != 0 ? from : nullptr, bytes});
}
void wait_for_copies(const Instruction& i, State&) {
  for (const Copy& one : copies()) {
    const auto bytes = static_cast<size_t>(one.bytes);
    note_access(one.to, bytes, AccessKind::write, &i);
    if (one.from == nullptr) {
      std::memset(one.to, 0, bytes);
      continue;
    }
    note_access(one.from, bytes, AccessKind::read, &i);
    std::memcpy(one.to, one.from, bytes);
  }
  copies().clear();
}

// Adds to memory, and gives the old value if `old`.
template <Space space, typename T, bool old>
void add(const Instruction& i, State& s) {
  T* const to = reinterpret_cast<T*>(place<space>(i, s, i.at[old ? 1 : 0], i.offset[0], sizeof(T)));
  note<space>(i, to, sizeof(T), AccessKind::atomic);
  const T before = __atomic_fetch_add(to, s.get<T>(i.at[old ? 2 : 1]), __ATOMIC_RELAXED);
  if (old) s.put<T>(i.at[0], before);
}

template <Space space>
Handler in_space(const Form& form) {
  const auto pick = [&](auto t) -> Handler {
    return form.root() == "ld" ? load<space, decltype(t)> : store<space, decltype(t)>;
  };
  const std::string& type = form.type();
  if (form.root() == "atom" || form.root() == "red") {
    if (!form.has("add") || type[0] == 'f') return nullptr;
    return with_integer(type, [&](auto t) -> Handler {
      return form.root() == "atom" ? add<space, decltype(t), true> : add<space, decltype(t), false>;
    });
  }
  if (type == "u8" || type == "b8") return pick(uint8_t{});
  if (type == "s8") return pick(int8_t{});
  return with_number(type, pick);
}

}  // namespace

Handler memory_access(const Form& form) {
  const std::string& root = form.root();
  if (root == "cp" && form.has("async")) {
    if (form.has("wait_all")) return wait_for_copies;
    if (form.has("cg")) return copy<16>;
    if (form.has("ca")) return copy<4>;
    return nullptr;
  }
  if (root != "ld" && root != "st" && root != "atom" && root != "red") return nullptr;
  if (form.has("global")) return in_space<Space::global>(form);
  if (form.has("shared")) return in_space<Space::shared>(form);
  if (form.has("local") || form.has("param")) return in_space<Space::own>(form);
  return in_space<Space::generic>(form);
}

}  // namespace gpu_emulation::ptx
