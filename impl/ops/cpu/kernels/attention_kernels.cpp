// The softmax runs over the blocks of keys with a running maximum of the scores (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018).
#include "ops/cpu/kernels/attention_block.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

constexpr size_t kResidentBytes = size_t{1} << 20;  // up to this size, all of k and v is packed once

template <typename T>
struct ForwardTask {
  using S = Scalar<T>;
  static constexpr int kLanes = Compute<T>::kLanes;

  const AttentionForward& p;
  int64_t padded;
  bool resident;
  S *k_DJ, *v_JD;  // all keys, or one block
  S *q_ID, *out_ID, *s_IJ;
  S most[kTileRows];
  Vec<T> total[kTileRows];  // separate for each lane until the end

  ForwardTask(const AttentionForward& args, ScratchAllocator& allocator)
      : p(args), padded(round_up(args.shape.width, kPad)) {
    const int64_t all = round_up(p.shape.sk, kKeys) * padded;
    resident = 2 * static_cast<size_t>(all) * sizeof(S) <= kResidentBytes;
    for (S** to : {&k_DJ, &v_JD}) *to = allocator.take<S>(resident ? all : kKeys * padded);
    for (S** to : {&q_ID, &out_ID}) *to = allocator.take<S>(kTileRows * padded);
    s_IJ = allocator.take<S>(kTileRows * kKeys);
  }

  void run(int64_t b, int64_t g) {
    const AttentionShape& a = p.shape;
    if (resident) pack(b, g, 0, a.sk);
    const int64_t rows = a.sq * (a.heads / a.groups);
    for (int64_t first = 0; first < rows; first += kTileRows) {
      const Tile tile(a, g, first);
      tile.pack<T>(p.q, b, a.width, padded, static_cast<S>(a.scale), q_ID);
      for (int64_t i = 0; i < kTileRows; ++i) {
        most[i] = -static_cast<S>(__builtin_inf());
        total[i] = Vec<T>{};
      }
      for (int64_t i = 0; i < kTileRows * padded; ++i) out_ID[i] = 0;
      for (int64_t j0 = 0; j0 < tile.most_seen(); j0 += kKeys) {
        const int64_t count = least(kKeys, tile.most_seen() - j0);
        if (!resident) pack(b, g, j0, j0 + count);
        const int64_t at = resident ? j0 * padded : 0;
        block(tile, j0, count, k_DJ + at, v_JD + at);
      }
      finish(tile, b);
    }
  }

  void pack(int64_t b, int64_t g, int64_t first, int64_t last) {
    pack_keys_as_columns<T>(p.k, b, g, first, last, p.shape.width, padded, k_DJ);
    pack_keys<T>(p.v, b, g, first, last, p.shape.width, padded, S(1), v_JD);
  }

  void block(const Tile& tile, int64_t j0, int64_t count, const S* k, const S* v) {
    for (int64_t i = 0; i < tile.rows; i += kRows) {
      const int64_t seen = tile.seen_by_group(i, j0, count);
      if (seen <= 0) continue;
      const int64_t vectors = score_vectors<S>(seen);
      S* s = s_IJ + i * kKeys;
      product<S>(vectors, p.shape.width, q_ID + i * padded, padded, 1, k, kKeys, s, kKeys, false);
      for (int64_t r = i; r < least(i + kRows, tile.rows); ++r) softmax(r, tile.limit[r] - j0, vectors);
      product<S>(padded / kLanes, seen, s, kKeys, 1, v, padded, out_ID + i * padded, padded, true);
    }
  }

  // Processes one row, which sees the keys below `limit`: updates the maximum, replaces the scores by
  // exponentials, and rescales the earlier sums to the new maximum.
  void softmax(int64_t i, int64_t limit, int64_t vectors) {
    const int64_t end = vectors * kLanes;
    const S nothing = -static_cast<S>(__builtin_inf());
    S* s_J = s_IJ + i * kKeys;
    for (int64_t j = first_cut<S>(limit); j < end; j += kLanes)
      store(s_J + j, select(lanes_below(limit, j, S()), load(s_J + j), set(nothing)));
    Vec<T> lane_most = load(s_J);
    for (int64_t j = kLanes; j < end; j += kLanes) lane_most = max(lane_most, load(s_J + j));
    const S before = most[i], here = max_lane(lane_most), now = here > before ? here : before;
    // A row that has seen no key yet subtracts 0: its scores stay -infinity, and their exponentials are 0.
    const Vec<T> origin = set(now > nothing ? now : S(0));
    Vec<T> sums = total[i];
    if (now > before) {
      const Vec<T> shrink = exp_flush(set(before) - origin);
      sums = sums * shrink;
      S* out_D = out_ID + i * padded;
      for (int64_t d = 0; d < padded; d += kLanes) store(out_D + d, load(out_D + d) * shrink);
      most[i] = now;
    }
    for (int64_t j = 0; j < end; j += kLanes) {
      const Vec<T> e = exp_flush(load(s_J + j) - origin);
      sums = sums + e;
      store(s_J + j, e);
    }
    total[i] = sums;
  }

  void finish(const Tile& tile, int64_t b) {
    for (int64_t i = 0; i < tile.rows; ++i) {
      const S all = sum(total[i]);
      const Vec<T> inverse = set(all > 0 || all != all ? 1 / all : S(0));
      S* out_D = out_ID + i * padded;
      for (int64_t d = 0; d < padded; d += kLanes) store(out_D + d, load(out_D + d) * inverse);
      put_row<T>(p.out, b, tile.position[i], tile.head[i], out_D, p.shape.width, false);
      if (p.lse == nullptr) continue;
      const int64_t at = (b * p.shape.heads + tile.head[i]) * p.shape.sq + tile.position[i];
      static_cast<S*>(p.lse)[at] = most[i] + log(all);
    }
  }
};

template <typename T>
constexpr auto kScratch = scratch_bytes<ForwardTask, T, AttentionForward>;
template <typename T>
constexpr auto kRun = run_tasks<ForwardTask, T, AttentionForward>;

}  // namespace

extern const AttentionKernels attention_kernels = {
    {kScratch<float>, kScratch<bf16_t>, kScratch<f16_t>, kScratch<double>},
    {kRun<float>, kRun<bf16_t>, kRun<f16_t>, kRun<double>},
};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
