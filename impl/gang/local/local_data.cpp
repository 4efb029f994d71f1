#include "gang/local/local_data.h"

#include <cstring>
#include <numeric>
#include <type_traits>

#include "base/error.h"
#include "tensor/layout.h"

namespace gangway {
namespace {

void move(void* to, const void* from, size_t bytes) {
  if (bytes != 0 && to != nullptr && from != nullptr && to != from) std::memmove(to, from, bytes);
}

const char* at(const void* base, size_t bytes) {
  return base == nullptr ? nullptr : static_cast<const char*>(base) + bytes;
}
char* at(void* base, size_t bytes) { return base == nullptr ? nullptr : static_cast<char*>(base) + bytes; }

// The types of the accumulators: f32 for the 16-bit floats; u64 for integers, whose sum wraps around and is
// right in the low bits.
float load(float x) { return x; }
double load(double x) { return x; }
float load(bf16_t x) { return to_f32(x); }
float load(f16_t x) { return to_f32(x); }
template <typename T>
requires std::is_integral_v<T> uint64_t load(T x) { return static_cast<uint64_t>(x); }

template <typename T, typename A>
T store(A a) {
  if constexpr (std::is_same_v<T, bf16_t>) {
    return to_bf16(a);
  } else if constexpr (std::is_same_v<T, f16_t>) {
    return to_f16(a);
  } else {
    return static_cast<T>(a);
  }
}

template <typename T>
void fold(const Collective& c, const void* in, int size) {
  const T* x = static_cast<const T*>(in);
  T* y = static_cast<T*>(c.out);
  for (size_t i = 0; i < c.count; ++i) {
    const auto one = load(x[i]);
    auto all = one;
    if (c.reduce == Reduce::sum) all = one * static_cast<decltype(one)>(size);
    if (c.reduce == Reduce::product)
      for (int k = 1; k < size; ++k) all *= one;
    if (c.accumulate) all += load(y[i]);
    y[i] = store<T>(all);
  }
}

// `in` and c.out hold c.count elements here.
void reduce_own(const Collective& c, const void* in, int size) {
  const bool alone = size == 1 || (c.reduce != Reduce::sum && c.reduce != Reduce::product);
  if (alone && !c.accumulate) return move(c.out, in, c.count * item_bytes(c.dtype));
  if (in == nullptr || c.out == nullptr) return;
  switch (c.dtype) {
    case DType::f32: return fold<float>(c, in, size);
    case DType::f64: return fold<double>(c, in, size);
    case DType::bf16: return fold<bf16_t>(c, in, size);
    case DType::f16: return fold<f16_t>(c, in, size);
    case DType::i64: return fold<int64_t>(c, in, size);
    case DType::i32: return fold<int32_t>(c, in, size);
    case DType::u8: return fold<uint8_t>(c, in, size);
    case DType::i8:
    case DType::i16:
    case DType::u16:
    case DType::u32:
    case DType::u64:
    case DType::c64:
    case DType::c128:
    case DType::boolean:
    case DType::f8_e4m3:
    case DType::f8_e5m2: break;
  }
  fail(Code::internal, "reduction of ", name(c.dtype), " passed the checks");
}

size_t start(const Collective& c, int rank) {
  if (c.counts == nullptr) return c.count * static_cast<size_t>(rank);
  return std::accumulate(c.counts, c.counts + rank, size_t{0});
}

// Copies the caller's input into every slot. A smaller slot gets the first elements; the rest of
// a larger one stays as it is.
void fill_slots(const Collective& c, const void* in, size_t in_elements, const size_t* slots, int size) {
  const size_t item = item_bytes(c.dtype);
  size_t offset = 0;
  for (int i = 0; i < size; ++i) {
    const size_t slot = slots == nullptr ? c.count : slots[i];
    move(at(c.out, offset * item), in, (slot < in_elements ? slot : in_elements) * item);
    offset += slot;
  }
}

}  // namespace

void act_on_own_data(const Collective& c, int rank, int size) {
  const size_t item = item_bytes(c.dtype);
  switch (c.op) {
    case CollectiveOp::barrier:
    case CollectiveOp::send:
    case CollectiveOp::recv: return;
    case CollectiveOp::all_reduce: return reduce_own(c, c.in, size);
    case CollectiveOp::reduce:
      if (c.peer == rank) reduce_own(c, c.in, size);
      return;
    case CollectiveOp::reduce_scatter: {
      Collective own = c;
      own.count = count_of(c, rank);
      own.counts = nullptr;
      return reduce_own(own, at(c.in, start(c, rank) * item), size);
    }
    case CollectiveOp::broadcast: return move(c.out, c.in, c.count * item);
    case CollectiveOp::all_gather: return fill_slots(c, c.in, count_of(c, rank), c.counts, size);
    case CollectiveOp::gather:
      if (c.peer == rank) fill_slots(c, c.in, count_of(c, rank), c.counts, size);
      return;
    case CollectiveOp::scatter: return move(c.out, at(c.in, start(c, rank) * item), count_of(c, rank) * item);
    case CollectiveOp::all_to_all: {
      const size_t* got = c.counts == nullptr ? nullptr : c.counts + size;
      return fill_slots(c, at(c.in, start(c, rank) * item), count_of(c, rank), got, size);
    }
  }
}

uint64_t received_bytes(const Collective& c, int rank, int size) {
  const size_t item = item_bytes(c.dtype);
  const size_t peers = static_cast<size_t>(size - 1);
  const size_t out = out_count(c, rank, size) * item;
  switch (c.op) {
    case CollectiveOp::barrier:
    case CollectiveOp::send: return 0;
    case CollectiveOp::all_reduce: {
      const std::vector<int64_t> bounds = balanced_bounds(static_cast<int64_t>(c.count), size);
      const size_t own =
          static_cast<size_t>(bounds[static_cast<size_t>(rank) + 1] - bounds[static_cast<size_t>(rank)]);
      return peers * own * item + (c.count - own) * item;
    }
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::reduce: return peers * out;
    case CollectiveOp::all_gather: return out - count_of(c, rank) * item;
    case CollectiveOp::gather: return out == 0 ? 0 : out - count_of(c, rank) * item;
    case CollectiveOp::broadcast:
    case CollectiveOp::scatter:
    case CollectiveOp::recv: return c.peer == rank ? 0 : out;
    case CollectiveOp::all_to_all:
      return out - (c.counts == nullptr ? c.count : c.counts[size + rank]) * item;
  }
  return 0;
}

}  // namespace gangway
