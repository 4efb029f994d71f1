// Serial meaning of every collective, for the tests of the engines: inputs of all ranks in, outputs of all
// ranks out. Values are small integers, so sums are exact in every type and order.
#pragma once

#include <cstring>
#include <vector>

#include "base/dtype.h"
#include "gang/collective.h"

namespace gangway::test {

using Bytes = std::vector<unsigned char>;

inline double get(const Bytes& bytes, size_t i, DType t) {
  const unsigned char* const p = bytes.data() + i * item_bytes(t);
  const auto as = [&]<typename T>(T v) {
    std::memcpy(&v, p, sizeof v);
    return v;
  };
  switch (t) {
    case DType::f64: return as(double{});
    case DType::f32: return as(float{});
    case DType::bf16: return to_f32(as(bf16_t{}));
    case DType::f16: return to_f32(as(f16_t{}));
    case DType::i64: return static_cast<double>(as(int64_t{}));
    case DType::i32: return as(int32_t{});
    default: return as(uint8_t{});
  }
}

inline void set(Bytes& bytes, size_t i, DType t, double value) {
  unsigned char* const p = bytes.data() + i * item_bytes(t);
  const auto put = [&](auto v) { std::memcpy(p, &v, sizeof v); };
  switch (t) {
    case DType::f64: return put(value);
    case DType::f32: return put(static_cast<float>(value));
    case DType::bf16: return put(to_bf16(static_cast<float>(value)));
    case DType::f16: return put(to_f16(static_cast<float>(value)));
    case DType::i64: return put(static_cast<int64_t>(value));
    case DType::i32: return put(static_cast<int32_t>(value));
    default: return put(static_cast<uint8_t>(static_cast<int64_t>(value)));
  }
}

inline double fold(const std::vector<double>& values, Reduce reduce) {
  double out = values[0];
  for (size_t r = 1; r < values.size(); ++r) {
    const double x = values[r];
    if (reduce == Reduce::product) {
      out *= x;
    } else if (reduce == Reduce::min) {
      out = x < out ? x : out;
    } else if (reduce == Reduce::max) {
      out = x > out ? x : out;
    } else {
      out += x;
    }
  }
  return reduce == Reduce::mean ? out / static_cast<double>(values.size()) : out;
}

// A value of rank r at element i that every type holds exactly, as do sums over 8 ranks.
inline double sample(int r, size_t i, DType t, Reduce reduce) {
  const auto x = static_cast<double>((i * 7 + static_cast<size_t>(r) * 13) % 11);
  if (t == DType::boolean) return static_cast<int>(x) % 2;
  if (reduce == Reduce::product) return static_cast<int>(x) % 2 + 1;
  return t == DType::u8 ? x : x - 5;
}

inline Bytes sample_input(const Collective& c, int rank, int size) {
  const size_t n = in_count(c, rank, size);
  Bytes bytes(n * item_bytes(c.dtype));
  for (size_t i = 0; i < n; ++i) set(bytes, i, c.dtype, sample(rank, i, c.dtype, c.reduce));
  return bytes;
}

// What rank `rank` gets; `in` has every rank's input, `counts` of all_to_all are row-major [from][to] when
// not empty.
inline Bytes reference(const Collective& c, const std::vector<Bytes>& in, int rank,
                       const std::vector<size_t>& matrix = {}) {
  const int size = static_cast<int>(in.size());
  const size_t item = item_bytes(c.dtype);
  Bytes out(out_count(c, rank, size) * item, 0xee);
  const auto part = [&](int j) { return c.counts != nullptr ? c.counts[j] : c.count; };
  const auto before = [&](int j) {
    size_t sum = 0;
    for (int k = 0; k < j; ++k) sum += part(k);
    return sum;
  };
  const auto copy = [&](size_t to, int from, size_t first, size_t count) {
    if (count != 0)
      std::memcpy(out.data() + to * item, in[static_cast<size_t>(from)].data() + first * item, count * item);
  };
  const auto folded = [&](size_t first, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      std::vector<double> values;
      for (const Bytes& b : in) values.push_back(get(b, first + i, c.dtype));
      set(out, i, c.dtype, fold(values, c.reduce));
    }
  };
  switch (c.op) {
    case CollectiveOp::barrier:
    case CollectiveOp::send:
    case CollectiveOp::recv: break;
    case CollectiveOp::all_reduce: folded(0, c.count); break;
    case CollectiveOp::reduce:
      if (rank == c.peer) folded(0, c.count);
      break;
    case CollectiveOp::reduce_scatter: folded(before(rank), part(rank)); break;
    case CollectiveOp::broadcast: copy(0, c.peer, 0, c.count); break;
    case CollectiveOp::gather:
      if (rank != c.peer) break;
      [[fallthrough]];
    case CollectiveOp::all_gather:
      for (int j = 0; j < size; ++j) copy(before(j), j, 0, part(j));
      break;
    case CollectiveOp::scatter: copy(0, c.peer, before(rank), part(rank)); break;
    case CollectiveOp::all_to_all: {
      const auto w = static_cast<size_t>(size);
      const auto sent = [&](int from, int to) {
        return matrix.empty() ? c.count : matrix[static_cast<size_t>(from) * w + static_cast<size_t>(to)];
      };
      size_t at = 0;
      for (int from = 0; from < size; ++from) {
        size_t first = 0;
        for (int to = 0; to < rank; ++to) first += sent(from, to);
        copy(at, from, first, sent(from, rank));
        at += sent(from, rank);
      }
      break;
    }
  }
  return out;
}

}  // namespace gangway::test
