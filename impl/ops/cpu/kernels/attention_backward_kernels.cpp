// The backward recomputes the probabilities from the scores and lse. The scale is applied when q and the keys
// for dQ are packed, so that neither dK nor dQ needs a factor.
#include "ops/cpu/kernels/attention_block.h"
#include "ops/cpu/kernels/tanh.h"

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
  bool begun[kTileRows / kRows];                 // dq_ID has sums for this group of rows
  int64_t packed = 0, written = 0;  // keys: those before `written` have no row left that sees them

  BackwardTask(const AttentionBackward& args, ScratchAllocator& allocator)
      : p(args), padded(round_up(args.shape.width, kPad)) {
    const int64_t all = round_up(p.shape.sk, kKeys) * padded;
    for (S** to : {&k_DJ, &v_DJ, &scaled_k_JD, &dk_JD, &dv_JD}) *to = allocator.take<S>(all);
    for (S** to : {&q_ID, &do_ID, &dq_ID}) *to = allocator.take<S>(kTileRows * padded);
    for (S** to : {&p_IJ, &ds_IJ}) *to = allocator.take<S>(kTileRows * kKeys);
  }

  void run(int64_t b, int64_t g) {
    const AttentionShape& a = p.shape;
    packed = written = 0;
    const int64_t rows = a.sq * (a.heads / a.groups);
    for (int64_t first = 0; first < rows; first += kTileRows) {
      const Tile tile(a, b, g, first);
      write_keys(b, g, tile.first_block() / kKeys * kKeys);
      pack_keys_until(b, g, tile.most_seen());
      load_tile(tile, b);
      for (int64_t j0 = tile.first_block(); j0 < tile.most_seen(); j0 += kKeys)
        block(tile, j0, least(kKeys, tile.most_seen() - j0));
      write_queries(tile, b);
    }
    write_keys(b, g, a.sk);
  }

  void write_queries(const Tile& tile, int64_t b) {
    for (int64_t i = 0; i < tile.rows; ++i) {
      S* dq_D = dq_ID + i * padded;
      for (int64_t d = 0; !begun[i / kRows] && d < padded; ++d) dq_D[d] = 0;
      put_row<T>(p.dq, b, tile.position[i], tile.head[i], dq_D, p.shape.width, p.accumulate);
    }
  }

  // Packs whole blocks of keys as the tiles reach them, so that they are still in the cache.
  void pack_keys_until(int64_t b, int64_t g, int64_t end) {
    const AttentionShape& a = p.shape;
    for (; packed < end; packed += kKeys) {
      const int64_t last = least(packed + kKeys, a.sk), at = packed * padded;
      pack_keys_as_columns<T>(p.k, b, g, packed, last, a.width, padded, k_DJ + at);
      pack_keys_as_columns<T>(p.v, b, g, packed, last, a.width, padded, v_DJ + at);
      pack_keys<T>(p.k, b, g, packed, last, a.width, padded, static_cast<S>(a.scale), scaled_k_JD + at);
      for (int64_t i = at; i < at + kKeys * padded; ++i) dk_JD[i] = dv_JD[i] = 0;
    }
  }

  // Writes the gradients of the keys before `end`.
  void write_keys(int64_t b, int64_t g, int64_t end) {
    pack_keys_until(b, g, end);
    for (; written < end; ++written) {
      put_row<T>(p.dk, b, written, g, dk_JD + written * padded, p.shape.width, p.accumulate);
      put_row<T>(p.dv, b, written, g, dv_JD + written * padded, p.shape.width, p.accumulate);
    }
  }

  void load_tile(const Tile& tile, int64_t b) {
    const AttentionShape& a = p.shape;
    tile.pack<T>(p.q, b, a.width, padded, static_cast<S>(a.scale), q_ID);
    tile.pack<T>(p.dout, b, a.width, padded, S(1), do_ID);
    for (bool& group : begun) group = false;
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
      if (p.dsinks != nullptr) add_dsink(b, tile.head[i], lse[i], delta[i]);
    }
  }

  // A sink's score has the value zero, so the gradient of its probability is 0.
  void add_dsink(int64_t b, int64_t h, S lse_i, S delta_i) {
    const double sink = static_cast<double>(to_scalar(static_cast<const T*>(p.sinks)[h]));
    p.dsinks[b * p.shape.heads + h] -=
        __builtin_exp(sink - static_cast<double>(lse_i)) * static_cast<double>(delta_i);
  }

  void block(const Tile& tile, int64_t j0, int64_t count) {
    const int64_t at = j0 * padded, width = p.shape.width, width_vectors = padded / kLanes;
    for (int64_t i = 0; i < tile.rows; i += kRows) {
      const Keys seen = tile.seen_by_group(i, j0, count), scored = whole_vectors<S>(seen);
      // Rows without keys can lie between rows that see the block. The products for dK and dV read them too,
      // so that `scored`, not `seen`, decides.
      if (scored.first >= scored.end) continue;
      const int64_t vectors = (scored.end - scored.first) / kLanes, first = scored.first;
      S *p_J = p_IJ + i * kKeys, *ds_J = ds_IJ + i * kKeys;
      product<S>(vectors, width, q_ID + i * padded, padded, 1, k_DJ + at + first, kKeys, p_J + first, kKeys,
                 false);
      product<S>(vectors, width, do_ID + i * padded, padded, 1, v_DJ + at + first, kKeys, ds_J + first, kKeys,
                 false);
      for (int64_t r = i; r < least(i + kRows, tile.rows); ++r) {
        const Keys row{tile.start[r] - j0, tile.limit[r] - j0};
        if (p.shape.cap > 0) {
          softmax<true>(r, scored, row);
        } else {
          softmax<false>(r, scored, row);
        }
      }
      product<S>(width_vectors, seen.end - seen.first, ds_J + seen.first, kKeys, 1,
                 scaled_k_JD + at + seen.first * padded, padded, dq_ID + i * padded, padded,
                 begun[i / kRows]);
      begun[i / kRows] = true;
    }
    int64_t first = 0, last = 0;  // rows [first, last) see one of the kRows keys
    for (int64_t j = 0; j < count; j += kRows) {
      while (tile.limit[first] <= j0 + j) ++first;
      while (last < tile.rows && tile.start[last] < j0 + j + kRows) ++last;
      if (first >= last) continue;
      const int64_t rows = last - first, from = first * kKeys + j, to = at + j * padded;
      product<S>(width_vectors, rows, p_IJ + from, 1, kKeys, do_ID + first * padded, padded, dv_JD + to,
                 padded, true);
      product<S>(width_vectors, rows, ds_IJ + from, 1, kKeys, q_ID + first * padded, padded, dk_JD + to,
                 padded, true);
    }
  }

  // Processes one row, which sees the keys `row` of those that are scored: replaces the scores by the
  // probabilities, and the probabilities' gradients by the scores' gradients.
  template <bool kCapped>
  void softmax(int64_t i, Keys scored, Keys row) {
    S *p_J = p_IJ + i * kKeys, *ds_J = ds_IJ + i * kKeys;
    const Vec<T> lse_i = set(lse[i]), delta_i = set(delta[i]);
    const Vec<T> cap = set(static_cast<S>(p.shape.cap)), inverse = set(static_cast<S>(1 / p.shape.cap));
    for (int64_t j = scored.first; j < scored.end; j += kLanes) {
      Vec<T> score = load(p_J + j), slope = set(S(1));
      if constexpr (kCapped) {
        const Vec<T> t = tanh(score * inverse);
        score = cap * t;
        slope = slope - t * t;
      }
      const Vec<T> probability = exp_flush(score - lse_i);
      store(p_J + j, probability);
      Vec<T> d = probability * (load(ds_J + j) - delta_i);
      if constexpr (kCapped) d = d * slope;
      store(ds_J + j, d);
    }
    hide(p_J, scored, row, S(0));
    hide(ds_J, scored, row, S(0));
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
