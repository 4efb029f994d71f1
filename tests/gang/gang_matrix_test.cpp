// The matrix: engines self and threads x ranks {1, 2, 3, 4, 7, 8} x counts {0, 1, 7, 4096} x types x every
// operation and form, in the gang's own memory, in plain memory, and where ranks differ in that. The
// reference is a serial fold in rank order that every rank works out for itself from the same formula for all
// ranks' inputs.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gang/gang.h"
#include "gang/thread_ranks.h"

namespace gangway {
namespace {

using test::run_ranks;
using Op = CollectiveOp;

uint64_t mix(uint64_t x) {  // splitmix64
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
size_t part(const Case& c, int rank) {
  return c.counts.empty() ? c.count : c.counts[static_cast<size_t>(rank)];
}
size_t before(const Case& c, int rank) {
  size_t sum = 0;
  for (int r = 0; r < rank; ++r) sum += part(c, r);
  return sum;
}
size_t pair(const Case& c, int from, int to, int size) {
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
    case Op::recv:
      break;
    case Op::all_reduce:
      reduced(0, c.count);
      break;
    case Op::reduce:
      if (root) reduced(0, c.count);
      break;
    case Op::reduce_scatter:
      reduced(before(c, rank), part(c, rank));
      break;
    case Op::broadcast:
      taken(c.root, 0, c.count);
      break;
    case Op::scatter:
      taken(c.root, before(c, rank), part(c, rank));
      break;
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

// Memory of a rank for one call: of the gang or plain.
class Memory {
 public:
  Memory(Gang& gang, bool of_gang, size_t bytes) {
    if (of_gang)
      buffer_ = Buffer::allocate(gang.allocator(), bytes);
    else
      plain_.resize(bytes + 64);
  }
  char* data() {
    if (buffer_) return static_cast<char*>(buffer_->data());
    return plain_.data() + (64 - reinterpret_cast<uintptr_t>(plain_.data()) % 64) % 64;
  }

 private:
  std::shared_ptr<Buffer> buffer_;
  std::vector<char> plain_;
};

std::string describe(const Case& c, const Gang& gang, DType dtype) {
  return text(name(c.op), " ", name(c.reduce), " of ", c.count, c.counts.empty() ? " " : "+ ", name(dtype),
              " root ", c.root, c.in_place ? " in place" : "", c.accumulate ? " accumulating" : "",
              " on rank ", gang.rank(), " of ", gang.size());
}

template <typename T>
bool equal(const std::vector<T>& want, const T* got, bool rounded_twice) {
  if constexpr (sizeof(T) == 2) {
    if (rounded_twice) {  // out + result may be rounded once or twice
      for (size_t i = 0; i < want.size(); ++i) {
        const float a = Kind<T>::load(want[i]), b = Kind<T>::load(got[i]);
        if (!(std::abs(a - b) <= 0x1p-6f * (2 + std::abs(a)))) return false;
      }
      return true;
    }
  }
  (void)rounded_twice;
  return want.empty() || std::memcmp(want.data(), got, want.size() * sizeof(T)) == 0;
}

template <typename T>
void check(Gang& gang, const Case& c, Memory& in_memory, Memory& out_memory) {
  const int rank = gang.rank(), size = gang.size();
  const std::vector<T> in = input<T>(c, rank, size);
  std::vector<T> want = expected<T>(c, rank, size);
  T* in_at = reinterpret_cast<T*>(in_memory.data());
  T* out_at = reinterpret_cast<T*>(out_memory.data());
  if (c.in_place) {  // where the form puts the one buffer inside the other
    if (c.op == Op::all_gather || c.op == Op::gather) {
      in_at = out_at + (c.op == Op::gather && rank != c.root ? 0 : before(c, rank));
    } else if (c.op == Op::reduce_scatter || c.op == Op::scatter) {
      out_at = in_at + (c.op == Op::scatter && rank != c.root ? 0 : before(c, rank));
    } else {
      in_at = out_at;
    }
  }
  for (size_t i = 0; i < want.size(); ++i) out_at[i] = base<T>(i);
  if (!in.empty()) std::memcpy(in_at, in.data(), in.size() * sizeof(T));
  if constexpr (kFloats<T>)
    for (size_t i = 0; c.accumulate && i < want.size(); ++i)
      want[i] = Kind<T>::store(Kind<T>::load(base<T>(i)) + Kind<T>::load(want[i]));

  Collective record;
  record.op = c.op;
  record.in = in_at;
  record.out = out_at;
  record.count = c.count;
  record.dtype = Kind<T>::dtype;
  record.reduce = c.reduce;
  record.peer = c.root;
  record.accumulate = c.accumulate;
  std::vector<size_t> counts = c.counts;
  if (c.op == Op::all_to_all && !counts.empty()) {
    counts.clear();
    for (int r = 0; r < size; ++r) counts.push_back(pair(c, rank, r, size));
    for (int r = 0; r < size; ++r) counts.push_back(pair(c, r, rank, size));
  }
  if (!counts.empty()) record.counts = counts.data();
  gang.run_now(Channel::user, record);

  if (!equal(want, out_at, c.accumulate))
    fail(Code::internal, "wrong result: ", describe(c, gang, record.dtype));
  if (!c.in_place && !in.empty() && std::memcmp(in.data(), in_at, in.size() * sizeof(T)) != 0)
    fail(Code::internal, "changed input: ", describe(c, gang, record.dtype));
}

bool is_rooted(Op op) {
  return op == Op::reduce || op == Op::broadcast || op == Op::gather || op == Op::scatter;
}

// Every form of every operation of one type and count.
template <typename T>
void all_cases(Gang& gang, size_t count, Memory& a, Memory& b) {
  const int size = gang.size();
  std::vector<Case> cases;
  const auto add = [&](Op op, Reduce reduce) {
    Case c;
    c.op = op;
    c.reduce = reduce;
    c.count = count;
    const int roots[] = {0, size - 1, size / 2};
    for (int k = 0; k < (is_rooted(op) ? (size == 1 ? 1 : size == 2 ? 2 : 3) : 1); ++k) {
      c.root = roots[k];
      cases.push_back(c);
      if (op == Op::all_to_all) continue;
      c.in_place = true;
      cases.push_back(c);
      c.in_place = false;
    }
  };
  for (const Op op : {Op::all_gather, Op::broadcast, Op::gather, Op::scatter, Op::all_to_all})
    add(op, Reduce::none);
  if constexpr (!std::is_same_v<T, Sixteen>)
    for (const Op op : {Op::all_reduce, Op::reduce_scatter, Op::reduce})
      for (const Reduce r : {Reduce::sum, Reduce::mean, Reduce::product, Reduce::min, Reduce::max}) {
        if (r == Reduce::mean && !kFloats<T>) continue;
        if (std::is_same_v<T, Bool> && r != Reduce::min && r != Reduce::max) continue;
        add(op, r);
        if (!kFloats<T>) continue;
        Case more = cases.back();
        more.in_place = false;
        more.accumulate = true;
        cases.push_back(more);
      }
  const size_t plain = cases.size();
  for (size_t i = 0; i < plain; ++i) {  // counts per rank, some of them 0
    Case c = cases[i];
    if (c.op == Op::all_reduce || c.op == Op::reduce || c.op == Op::broadcast) continue;
    const int lists = c.op == Op::all_to_all ? size : 1;
    for (int k = 0; k < lists * size; ++k)
      c.counts.push_back(k % 3 == 1 ? 0 : (count * static_cast<size_t>(k % 4 + 1)) / 4);
    c.count = 0;
    cases.push_back(c);
  }
  for (const Case& c : cases) check<T>(gang, c, a, b);
}

// Everybody sends to the next and to the one after it, and to itself, in one batch.
void exchange(Gang& gang, size_t count, Memory& a, Memory& b) {
  const int size = gang.size(), rank = gang.rank();
  float* in = reinterpret_cast<float*>(a.data());
  float* out = reinterpret_cast<float*>(b.data());
  for (size_t i = 0; i < count; ++i) in[i] = element<float>(rank, i);
  std::vector<Collective> batch;
  for (int step = 0; step < 3; ++step) {
    Collective c;
    c.count = count;
    c.op = Op::recv;
    c.peer = ((rank - step) % size + size) % size;
    c.out = out + static_cast<size_t>(step) * count;
    batch.push_back(c);
    c.op = Op::send;
    c.peer = (rank + step) % size;
    c.in = in;
    c.out = nullptr;
    batch.push_back(c);
  }
  const WorkPtr work = gang.run(Channel::user, batch);
  work->wait(Deadline::never());
  work->wait_input(Deadline::never());
  for (int step = 0; step < 3; ++step)
    for (size_t i = 0; i < count; ++i)
      if (out[static_cast<size_t>(step) * count + i] !=
          element<float>(((rank - step) % size + size) % size, i))
        fail(Code::internal, "exchange of ", count, " with step ", step, " on rank ", rank, " of ", size);
}

enum class Where { gang, plain, mixed };

void matrix(Gang& gang, size_t count, Where where) {
  const bool of_gang = where == Where::gang || (where == Where::mixed && gang.rank() % 2 == 1);
  const size_t bytes = (count * static_cast<size_t>(gang.size()) + 8) * 16;
  Memory a(gang, of_gang, bytes), b(gang, of_gang, bytes);
  all_cases<float>(gang, count, a, b);
  all_cases<double>(gang, count, a, b);
  all_cases<bf16_t>(gang, count, a, b);
  all_cases<f16_t>(gang, count, a, b);
  all_cases<int64_t>(gang, count, a, b);
  all_cases<int32_t>(gang, count, a, b);
  all_cases<uint8_t>(gang, count, a, b);
  all_cases<Bool>(gang, count, a, b);
  all_cases<Sixteen>(gang, count, a, b);
  exchange(gang, count, a, b);
  gang.barrier();
}

class GangMatrix : public testing::TestWithParam<int> {};

TEST_P(GangMatrix, EveryOperationEqualsTheSerialFold) {
  run_ranks(GetParam(), [](Gang& root) {
    EXPECT_STREQ(root.engine_name(), root.size() == 1 ? "self" : "threads");
    for (const size_t count : {0, 1, 7, 4096})
      for (const Where where : {Where::gang, Where::plain, Where::mixed}) matrix(root, count, where);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GangMatrix, testing::Values(1, 2, 3, 4, 7, 8));

TEST(GangLarge, SeveralChunksOfEveryPath) {
  run_ranks(3, [](Gang& root) {
    constexpr size_t kCount = 300'007;
    for (const Where where : {Where::gang, Where::plain, Where::mixed}) {
      const bool of_gang = where == Where::gang || (where == Where::mixed && root.rank() % 2 == 1);
      Memory a(root, of_gang, 3 * kCount * 8), b(root, of_gang, 3 * kCount * 8);
      for (const Op op : {Op::all_reduce, Op::reduce_scatter, Op::reduce, Op::all_gather, Op::broadcast,
                          Op::gather, Op::scatter, Op::all_to_all}) {
        Case c;
        c.op = op;
        c.count = kCount;
        c.root = 1;
        if (op == Op::all_reduce || op == Op::reduce_scatter || op == Op::reduce) c.reduce = Reduce::sum;
        check<float>(root, c, a, b);
      }
      exchange(root, kCount, a, b);
    }
  });
}

}  // namespace
}  // namespace gangway
