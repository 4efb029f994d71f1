// The parts that the forward and the backward of blocked attention share: the micro-kernel, packing, and the
// tile of query rows.
//
// The query rows of a key/value head (those of all its query heads, with the position as the slowest index)
// are processed in tiles of kTileRows, and the keys in blocks of kKeys. Each row sees one range of keys, and
// neither end of the range decreases from row to row. So each group of kRows rows is computed from the first
// key that its first row sees to the last key that its last row sees, and each group of kRows keys from the
// first to the last row that sees one of them. This skips what causal masks, documents and windows hide,
// except at the edges of the groups. All products use one micro-kernel, which broadcasts elements of one
// operand and loads vectors of the other, along the keys or along the head width.
//
// Legend: I rows of the tile, J keys of the block, D head width. In scratch, rows of D are padded with zeros
// to a multiple of kPad elements.
//
// Thread rule: pure functions; scratch is the caller's.
#pragma once

#include "ops/cpu/kernels/attention_kernels.h"
#include "ops/cpu/simd.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {

constexpr int64_t kPad = 16;
constexpr int64_t kTileRows = 64;
constexpr int64_t kKeys = 64;
// The rows of the micro-kernel. kRows * 3 vectors of sums fit in the registers.
constexpr int kRows = kBytes == 64 ? 8 : 4;

GW_SIMD int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
GW_SIMD int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
GW_SIMD constexpr int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

struct Keys {
  int64_t first, end;
};

// c[r][column] (+)= sum over n of a[r * a_row + n * a_step] * b[n * b_row + column], for kRows rows and C
// vectors of columns.
template <typename S, int C>
GW_SIMD void micro(int64_t n, const S* a, int64_t a_row, int64_t a_step, const S* b, int64_t b_row, S* c,
                   int64_t c_row, bool add) {
  constexpr int lanes = Compute<S>::kLanes;
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

// The same for any number of vectors. It splits 4 vectors into 2 + 2, not 3 + 1: a single vector has too few
// independent sums to hide the latency of a multiply-add.
template <typename S>
[[gnu::noinline]] void product(int64_t vectors, int64_t n, const S* a, int64_t a_row, int64_t a_step,
                               const S* b, int64_t b_row, S* c, int64_t c_row, bool add) {
  constexpr int lanes = Compute<S>::kLanes;
  while (vectors > 0) {
    const int64_t now = vectors == 4 ? 2 : least(vectors, 3);
    if (now == 3) {
      micro<S, 3>(n, a, a_row, a_step, b, b_row, c, c_row, add);
    } else if (now == 2) {
      micro<S, 2>(n, a, a_row, a_step, b, b_row, c, c_row, add);
    } else {
      micro<S, 1>(n, a, a_row, a_step, b, b_row, c, c_row, add);
    }
    b += now * lanes;
    c += now * lanes;
    vectors -= now;
  }
}

// Hands out pieces of scratch memory. With a null base, it only counts the bytes.
struct ScratchAllocator {
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
T* row_of(const HeadsView& view, int64_t b, int64_t s, int64_t h) {
  return static_cast<T*>(view.data) + b * view.batch_stride + s * view.row_stride + h * view.head_stride;
}

// Prefetches a row that is needed kAhead rows later. Rows lie kilobytes apart, so the hardware prefetcher
// does not load them.
constexpr int64_t kAhead = 8;
template <typename T>
GW_SIMD void fetch(const T* row, int64_t width) {
  for (int64_t d = 0; d < width; d += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(row + d);
}

// Writes factor * row to to_D, with zeros up to the padded width. A null row means zeros.
template <typename T>
void pack_row(const T* row, int64_t width, int64_t padded, Scalar<T> factor, Scalar<T>* to_D) {
  if (row == nullptr) width = 0;
  for_lanes<T>(width, [&](int64_t d, auto n) GW_BODY { store(to_D + d, load(row + d, n) * factor, n); });
  for (int64_t d = width; d < padded; ++d) to_D[d] = 0;
}

// Packs keys [first, last) of one head into to_JD.
template <typename T>
void pack_keys(const HeadsView& view, int64_t b, int64_t h, int64_t first, int64_t last, int64_t width,
               int64_t padded, Scalar<T> factor, Scalar<T>* to_JD) {
  for (int64_t j = first; j < last; ++j, to_JD += padded) {
    if (j + kAhead < last) fetch(row_of<const T>(view, b, j + kAhead, h), width);
    pack_row(row_of<const T>(view, b, j, h), width, padded, factor, to_JD);
  }
}

// Packs keys as columns, in one block after another of kKeys: to_DJ is [blocks][padded][kKeys], with zeros
// after the last key.
template <typename T>
void pack_keys_as_columns(const HeadsView& view, int64_t b, int64_t h, int64_t first, int64_t last,
                          int64_t width, int64_t padded, Scalar<T>* to_DJ) {
  constexpr int lanes = Compute<T>::kLanes;
  for (int64_t j = first; j < first + round_up(last - first, kKeys); j += lanes) {
    Scalar<T>* to = to_DJ + (j - first) / kKeys * kKeys * padded + (j - first) % kKeys;
    const T* from = row_of<const T>(view, b, j, h);
    for (int64_t r = lanes; r < 2 * lanes && j + r < last; ++r) fetch(from + r * view.row_stride, width);
    for (int64_t d = 0; d < padded; d += lanes) {
      const int64_t rest = width - d;
      Vec<T> square[lanes];
      for (int r = 0; r < lanes; ++r) {
        const T* at = from + r * view.row_stride + d;
        if (j + lanes <= last && rest >= lanes) {
          square[r] = load(at);
        } else if (j + r < last && rest > 0) {
          square[r] = load(at, Part{static_cast<int>(least(rest, lanes))});
        } else {
          square[r] = Vec<T>{};
        }
      }
      transpose(square);
      for (int r = 0; r < lanes; ++r) store(to + (d + r) * kKeys, square[r]);
    }
  }
}

// Writes a row in the operation's dtype, or in its accumulator's dtype if the view is wide.
template <typename To, typename S>
void put_row(To* to, const S* from, int64_t width, bool add) {
  for_lanes<S>(width, [&](int64_t d, auto n) GW_BODY {
    Vec<S> v = load(from + d, n);
    if (add) v = v + load(to + d, n);
    store(to + d, v, n);
  });
}
template <typename T>
void put_row(const HeadsView& view, int64_t b, int64_t s, int64_t h, const Scalar<T>* from, int64_t width,
             bool add) {
  if (view.wide) {
    put_row(row_of<Scalar<T>>(view, b, s, h), from, width, add);
  } else {
    put_row(row_of<T>(view, b, s, h), from, width, add);
  }
}

// Rows [first, first + rows) of the group's sq * (heads / groups) query rows.
struct Tile {
  int64_t rows;
  int64_t position[kTileRows], head[kTileRows];
  int64_t start[kTileRows] = {}, limit[kTileRows] = {};  // the row sees keys [start, limit)

  Tile(const AttentionShape& p, int64_t b, int64_t g, int64_t first) {
    const int64_t per_group = p.heads / p.groups;
    rows = least(kTileRows, p.sq * per_group - first);
    for (int64_t i = 0; i < rows; ++i) {
      position[i] = (first + i) / per_group;
      head[i] = g * per_group + (first + i) % per_group;
      const auto key = [&](int64_t k) { return most(0, least(p.sk, k)); };
      if (p.first_key != nullptr) {
        const int64_t at = b * p.range_stride + position[i];
        start[i] = key(p.first_key[at] - p.key_offset);
        limit[i] = key(p.end_key[at] - p.key_offset);
      } else {
        start[i] = 0;
        limit[i] = p.causal ? key(position[i] + p.shift + 1) : p.sk;
      }
    }
  }

  int64_t most_seen() const { return limit[rows - 1]; }
  // Returns the start of the first block of keys that a row sees, or most_seen() if no row sees a key.
  int64_t first_block() const { return start[0] < most_seen() ? start[0] / kKeys * kKeys : most_seen(); }
  // Returns, counted from j0, the part of the keys [j0, j0 + count) between the first and the last one that
  // the rows of the group that starts at i see. It is empty or reversed if they see none.
  Keys seen_by_group(int64_t i, int64_t j0, int64_t count) const {
    return {most(0, start[i] - j0), least(count, limit[least(i + kRows, rows) - 1] - j0)};
  }

  // Packs factor * the tile's rows of one tensor into to_ID, with rows of zeros up to a multiple of kRows.
  template <typename T>
  void pack(const HeadsView& view, int64_t b, int64_t width, int64_t padded, Scalar<T> factor,
            Scalar<T>* to_ID) const {
    for (int64_t i = 0; i < round_up(rows, kRows); ++i) {
      if (i + kAhead < rows) fetch(row_of<const T>(view, b, position[i + kAhead], head[i + kAhead]), width);
      pack_row(i < rows ? row_of<const T>(view, b, position[i], head[i]) : nullptr, width, padded, factor,
               to_ID + i * padded);
    }
  }
};

// Widens a range of keys to whole vectors of scores, and to multiples of kRows, since the micro-kernel later
// reads kRows keys at a time.
template <typename S>
GW_SIMD Keys whole_vectors(Keys seen) {
  constexpr int64_t step = most(Compute<S>::kLanes, kRows);
  return {seen.first / step * step, round_up(seen.end, step)};
}

// Returns a mask of the lanes below `limit` in the vector that starts at key j: all bits or none.
GW_SIMD I32 lanes_below(int64_t limit, int64_t j, float) {
  I32 at;
  for (int i = 0; i < kLanes32; ++i) at[i] = i;
  const int64_t left = limit - j;
  return at < static_cast<int32_t>(left < 0 ? 0 : least(left, kLanes32));
}
GW_SIMD I64 lanes_below(int64_t limit, int64_t j, double) {
  I64 at;
  for (int i = 0; i < kLanes64; ++i) at[i] = i;
  return at < limit - j;
}

// Replaces the scores outside of the keys that the row sees by `hidden`. `scored` has whole vectors.
template <typename S>
GW_SIMD void hide(S* scores_J, Keys scored, Keys row, S hidden) {
  constexpr int64_t lanes = Compute<S>::kLanes;
  for (int64_t j = scored.first; j < least(row.first, scored.end); j += lanes)
    store(scores_J + j, select(lanes_below(row.first, j, S()), set(hidden), load(scores_J + j)));
  for (int64_t j = most(scored.first, row.end / lanes * lanes); j < scored.end; j += lanes)
    store(scores_J + j, select(lanes_below(row.end, j, S()), load(scores_J + j), set(hidden)));
}

template <template <typename> typename Task, typename T, typename Args>
size_t scratch_bytes(const AttentionShape& shape) {
  Args args{};
  args.shape = shape;
  ScratchAllocator allocator{nullptr};
  const Task<T> task(args, allocator);
  return allocator.used;
}

template <template <typename> typename Task, typename T, typename Args>
void run_tasks(const Args& args, void* scratch, int64_t first, int64_t last) {
  ScratchAllocator allocator{static_cast<char*>(scratch)};
  Task<T> task(args, allocator);
  for (int64_t i = first; i < last; ++i) task.run(i / args.shape.groups, i % args.shape.groups);
}

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
