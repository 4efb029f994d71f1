// Blocked attention with everything transposed: vectors run along queries.
//
// The query rows of a group (all its heads; position running slowest) are taken in tiles of W = 3 vectors, a
// lane per row. A tile's scores against a block of keys are S^T [keys, W], so that maximum, exponential and
// sum of the softmax are lane by lane, the causal limit is one comparison with the lane's own limit, and rows
// of different heads share a tile. All products are one micro-kernel, product(): broadcasts from one operand,
// vectors of the other.
//
// Legend: J keys of the block, I lanes of the tile, D head width. In scratch, rows of D are padded to kPad
// elements with zeros. q is scaled when it is packed, so dK needs no factor and dQ one at its end.
#include "ops/cpu/kernels/attention_kernels.h"

#include "ops/cpu/simd.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

constexpr int64_t kPad = 16;
constexpr int64_t kBlock = 64;  // keys of a block
constexpr int kColumns = 3;     // vectors of a tile
constexpr int kRows =
    kBytes == 64 ? 8 : 4;  // rows of the micro-kernel: kRows * 3 accumulators fit the registers
constexpr size_t kResidentBytes = size_t{1} << 20;  // forward: k and v are packed whole up to this size

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

template <typename S>
constexpr int kLanesOf = Compute<S>::kLanes;
template <typename S>
constexpr int kTile = kColumns* kLanesOf<S>;

// c[r][column] (+)= sum over n of a[r * a_row + n * a_step] * b[n * b_row + column], kRows by C vectors.
template <typename S, int C>
GW_SIMD void micro(int64_t n, const S* a, int64_t a_row, int64_t a_step, const S* b, int64_t b_row, S* c,
                   int64_t c_row, bool add) {
  constexpr int lanes = kLanesOf<S>;
  Vec<S> sums[kRows][C];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < C; ++v) sums[r][v] = add ? load(c + r * c_row + v * lanes) : Vec<S>{};
  for (int64_t i = 0; i < n; ++i) {
    Vec<S> columns[C];
    for (int v = 0; v < C; ++v) columns[v] = load(b + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const Vec<S> factor = set(a[r * a_row]);
      for (int v = 0; v < C; ++v) sums[r][v] = fma(factor, columns[v], sums[r][v]);
    }
    a += a_step;
    b += b_row;
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < C; ++v) store(c + r * c_row + v * lanes, sums[r][v]);
}

template <typename S, int C>
[[gnu::noinline]] void product_columns(int64_t rows, int64_t n, const S* a, int64_t a_row, int64_t a_step,
                                       const S* b, int64_t b_row, S* c, int64_t c_row, bool add) {
  for (int64_t r = 0; r < rows; r += kRows)
    micro<S, C>(n, a + r * a_row, a_row, a_step, b, b_row, c + r * c_row, c_row, add);
}

// c [rows, vectors * lanes] (+)= a b, with a [rows, n] at strides (a_row, a_step) and b [n, ...] at stride
// b_row. Rows are rounded up to kRows: the operands must have them.
template <typename S>
void product(int64_t rows, int64_t vectors, int64_t n, const S* a, int64_t a_row, int64_t a_step, const S* b,
             int64_t b_row, S* c, int64_t c_row, bool add) {
  while (vectors > 0) {
    // 4 vectors are 2 + 2: a single one would wait for its own sums.
    const int64_t now = vectors == 4 ? 2 : least(vectors, 3);
    if (now == 3) {
      product_columns<S, 3>(rows, n, a, a_row, a_step, b, b_row, c, c_row, add);
    } else if (now == 2) {
      product_columns<S, 2>(rows, n, a, a_row, a_step, b, b_row, c, c_row, add);
    } else {
      product_columns<S, 1>(rows, n, a, a_row, a_step, b, b_row, c, c_row, add);
    }
    b += now * kLanesOf<S>;
    c += now * kLanesOf<S>;
    vectors -= now;
  }
}

// Hands out scratch; with a null base it only counts.
struct Carver {
  char* base;
  size_t used = 0;

  template <typename S>
  S* take(int64_t count) {
    S* p = base == nullptr ? nullptr : reinterpret_cast<S*>(base + used);
    used += (static_cast<size_t>(count) * sizeof(S) + 63) / 64 * 64;
    return p;
  }
};

template <typename T>
const T* row_of(const HeadsView& view, int64_t b, int64_t s, int64_t h) {
  return static_cast<const T*>(view.data) + b * view.batch_stride + s * view.row_stride +
         h * view.head_stride;
}
template <typename T>
T* mutable_row_of(const HeadsView& view, int64_t b, int64_t s, int64_t h) {
  return static_cast<T*>(view.data) + b * view.batch_stride + s * view.row_stride + h * view.head_stride;
}

// Rows [first, last) of one head into to_JD, with zeros up to the padded width and to a multiple of kRows
// rows.
template <typename T>
void pack_rows(const HeadsView& view, int64_t b, int64_t h, int64_t first, int64_t last, int64_t width,
               int64_t padded, Scalar<T>* to_JD) {
  for (int64_t j = first; j < last; ++j, to_JD += padded) {
    const T* from = row_of<T>(view, b, j, h);
    for_lanes<T>(width, [&](int64_t d, auto n) GW_BODY { store(to_JD + d, load(from + d, n), n); });
    for (int64_t d = width; d < padded; ++d) to_JD[d] = 0;
  }
  const int64_t rest = (round_up(last - first, kRows) - (last - first)) * padded;
  for (int64_t i = 0; i < rest; ++i) to_JD[i] = 0;
}

// The tile: which rows its lanes are, and how many keys each sees.
template <typename S>
struct Tile {
  int64_t rows = 0;     // lanes in use
  int64_t vectors = 0;  // that hold them
  int64_t position[kTile<S>], head[kTile<S>];
  S limit[kTile<S>];  // lane sees keys [0, limit); an integer, 0 for a lane not in use
  int64_t least_seen = 0, most_seen = 0;

  // Rows [first, ...) of the group's sq * (heads / groups), position slowest.
  Tile(const AttentionShape& p, int64_t g, int64_t first) {
    const int64_t per_group = p.heads / p.groups;
    rows = least(kTile<S>, p.sq * per_group - first);
    vectors = (rows + kLanesOf<S> - 1) / kLanesOf<S>;
    least_seen = p.sk;
    for (int64_t i = 0; i < kTile<S>; ++i) {
      limit[i] = 0;
      if (i >= rows) continue;
      position[i] = (first + i) / per_group;
      head[i] = g * per_group + (first + i) % per_group;
      int64_t seen = p.sk;
      if (p.causal) seen = position[i] + p.shift + 1 < 0 ? 0 : least(p.sk, position[i] + p.shift + 1);
      limit[i] = static_cast<S>(seen);
      least_seen = least(least_seen, seen);
      if (seen > most_seen) most_seen = seen;
    }
  }
};

// The tile's rows of one tensor as columns: to_DI[d][lane] = factor * row[d]; rows D up to the padded width
// are zero.
template <typename T>
void pack_tile(const Tile<Scalar<T>>& tile, const HeadsView& view, int64_t b, int64_t width, int64_t padded,
               Scalar<T> factor, Scalar<T>* to_DI) {
  constexpr int lanes = Compute<T>::kLanes;
  for (int64_t c = 0; c < tile.vectors; ++c) {
    const T* rows[lanes];
    for (int64_t r = 0; r < lanes; ++r) {
      const int64_t i = c * lanes + r;
      rows[r] = i < tile.rows ? row_of<T>(view, b, tile.position[i], tile.head[i]) : nullptr;
    }
    for (int64_t d = 0; d < padded; d += lanes) {
      Vec<T> square[lanes];
      const int64_t rest = width - d;
      for (int r = 0; r < lanes; ++r) {
        square[r] = Vec<T>{};
        if (rows[r] == nullptr || rest <= 0) continue;
        square[r] = rest >= lanes ? load(rows[r] + d) : load(rows[r] + d, Part{static_cast<int>(rest)});
      }
      transpose(square);
      for (int r = 0; r < lanes; ++r)
        store(to_DI + (d + r) * kTile<Scalar<T>> + c * lanes, square[r] * set(factor));
    }
  }
}

// And as rows: to_ID[lane][d], zero in lanes not in use and in the padding.
template <typename T>
void pack_tile_rows(const Tile<Scalar<T>>& tile, const HeadsView& view, int64_t b, int64_t width,
                    int64_t padded, Scalar<T> factor, Scalar<T>* to_ID) {
  for (int64_t i = 0; i < tile.vectors * Compute<T>::kLanes; ++i, to_ID += padded) {
    int64_t d0 = 0;
    if (i < tile.rows) {
      const T* from = row_of<T>(view, b, tile.position[i], tile.head[i]);
      for_lanes<T>(width,
                   [&](int64_t d, auto n) GW_BODY { store(to_ID + d, load(from + d, n) * set(factor), n); });
      d0 = width;
    }
    for (int64_t d = d0; d < padded; ++d) to_ID[d] = 0;
  }
}

template <typename To, typename S>
void put_row(To* to, const S* from, int64_t width, bool add) {
  for_lanes<S>(width, [&](int64_t d, auto n) GW_BODY {
    Vec<S> v = load(from + d, n);
    if (add) v = v + load(to + d, n);
    store(to + d, v, n);
  });
}

// A row of the operation's dtype or, in a wide view, of its accumulator.
template <typename T>
void put_row(const HeadsView& view, int64_t b, int64_t s, int64_t h, const Scalar<T>* from, int64_t width,
             bool add) {
  if (view.wide) {
    put_row(mutable_row_of<Scalar<T>>(view, b, s, h), from, width, add);
  } else {
    put_row(mutable_row_of<T>(view, b, s, h), from, width, add);
  }
}

// The columns from_DI times factor_I back into the tile's rows.
template <typename T>
void unpack_tile(const Tile<Scalar<T>>& tile, const Scalar<T>* from_DI, const Scalar<T>* factor_I,
                 const HeadsView& view, int64_t b, int64_t width, int64_t padded, bool add,
                 Scalar<T>* square_ID) {
  constexpr int lanes = Compute<T>::kLanes;
  for (int64_t c = 0; c < tile.vectors; ++c) {
    const Vec<T> factor = load(factor_I + c * lanes);
    for (int64_t d = 0; d < padded; d += lanes) {
      Vec<T> square[lanes];
      for (int r = 0; r < lanes; ++r)
        square[r] = load(from_DI + (d + r) * kTile<Scalar<T>> + c * lanes) * factor;
      transpose(square);
      for (int r = 0; r < lanes; ++r) store(square_ID + r * padded + d, square[r]);
    }
    for (int64_t r = 0; r < lanes && c * lanes + r < tile.rows; ++r) {
      const int64_t i = c * lanes + r;
      put_row<T>(view, b, tile.position[i], tile.head[i], square_ID + r * padded, width, add);
    }
  }
}

// Scores of keys that a lane does not see become -infinity. Keys [j0 + from, j0 + count).
template <typename S>
void mask(const Tile<S>& tile, int64_t j0, int64_t from, int64_t count, S* s_JI) {
  const Vec<S> nothing = set(-static_cast<S>(__builtin_inf()));
  for (int64_t j = from < 0 ? 0 : from; j < count; ++j)
    for (int64_t c = 0; c < tile.vectors; ++c) {
      S* at = s_JI + j * kTile<S> + c * kLanesOf<S>;
      store(at, select(load(tile.limit + c * kLanesOf<S>) > set(static_cast<S>(j0 + j)), load(at), nothing));
    }
}

template <typename T>
struct ForwardTask {
  using S = Scalar<T>;
  static constexpr int kLanes = Compute<T>::kLanes;

  const AttentionForward& p;
  int64_t padded;
  bool resident;
  S *k_JD, *v_JD;  // all keys, or one block
  S *q_DI, *s_JI, *out_DI, *square_ID;
  S most[kTile<S>], total[kTile<S>];

  ForwardTask(const AttentionForward& args, Carver& carver)
      : p(args), padded(round_up(args.shape.width, kPad)) {
    const int64_t all = round_up(p.shape.sk, kRows) * padded;
    resident = 2 * static_cast<size_t>(all) * sizeof(S) <= kResidentBytes;
    const int64_t kept = resident ? all : kBlock * padded;
    k_JD = carver.take<S>(kept);
    v_JD = carver.take<S>(kept);
    q_DI = carver.take<S>(padded * kTile<S>);
    s_JI = carver.take<S>(kBlock * kTile<S>);
    out_DI = carver.take<S>(padded * kTile<S>);
    square_ID = carver.take<S>(kLanes * padded);
  }

  void run(int64_t b, int64_t g) {
    const AttentionShape& a = p.shape;
    if (resident) pack(b, g, 0, a.sk);
    const int64_t rows = a.sq * (a.heads / a.groups);
    for (int64_t first = 0; first < rows; first += kTile<S>) {
      const Tile<S> tile(a, g, first);
      pack_tile<T>(tile, p.q, b, a.width, padded, static_cast<S>(a.scale), q_DI);
      for (int64_t i = 0; i < kTile<S>; ++i) {
        most[i] = -static_cast<S>(__builtin_inf());
        total[i] = 0;
      }
      for (int64_t i = 0; i < padded * kTile<S>; ++i) out_DI[i] = 0;
      for (int64_t j0 = 0; j0 < tile.most_seen; j0 += kBlock) {
        const int64_t count = least(kBlock, tile.most_seen - j0);
        if (!resident) pack(b, g, j0, j0 + count);
        const int64_t at = resident ? j0 * padded : 0;
        block(tile, j0, count, k_JD + at, v_JD + at);
      }
      finish(tile, b);
    }
  }

  void pack(int64_t b, int64_t g, int64_t first, int64_t last) {
    pack_rows<T>(p.k, b, g, first, last, p.shape.width, padded, k_JD);
    pack_rows<T>(p.v, b, g, first, last, p.shape.width, padded, v_JD);
  }

  void block(const Tile<S>& tile, int64_t j0, int64_t count, const S* k, const S* v) {
    constexpr int64_t W = kTile<S>;
    product<S>(count, tile.vectors, p.shape.width, k, padded, 1, q_DI, W, s_JI, W, false);
    if (j0 + count > tile.least_seen) mask(tile, j0, tile.least_seen - j0, count, s_JI);
    for (int64_t c = 0; c < tile.vectors; ++c) softmax(count, c * kLanes, j0 == 0);
    product<S>(padded, tile.vectors, count, v, 1, padded, s_JI, W, out_DI, W, true);
  }

  // One vector of lanes: new maximum, exponentials in place, and what was summed so far scaled to the new
  // maximum.
  void softmax(int64_t count, int64_t lane, bool is_first) {
    constexpr int64_t W = kTile<S>;
    S* s_J = s_JI + lane;
    const Vec<T> before = load(most + lane);
    Vec<T> now = before, other = before;
    int64_t j = 0;
    for (; j + 2 <= count; j += 2) {
      now = max(now, load(s_J + j * W));
      other = max(other, load(s_J + (j + 1) * W));
    }
    for (; j < count; ++j) now = max(now, load(s_J + j * W));
    now = max(now, other);
    // A lane that has seen nothing yet subtracts 0: its scores stay -infinity, their exponentials 0.
    const Vec<T> origin = select(now > set(-static_cast<S>(__builtin_inf())), now, Vec<T>{});
    Vec<T> added{};
    for (j = 0; j < count; ++j) {
      const Vec<T> e = exp_flush(load(s_J + j * W) - origin);
      added = added + e;
      store(s_J + j * W, e);
    }
    const Vec<T> shrink = exp_flush(before - origin);
    store(total + lane, fma(load(total + lane), shrink, added));
    store(most + lane, now);
    if (is_first) return;
    for (int64_t d = 0; d < padded; ++d) store(out_DI + d * W + lane, load(out_DI + d * W + lane) * shrink);
  }

  void finish(const Tile<S>& tile, int64_t b) {
    S inverse[kTile<S>];
    for (int64_t i = 0; i < kTile<S>; ++i)
      inverse[i] = total[i] > 0 || total[i] != total[i] ? 1 / total[i] : 0;
    unpack_tile<T>(tile, out_DI, inverse, p.out, b, p.shape.width, padded, false, square_ID);
    if (p.lse == nullptr) return;
    for (int64_t i = 0; i < tile.rows; ++i) {
      const int64_t at = (b * p.shape.heads + tile.head[i]) * p.shape.sq + tile.position[i];
      static_cast<S*>(p.lse)[at] = most[i] + log(total[i]);
    }
  }
};

template <typename T>
struct BackwardTask {
  using S = Scalar<T>;
  static constexpr int kLanes = Compute<T>::kLanes;

  const AttentionBackward& p;
  int64_t padded;
  S *k_JD, *v_JD, *dk_JD, *dv_JD;          // all keys
  S *q_DI, *do_DI, *dq_DI, *q_ID, *do_ID;  // the tile
  S *p_JI, *ds_JI, *square_ID;             // the block
  S lse[kTile<S>], delta[kTile<S>];        // delta: sum over D of dout * out

  BackwardTask(const AttentionBackward& args, Carver& carver)
      : p(args), padded(round_up(args.shape.width, kPad)) {
    const int64_t all = round_up(p.shape.sk, kRows) * padded;
    for (S** to : {&k_JD, &v_JD, &dk_JD, &dv_JD}) *to = carver.take<S>(all);
    for (S** to : {&q_DI, &do_DI, &dq_DI, &q_ID, &do_ID}) *to = carver.take<S>(padded * kTile<S>);
    for (S** to : {&p_JI, &ds_JI}) *to = carver.take<S>(kBlock * kTile<S>);
    square_ID = carver.take<S>(kLanes * padded);
  }

  void run(int64_t b, int64_t g) {
    const AttentionShape& a = p.shape;
    pack_rows<T>(p.k, b, g, 0, a.sk, a.width, padded, k_JD);
    pack_rows<T>(p.v, b, g, 0, a.sk, a.width, padded, v_JD);
    const int64_t all = round_up(a.sk, kRows) * padded;
    for (int64_t i = 0; i < all; ++i) dk_JD[i] = dv_JD[i] = 0;
    const int64_t rows = a.sq * (a.heads / a.groups);
    for (int64_t first = 0; first < rows; first += kTile<S>) {
      const Tile<S> tile(a, g, first);
      load_tile(tile, b);
      for (int64_t j0 = 0; j0 < tile.most_seen; j0 += kBlock)
        block(tile, j0, least(kBlock, tile.most_seen - j0));
      S scale[kTile<S>];
      for (S& s : scale) s = static_cast<S>(a.scale);
      unpack_tile<T>(tile, dq_DI, scale, p.dq, b, a.width, padded, p.accumulate, square_ID);
    }
    for (int64_t j = 0; j < a.sk; ++j) {
      put_row<T>(p.dk, b, j, g, dk_JD + j * padded, a.width, p.accumulate);
      put_row<T>(p.dv, b, j, g, dv_JD + j * padded, a.width, p.accumulate);
    }
  }

  void load_tile(const Tile<S>& tile, int64_t b) {
    const AttentionShape& a = p.shape;
    const S scale = static_cast<S>(a.scale);
    pack_tile<T>(tile, p.q, b, a.width, padded, scale, q_DI);
    pack_tile<T>(tile, p.dout, b, a.width, padded, S(1), do_DI);
    pack_tile_rows<T>(tile, p.q, b, a.width, padded, scale, q_ID);
    pack_tile_rows<T>(tile, p.dout, b, a.width, padded, S(1), do_ID);
    for (int64_t i = 0; i < padded * kTile<S>; ++i) dq_DI[i] = 0;
    for (int64_t i = 0; i < kTile<S>; ++i) {
      lse[i] = delta[i] = 0;
      if (i >= tile.rows) continue;
      const int64_t at = (b * a.heads + tile.head[i]) * a.sq + tile.position[i];
      lse[i] = static_cast<const S*>(p.lse)[at];
      // A row that saw nothing anywhere: probabilities 0, whatever the scores.
      if (lse[i] == -static_cast<S>(__builtin_inf())) lse[i] = -lse[i];
      const T* out = row_of<T>(p.out, b, tile.position[i], tile.head[i]);
      Vec<T> dot{};
      for_lanes<T>(a.width, [&](int64_t d, auto n) GW_BODY {
        dot = fma(load(do_ID + i * padded + d, n), load(out + d, n), dot);
      });
      delta[i] = sum(dot);
    }
  }

  void block(const Tile<S>& tile, int64_t j0, int64_t count) {
    constexpr int64_t W = kTile<S>;
    const int64_t at = j0 * padded, width_vectors = padded / kLanes, lanes = tile.vectors * kLanes;
    product<S>(count, tile.vectors, p.shape.width, k_JD + at, padded, 1, q_DI, W, p_JI, W, false);
    if (j0 + count > tile.least_seen) mask(tile, j0, tile.least_seen - j0, count, p_JI);
    product<S>(count, tile.vectors, p.shape.width, v_JD + at, padded, 1, do_DI, W, ds_JI, W, false);
    for (int64_t c = 0; c < lanes; c += kLanes) {
      const Vec<T> lse_I = load(lse + c), delta_I = load(delta + c);
      for (int64_t j = 0; j < count; ++j) {
        S *at_p = p_JI + j * W + c, *at_ds = ds_JI + j * W + c;
        const Vec<T> probability = exp_flush(load(at_p) - lse_I);
        store(at_p, probability);
        store(at_ds, probability * (load(at_ds) - delta_I));
      }
      // Rows that only the micro-kernel's rounding adds belong to keys that this tile does not see.
      for (int64_t j = count; j < round_up(count, kRows); ++j) {
        store(p_JI + j * W + c, Vec<T>{});
        store(ds_JI + j * W + c, Vec<T>{});
      }
    }
    product<S>(count, width_vectors, lanes, p_JI, W, 1, do_ID, padded, dv_JD + at, padded, true);
    product<S>(count, width_vectors, lanes, ds_JI, W, 1, q_ID, padded, dk_JD + at, padded, true);
    product<S>(padded, tile.vectors, count, k_JD + at, 1, padded, ds_JI, W, dq_DI, W, true);
  }
};

template <template <typename> typename Task, typename T, typename Args>
size_t scratch_bytes(const AttentionShape& shape) {
  Args args{};
  args.shape = shape;
  Carver carver{nullptr};
  const Task<T> task(args, carver);
  return carver.used;
}

template <template <typename> typename Task, typename T, typename Args>
void run_tasks(const Args& args, void* scratch, int64_t first, int64_t last) {
  Carver carver{static_cast<char*>(scratch)};
  Task<T> task(args, carver);
  for (int64_t i = first; i < last; ++i) task.run(i / args.shape.groups, i % args.shape.groups);
}

template <typename T>
constexpr auto kForwardScratch = scratch_bytes<ForwardTask, T, AttentionForward>;
template <typename T>
constexpr auto kBackwardScratch = scratch_bytes<BackwardTask, T, AttentionBackward>;
template <typename T>
constexpr auto kForward = run_tasks<ForwardTask, T, AttentionForward>;
template <typename T>
constexpr auto kBackward = run_tasks<BackwardTask, T, AttentionBackward>;

}  // namespace

extern const AttentionKernels attention_kernels = {
    {kForwardScratch<float>, kForwardScratch<bf16_t>, kForwardScratch<double>},
    {kBackwardScratch<float>, kBackwardScratch<bf16_t>, kBackwardScratch<double>},
    {kForward<float>, kForward<bf16_t>, kForward<double>},
    {kBackward<float>, kBackward<bf16_t>, kBackward<double>},
};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
