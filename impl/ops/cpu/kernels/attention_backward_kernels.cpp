// The backward recomputes the probabilities from the scores and lse. The scale is applied when q and the keys
// for dQ are packed, so that neither dK nor dQ needs a factor.
#include "ops/cpu/kernels/attention_block.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

template <typename T>
struct BackwardTask {
  using S = Scalar<T>;
  static constexpr int kLanes = Compute<T>::kLanes;

  const AttentionBackward& p;
  int64_t padded;
  S *k_DJ, *v_DJ, *scaled_k_JD, *dk_JD, *dv_JD;  // all keys
  S *q_ID, *do_ID, *dq_ID;                       // the tile
  S *p_IJ, *ds_IJ;                               // the block
  S lse[kTileRows], delta[kTileRows];            // delta: sum over D of dout * out

  BackwardTask(const AttentionBackward& args, ScratchAllocator& allocator)
      : p(args), padded(round_up(args.shape.width, kPad)) {
    const int64_t all = round_up(p.shape.sk, kKeys) * padded;
    for (S** to : {&k_DJ, &v_DJ, &scaled_k_JD, &dk_JD, &dv_JD}) *to = allocator.take<S>(all);
    for (S** to : {&q_ID, &do_ID, &dq_ID}) *to = allocator.take<S>(kTileRows * padded);
    for (S** to : {&p_IJ, &ds_IJ}) *to = allocator.take<S>(kTileRows * kKeys);
  }

  void run(int64_t b, int64_t g) {
    const AttentionShape& a = p.shape;
    pack_keys_as_columns<T>(p.k, b, g, 0, a.sk, a.width, padded, k_DJ);
    pack_keys_as_columns<T>(p.v, b, g, 0, a.sk, a.width, padded, v_DJ);
    pack_keys<T>(p.k, b, g, 0, a.sk, a.width, padded, static_cast<S>(a.scale), scaled_k_JD);
    for (int64_t i = 0; i < round_up(a.sk, kKeys) * padded; ++i) dk_JD[i] = dv_JD[i] = 0;
    const int64_t rows = a.sq * (a.heads / a.groups);
    for (int64_t first = 0; first < rows; first += kTileRows) {
      const Tile tile(a, g, first);
      load_tile(tile, b);
      for (int64_t j0 = 0; j0 < tile.most_seen(); j0 += kKeys)
        block(tile, j0, least(kKeys, tile.most_seen() - j0));
      for (int64_t i = 0; i < tile.rows; ++i)
        put_row<T>(p.dq, b, tile.position[i], tile.head[i], dq_ID + i * padded, a.width, p.accumulate);
    }
    for (int64_t j = 0; j < a.sk; ++j) {
      put_row<T>(p.dk, b, j, g, dk_JD + j * padded, a.width, p.accumulate);
      put_row<T>(p.dv, b, j, g, dv_JD + j * padded, a.width, p.accumulate);
    }
  }

  void load_tile(const Tile& tile, int64_t b) {
    const AttentionShape& a = p.shape;
    tile.pack<T>(p.q, b, a.width, padded, static_cast<S>(a.scale), q_ID);
    tile.pack<T>(p.dout, b, a.width, padded, S(1), do_ID);
    for (int64_t i = 0; i < kTileRows * padded; ++i) dq_ID[i] = 0;
    for (int64_t i = 0; i < tile.rows; ++i) {
      const int64_t at = (b * a.heads + tile.head[i]) * a.sq + tile.position[i];
      lse[i] = static_cast<const S*>(p.lse)[at];
      // A row that sees no key has lse = -infinity. +infinity gives it probabilities of 0, whatever its
      // scores.
      if (lse[i] == -static_cast<S>(__builtin_inf())) lse[i] = -lse[i];
      if (i + kAhead < tile.rows)
        fetch(row_of<const T>(p.out, b, tile.position[i + kAhead], tile.head[i + kAhead]), a.width);
      const T* out = row_of<const T>(p.out, b, tile.position[i], tile.head[i]);
      Vec<T> dot{};
      for_lanes<T>(a.width, [&](int64_t d, auto n) GW_BODY {
        dot = fma(load(do_ID + i * padded + d, n), load(out + d, n), dot);
      });
      delta[i] = sum(dot);
    }
  }

  void block(const Tile& tile, int64_t j0, int64_t count) {
    const int64_t at = j0 * padded, width = p.shape.width, width_vectors = padded / kLanes;
    for (int64_t i = 0; i < tile.rows; i += kRows) {
      const int64_t seen = tile.seen_by_group(i, j0, count);
      if (seen <= 0) continue;
      const int64_t vectors = score_vectors<S>(seen);
      S *p_J = p_IJ + i * kKeys, *ds_J = ds_IJ + i * kKeys;
      product<S>(vectors, width, q_ID + i * padded, padded, 1, k_DJ + at, kKeys, p_J, kKeys, false);
      product<S>(vectors, width, do_ID + i * padded, padded, 1, v_DJ + at, kKeys, ds_J, kKeys, false);
      for (int64_t r = i; r < least(i + kRows, tile.rows); ++r) softmax(r, tile.limit[r] - j0, vectors);
      product<S>(width_vectors, seen, ds_J, kKeys, 1, scaled_k_JD + at, padded, dq_ID + i * padded, padded,
                 true);
    }
    int64_t first = 0;  // the first row that sees one of the kRows keys
    for (int64_t j = 0; j < count; j += kRows) {
      while (tile.limit[first] <= j0 + j) ++first;
      const int64_t rows = tile.rows - first, from = first * kKeys + j, to = at + j * padded;
      product<S>(width_vectors, rows, p_IJ + from, 1, kKeys, do_ID + first * padded, padded, dv_JD + to,
                 padded, true);
      product<S>(width_vectors, rows, ds_IJ + from, 1, kKeys, q_ID + first * padded, padded, dk_JD + to,
                 padded, true);
    }
  }

  // Processes one row, which sees the keys below `limit`: replaces the scores by the probabilities, and the
  // probabilities' gradients by the scores' gradients.
  void softmax(int64_t i, int64_t limit, int64_t vectors) {
    const int64_t end = vectors * kLanes;
    S *p_J = p_IJ + i * kKeys, *ds_J = ds_IJ + i * kKeys;
    const Vec<T> lse_i = set(lse[i]), delta_i = set(delta[i]);
    for (int64_t j = 0; j < end; j += kLanes) {
      const Vec<T> probability = exp_flush(load(p_J + j) - lse_i);
      store(p_J + j, probability);
      store(ds_J + j, probability * (load(ds_J + j) - delta_i));
    }
    for (int64_t j = first_cut<S>(limit); j < end; j += kLanes) {
      const auto seen = lanes_below(limit, j, S());
      store(p_J + j, select(seen, load(p_J + j), Vec<T>{}));
      store(ds_J + j, select(seen, load(ds_J + j), Vec<T>{}));
    }
  }
};

template <typename T>
constexpr auto kScratch = scratch_bytes<BackwardTask, T, AttentionBackward>;
template <typename T>
constexpr auto kRun = run_tasks<BackwardTask, T, AttentionBackward>;

}  // namespace

extern const AttentionBackwardKernels attention_backward_kernels = {
    {kScratch<float>, kScratch<bf16_t>, kScratch<f16_t>, kScratch<double>},
    {kRun<float>, kRun<bf16_t>, kRun<f16_t>, kRun<double>},
};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
