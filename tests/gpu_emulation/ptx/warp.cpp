// Barriers, exchanges within a warp, and matrices.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "gpu_emulation/kernel.h"
#include "gpu_emulation/ptx/site.h"

namespace gpu_emulation::ptx {
namespace {

constexpr unsigned kWholeWarp = 0xffffffffu;

void barrier(const Instruction& i, State& s) { block_barrier(site(i, s, "bar.sync")); }
void warp_barrier(const Instruction& i, State& s) {
  warp_exchange(s.get<uint32_t>(i.at[0]), 0, site(i, s, "bar.warp.sync", true));
}

enum class Shuffle { xor_, index, up, down };
template <Shuffle shuffle>
void exchange(const Instruction& i, State& s) {
  const unsigned lane = s.in_warp;
  const Site here = site(i, s, "shfl");
  const uint64_t* const all = warp_exchange(s.get<uint32_t>(i.at[5]), s.get<uint32_t>(i.at[2]), here);
  const uint32_t by = s.get<uint32_t>(i.at[3]) & 31u, bounds = s.get<uint32_t>(i.at[4]),
                 segment = bounds >> 8 & 31u;
  const uint32_t most = (lane & segment) | (bounds & 31u & ~segment), least = lane & segment;
  uint32_t from = 0;
  bool inside = false;
  switch (shuffle) {
    case Shuffle::xor_: from = lane ^ by, inside = from <= most; break;
    case Shuffle::index: from = least | (by & ~segment), inside = from <= most; break;
    case Shuffle::up: from = lane - by, inside = static_cast<int>(from) >= static_cast<int>(most); break;
    case Shuffle::down: from = lane + by, inside = from <= most; break;
  }
  s.put<uint32_t>(i.at[0], static_cast<uint32_t>(word_of(all, inside ? from : lane, here)));
  s.put<bool>(i.at[1], inside);
}

void ballot(const Instruction& i, State& s) {
  const uint32_t mask = s.get<uint32_t>(i.at[2]);
  const uint64_t* const all = warp_exchange(mask, s.is_true(i.at[1]), site(i, s, "vote.ballot"));
  uint32_t votes = 0;
  for (unsigned k = 0; k < 32; ++k)
    if ((mask >> k & 1u) != 0 && all[k] != 0) votes |= 1u << k;
  s.put<uint32_t>(i.at[0], votes);
}

struct OfBf16 {
  static float widen(uint32_t bits) { return __bfloat162float({static_cast<uint16_t>(bits)}); }
};
struct OfHalf {
  static float widen(uint32_t bits) { return __half2float({static_cast<uint16_t>(bits)}); }
};

// m16n8k16: operands are 4 sums, 4 pairs of a, 2 pairs of b, 4 addends. Products and sums are f32.
template <typename Type>
void multiply(const Instruction& i, State& s) {
  struct Registers {
    float a[4][2], b[2][2];
  } mine;
  for (unsigned half = 0; half < 2; ++half) {
    for (unsigned k = 0; k < 4; ++k) mine.a[k][half] = Type::widen(s.get<uint32_t>(i.at[4 + k]) >> 16 * half);
    for (unsigned k = 0; k < 2; ++k) mine.b[k][half] = Type::widen(s.get<uint32_t>(i.at[8 + k]) >> 16 * half);
  }
  // Lanes may read each other's registers between the two exchanges.
  const uint64_t* const all =
      warp_exchange(kWholeWarp, reinterpret_cast<uint64_t>(&mine), site(i, s, "mma", false, true));
  const auto of = [&](unsigned lane) -> const Registers& {
    return *reinterpret_cast<const Registers*>(all[lane]);
  };
  const unsigned row = s.in_warp / 4, column = s.in_warp % 4 * 2;
  float sum[4];
  for (unsigned k = 0; k < 4; ++k) sum[k] = s.get<float>(i.at[10 + k]);
  for (unsigned k = 0; k < 16; ++k) {
    const unsigned pair = k % 8 / 2, half = k % 2, upper = k / 8;
    const Registers& a_lane = of(row * 4 + pair);
    for (unsigned n = 0; n < 4; ++n)
      sum[n] += a_lane.a[n / 2 + 2 * upper][half] * of((column + n % 2) * 4 + pair).b[upper][half];
  }
  for (unsigned k = 0; k < 4; ++k) s.put<float>(i.at[k], sum[k]);
  warp_exchange(kWholeWarp, 0, site(i, s, "the end of mma"));
}

template <bool transposed>
void load_matrices(const Instruction& i, State& s) {
  const uint64_t offset = (s.get<uint32_t>(i.at[4]) + static_cast<uint64_t>(i.offset[0])) & 0xffffffffu;
  const Site here = site(i, s, "ldmatrix", false, true);
  if (offset > s.shared_bytes || 16 > s.shared_bytes - offset)
    stop_kernel("reaches beyond the shared memory of its block", here);
  require_aligned(s.shared + offset, 16, here);
  note_access(s.shared + offset, 16, AccessKind::read, &i);
  const uint64_t* const rows = warp_exchange(kWholeWarp, offset, here);
  const unsigned first = s.in_warp / 4, second = s.in_warp % 4 * 2;
  uint32_t got[4];
  for (unsigned m = 0; m < 4; ++m) {
    const auto at = [&](unsigned row, unsigned column) -> uint32_t {
      uint16_t value = 0;
      std::memcpy(&value, s.shared + rows[8 * m + row] + 2 * column, 2);
      return value;
    };
    got[m] = transposed ? at(second, first) | at(second + 1, first) << 16
                        : at(first, second) | at(first, second + 1) << 16;
  }
  for (unsigned m = 0; m < 4; ++m) s.put<uint32_t>(i.at[m], got[m]);
}

Handler shuffles(const Form& form) {
  if (form.groups.empty() || form.groups[0] != 2 || form.type() != "b32") return nullptr;
  if (form.has("bfly")) return exchange<Shuffle::xor_>;
  if (form.has("idx")) return exchange<Shuffle::index>;
  if (form.has("up")) return exchange<Shuffle::up>;
  if (form.has("down")) return exchange<Shuffle::down>;
  return nullptr;
}

}  // namespace

Handler of_warp(const Form& form) {
  const std::string& root = form.root();
  // A barrier of the whole block has one operand; its number is 0 everywhere.
  if (root == "bar" && form.has("warp")) return warp_barrier;
  if (root == "bar" && form.has("sync") && form.groups.size() == 1) return barrier;
  if (root == "shfl") return shuffles(form);
  if (root == "vote" && form.has("ballot")) return ballot;
  if (root == "mma" && form.has("m16n8k16") && form.has("row") && form.has("col") && form.type() == "f32") {
    if (form.has("bf16")) return multiply<OfBf16>;
    return form.has("f16") ? multiply<OfHalf> : nullptr;
  }
  if (root == "ldmatrix" && form.has("x4") && form.has("m8n8"))
    return form.has("trans") ? load_matrices<true> : load_matrices<false>;
  return nullptr;
}

}  // namespace gpu_emulation::ptx
