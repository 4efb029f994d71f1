// What goes into the calls of the matrix and what has to come out: a serial fold in rank order, from a
// formula for all ranks' inputs that every rank works out for itself.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/dtype.h"
#include "gang/collective.h"

namespace gangway::test {

using Op = CollectiveOp;

inline uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

struct Bool {
  uint8_t value;
};
struct Sixteen {
  uint64_t words[2];
};

template <typename T>
struct Kind;  // dtype, accumulator, reading and writing
template <typename T, typename A, DType kType>
struct Plain {
  static constexpr DType dtype = kType;
  using Accumulator = A;
  static A load(T x) { return static_cast<A>(x); }
  static T store(A x) { return static_cast<T>(x); }
};
template <>
struct Kind<float> : Plain<float, float, DType::f32> {};
template <>
struct Kind<double> : Plain<double, double, DType::f64> {};
template <>
struct Kind<int64_t> : Plain<int64_t, uint64_t, DType::i64> {};
template <>
struct Kind<int32_t> : Plain<int32_t, uint64_t, DType::i32> {};
template <>
struct Kind<uint8_t> : Plain<uint8_t, uint64_t, DType::u8> {};
template <>
struct Kind<bf16_t> : Plain<float, float, DType::bf16> {
  static float load(bf16_t x) { return to_f32(x); }
  static bf16_t store(float x) { return to_bf16(x); }
};
template <>
struct Kind<f16_t> : Plain<float, float, DType::f16> {
  static float load(f16_t x) { return to_f32(x); }
  static f16_t store(float x) { return to_f16(x); }
};
template <>
struct Kind<Bool> {
  static constexpr DType dtype = DType::boolean;
};
template <>
struct Kind<Sixteen> {
  static constexpr DType dtype = DType::c128;
};

template <typename T>
constexpr bool kFloats = is_floating(Kind<T>::dtype);

// Element i of a rank's input. Floats lie in [0.5, 1.5) with a sign, so that products stay finite and sums
// round.
template <typename T>
T element(int rank, size_t i) {
  const uint64_t bits = mix(static_cast<uint64_t>(rank) << 40 | i);
  if constexpr (std::is_same_v<T, Bool>) {
    return {static_cast<uint8_t>(bits & 1)};
  } else if constexpr (std::is_same_v<T, Sixteen>) {
    return {{bits, ~bits}};
  } else if constexpr (kFloats<T>) {
    const double x = 0.5 + static_cast<double>(bits >> 11) * 0x1p-53;
    return Kind<T>::store(static_cast<typename Kind<T>::Accumulator>((bits & 1) != 0 ? -x : x));
  } else {
    return static_cast<T>(bits);
  }
}

template <typename T>
T base(size_t i) {  // what an output holds before an accumulating call
  return element<T>(1000, i);
}

struct Case {
  Op op = Op::barrier;
  Reduce reduce = Reduce::none;
  size_t count = 0;
  int root = 0;
  std::vector<size_t> counts;  // per rank, or the W x W matrix of an all_to_all (row: sender)
  bool in_place = false;
  bool accumulate = false;
};

// One rank's view of a case.
inline size_t part(const Case& c, int rank) {
  return c.counts.empty() ? c.count : c.counts[static_cast<size_t>(rank)];
}
inline size_t before(const Case& c, int rank) {
  size_t sum = 0;
  for (int r = 0; r < rank; ++r) sum += part(c, r);
  return sum;
}
inline size_t pair(const Case& c, int from, int to, int size) {
  return c.counts.empty() ? c.count : c.counts[static_cast<size_t>(from * size + to)];
}

// Left fold over the ranks of element i of their inputs.
template <typename T>
T folded(const Case& c, size_t i, int size) {
  if constexpr (std::is_same_v<T, Bool>) {
    uint8_t all = element<T>(0, i).value;
    for (int r = 1; r < size; ++r)
      all = c.reduce == Reduce::min ? (all & element<T>(r, i).value) : (all | element<T>(r, i).value);
    return {all};
  } else if constexpr (!std::is_same_v<T, Sixteen>) {
    using K = Kind<T>;
    T best = element<T>(0, i);
    auto sum = K::load(best), product = K::load(best);
    for (int r = 1; r < size; ++r) {
      const T x = element<T>(r, i);
      sum += K::load(x);
      product *= K::load(x);
      const bool less = [&] {
        if constexpr (kFloats<T>)
          return K::load(x) < K::load(best);
        else
          return x < best;
      }();
      if (K::load(x) != K::load(best) && less == (c.reduce == Reduce::min)) best = x;
    }
    if (c.reduce == Reduce::sum) return K::store(sum);
    if (c.reduce == Reduce::product) return K::store(product);
    if (c.reduce == Reduce::mean) return K::store(sum / static_cast<typename K::Accumulator>(size));
    return best;
  }
  return T{};
}

template <typename T>
std::vector<T> input(const Case& c, int rank, int size) {
  size_t count = part(c, rank);
  if (c.op == Op::reduce_scatter) count = before(c, size);
  if (c.op == Op::scatter) count = rank == c.root ? before(c, size) : 0;
  if (c.op == Op::broadcast) count = rank == c.root ? c.count : 0;
  if (c.op == Op::all_to_all) {
    count = 0;
    for (int to = 0; to < size; ++to) count += pair(c, rank, to, size);
  }
  std::vector<T> in(count);
  for (size_t i = 0; i < count; ++i) in[i] = element<T>(rank, i);
  return in;
}

template <typename T>
std::vector<T> expected(const Case& c, int rank, int size) {
  std::vector<T> out;
  const auto reduced = [&](size_t first, size_t count) {
    for (size_t i = 0; i < count; ++i) out.push_back(folded<T>(c, first + i, size));
  };
  const auto taken = [&](int from, size_t first, size_t count) {
    for (size_t i = 0; i < count; ++i) out.push_back(element<T>(from, first + i));
  };
  const bool root = rank == c.root;
  switch (c.op) {
    case Op::barrier:
    case Op::send:
    case Op::recv: break;
    case Op::all_reduce: reduced(0, c.count); break;
    case Op::reduce:
      if (root) reduced(0, c.count);
      break;
    case Op::reduce_scatter: reduced(before(c, rank), part(c, rank)); break;
    case Op::broadcast: taken(c.root, 0, c.count); break;
    case Op::scatter: taken(c.root, before(c, rank), part(c, rank)); break;
    case Op::all_gather:
    case Op::gather:
      for (int r = 0; r < size && (root || c.op == Op::all_gather); ++r) taken(r, 0, part(c, r));
      break;
    case Op::all_to_all:
      for (int from = 0; from < size; ++from) {
        size_t first = 0;
        for (int to = 0; to < rank; ++to) first += pair(c, from, to, size);
        taken(from, first, pair(c, from, rank, size));
      }
  }
  return out;
}

}  // namespace gangway::test
