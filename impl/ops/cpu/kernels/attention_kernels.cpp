// The softmax runs over the blocks of keys with a running maximum of the scores (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018).
#include "ops/cpu/kernels/attention_block.h"
#include "ops/cpu/kernels/tanh.h"

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
  int64_t packed = -1;  // without `resident`: the start of the block that is packed
  S *k_DJ, *v_JD;       // all keys, or one block
  S *q_ID, *out_ID, *s_IJ;
  S top[kTileRows];               // the largest score
  Vec<T> total[kTileRows];        // separate for each lane until the end
  bool begun[kTileRows / kRows];  // out_ID has sums for this group of rows

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
    packed = -1;
    const int64_t rows = a.sq * (a.heads / a.groups);
    for (int64_t first = 0; first < rows; first += kTileRows) {
      const Tile tile(a, b, g, first);
      tile.pack<T>(p.q, b, a.width, padded, static_cast<S>(a.scale), q_ID);
      clear(tile);
      for (int64_t j0 = tile.first_block(); j0 < tile.most_seen(); j0 += kKeys) {
        if (!resident && packed != j0) {
          pack(b, g, j0, least(j0 + kKeys, a.sk));
          packed = j0;
        }
        const int64_t at = resident ? j0 * padded : 0;
        block(tile, j0, least(kKeys, tile.most_seen() - j0), k_DJ + at, v_JD + at);
      }
      finish(tile, b);
    }
  }

  // Every row begins with its sink as the only score, whose value is zero, or with no score. The first
  // product of a group of rows writes out_ID.
  void clear(const Tile& tile) {
    for (int64_t i = 0; i < kTileRows; ++i) {
      top[i] = -static_cast<S>(__builtin_inf());
      total[i] = Vec<T>{};
    }
    if (p.sinks != nullptr) {
      for (int64_t i = 0; i < tile.rows; ++i) {
        top[i] = to_scalar(static_cast<const T*>(p.sinks)[tile.head[i]]);
        total[i][0] = 1;
      }
    }
    for (bool& group : begun) group = false;
  }

  void pack(int64_t b, int64_t g, int64_t first, int64_t last) {
    pack_keys_as_columns<T>(p.k, b, g, first, last, p.shape.width, padded, k_DJ);
    pack_keys<T>(p.v, b, g, first, last, p.shape.width, padded, S(1), v_JD);
  }

  void block(const Tile& tile, int64_t j0, int64_t count, const S* k, const S* v) {
    for (int64_t i = 0; i < tile.rows; i += kRows) {
      const Keys seen = tile.seen_by_group(i, j0, count);
      if (seen.first >= seen.end) continue;
      const Keys scored = whole_vectors<S>(seen);
      S* s = s_IJ + i * kKeys;
      product<S>((scored.end - scored.first) / kLanes, p.shape.width, q_ID + i * padded, padded, 1,
                 k + scored.first, kKeys, s + scored.first, kKeys, false);
      for (int64_t r = i; r < least(i + kRows, tile.rows); ++r)
        softmax(r, scored, {tile.start[r] - j0, tile.limit[r] - j0});
      product<S>(padded / kLanes, seen.end - seen.first, s + seen.first, kKeys, 1, v + seen.first * padded,
                 padded, out_ID + i * padded, padded, begun[i / kRows]);
      begun[i / kRows] = true;
    }
  }

  // Processes one row, which sees the keys `row` of those that are scored: updates the maximum, replaces the
  // scores by exponentials, and rescales the earlier sums to the new maximum.
  void softmax(int64_t i, Keys scored, Keys row) {
    const S nothing = -static_cast<S>(__builtin_inf());
    S* s_J = s_IJ + i * kKeys;
    if (p.shape.cap > 0) cap_scores(s_J, scored);
    hide(s_J, scored, row, nothing);
    Vec<T> lane_most = load(s_J + scored.first);
    for (int64_t j = scored.first + kLanes; j < scored.end; j += kLanes)
      lane_most = max(lane_most, load(s_J + j));
    const S before = top[i], here = max_lane(lane_most), now = here > before ? here : before;
    // A row that has seen no key yet subtracts 0: its scores stay -infinity, and their exponentials are 0.
    const Vec<T> origin = set(now > nothing ? now : S(0));
    Vec<T> sums = total[i];
    if (now > before) {
      if (begun[i / kRows] || p.sinks != nullptr) {
        const Vec<T> shrink = exp_flush(set(before) - origin);
        sums = sums * shrink;
        S* out_D = out_ID + i * padded;
        for (int64_t d = 0; d < (begun[i / kRows] ? padded : 0); d += kLanes)
          store(out_D + d, load(out_D + d) * shrink);
      }
      top[i] = now;
    }
    for (int64_t j = scored.first; j < scored.end; j += kLanes) {
      const Vec<T> e = exp_flush(load(s_J + j) - origin);
      sums = sums + e;
      store(s_J + j, e);
    }
    total[i] = sums;
  }

  void cap_scores(S* s_J, Keys scored) {
    const Vec<T> cap = set(static_cast<S>(p.shape.cap)), inverse = set(static_cast<S>(1 / p.shape.cap));
    for (int64_t j = scored.first; j < scored.end; j += kLanes)
      store(s_J + j, cap * tanh(load(s_J + j) * inverse));
  }

  void finish(const Tile& tile, int64_t b) {
    for (int64_t i = 0; i < tile.rows; ++i) {
      const S all = sum(total[i]);
      const Vec<T> inverse = set(all > 0 || all != all ? 1 / all : S(0));
      const bool seen = begun[i / kRows];
      const S* out_D = out_ID + i * padded;
      T* to = row_of<T>(p.out, b, tile.position[i], tile.head[i]);
      for_lanes<T>(p.shape.width, [&](int64_t d, auto n) GW_BODY {
        store(to + d, seen ? load(out_D + d, n) * inverse : Vec<T>{}, n);
      });
      if (p.lse == nullptr) continue;
      const int64_t at = (b * p.shape.heads + tile.head[i]) * p.shape.sq + tile.position[i];
      static_cast<S*>(p.lse)[at] = top[i] + log(all);
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
