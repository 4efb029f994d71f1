#include "gang/mpi/messages.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"

namespace gangway::mpi {
namespace {

bool is_split(CollectiveOp op) {
  return op == CollectiveOp::reduce_scatter || op == CollectiveOp::scatter || op == CollectiveOp::all_to_all;
}

size_t part(const Collective& c, const size_t* counts, int rank) {
  return counts == nullptr ? c.count : counts[rank];
}

size_t offset(const Collective& c, const size_t* counts, int rank) {
  if (counts == nullptr) return c.count * static_cast<size_t>(rank) * item_bytes(c.dtype);
  return std::accumulate(counts, counts + rank, size_t{0}) * item_bytes(c.dtype);
}

}  // namespace

bool carries_data(const Collective& c, int from, int to) {
  switch (c.op) {
    case CollectiveOp::broadcast:
    case CollectiveOp::scatter:
    case CollectiveOp::recv: return from == c.peer;
    case CollectiveOp::reduce:
    case CollectiveOp::gather:
    case CollectiveOp::send: return to == c.peer;
    case CollectiveOp::barrier:
    case CollectiveOp::all_reduce:
    case CollectiveOp::all_gather:
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::all_to_all: return true;
  }
  return false;
}

namespace {

// The number of elements that arrive from each rank.
const size_t* incoming_counts(const Collective& c, int size) {
  return c.op == CollectiveOp::all_to_all && c.counts != nullptr ? c.counts + size : c.counts;
}

template <typename T>
T folded(T a, T b, Reduce reduce) {
  switch (reduce) {
    case Reduce::sum: return static_cast<T>(a + b);
    case Reduce::product: return static_cast<T>(a * b);
    case Reduce::min: return std::min(a, b);
    case Reduce::max: return std::max(a, b);
    case Reduce::none:
    case Reduce::mean: break;
  }
  return a;
}

template <typename T>
void fold(const Collective& c, std::span<const std::string> received) {
  std::string all = received[0];
  const size_t count = all.size() / sizeof(T);
  for (size_t r = 1; r < received.size(); ++r)
    for (size_t i = 0; i < count; ++i) {
      T a, b;
      std::memcpy(&a, all.data() + i * sizeof(T), sizeof(T));
      std::memcpy(&b, received[r].data() + i * sizeof(T), sizeof(T));
      a = folded(a, b, c.reduce);
      std::memcpy(all.data() + i * sizeof(T), &a, sizeof(T));
    }
  if (!all.empty()) std::memcpy(c.out, all.data(), all.size());
}

void fold_any(const Collective& c, std::span<const std::string> received) {
  if (c.dtype == DType::f64) return fold<double>(c, received);
  if (c.dtype == DType::f32) return fold<float>(c, received);
  if (c.dtype == DType::i64) return fold<int64_t>(c, received);
  if (c.dtype == DType::i32) return fold<int32_t>(c, received);
  return fold<uint8_t>(c, received);
}

}  // namespace

Head head_of(const Collective& c, uint64_t sequence) {
  Head head;
  head.sequence = sequence;
  head.count = c.counts == nullptr ? c.count : 0;
  head.dtype = static_cast<uint32_t>(c.dtype);
  head.root = facts(c.op).has_root ? c.peer : -1;
  // A send and its receive have equal headers.
  head.op = c.op == CollectiveOp::recv ? CollectiveOp::send : c.op;
  head.reduce = c.reduce;
  return head;
}

std::string text_of(const Head& head, const std::string& rank) {
  return text(name(head.op), " #", head.sequence, " of ", rank, " (", head.count, " ",
              name(static_cast<DType>(head.dtype)),
              head.reduce == Reduce::none ? "" : text(", ", name(head.reduce)),
              head.root < 0 ? "" : text(", root ", head.root), ")");
}

bool sends_to(const Collective& c, int to) {
  if (is_pair(c)) return c.op == CollectiveOp::send && to == c.peer;
  return true;
}

bool receives_from(const Collective& c, int from) {
  if (is_pair(c)) return c.op == CollectiveOp::recv && from == c.peer;
  return true;
}

std::string outgoing(const Collective& c, int rank, int to) {
  if (c.op == CollectiveOp::barrier || !carries_data(c, rank, to)) return {};
  const char* const in = static_cast<const char*>(c.in);
  const size_t item = item_bytes(c.dtype);
  if (is_split(c.op)) return {in + offset(c, c.counts, to), part(c, c.counts, to) * item};
  const bool gathers = c.op == CollectiveOp::all_gather || c.op == CollectiveOp::gather;
  return {in, (gathers ? part(c, c.counts, rank) : c.count) * item};
}

size_t incoming_bytes(const Collective& c, int rank, int size, int from) {
  const size_t item = item_bytes(c.dtype);
  if (!carries_data(c, from, rank)) return 0;
  switch (c.op) {
    case CollectiveOp::barrier: return 0;
    case CollectiveOp::all_gather:
    case CollectiveOp::gather:
    case CollectiveOp::all_to_all: return part(c, incoming_counts(c, size), from) * item;
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::scatter: return part(c, c.counts, rank) * item;
    case CollectiveOp::all_reduce:
    case CollectiveOp::reduce:
    case CollectiveOp::broadcast:
    case CollectiveOp::send:
    case CollectiveOp::recv: return c.count * item;
  }
  return 0;
}

void finish(const Collective& c, int rank, int size, std::span<const std::string> received) {
  char* const out = static_cast<char*>(c.out);
  const auto put = [&](size_t at, int from) {
    const std::string& bytes = received[static_cast<size_t>(from)];
    if (!bytes.empty()) std::memcpy(out + at, bytes.data(), bytes.size());
  };
  switch (c.op) {
    case CollectiveOp::barrier:
    case CollectiveOp::send: return;
    case CollectiveOp::reduce:
      if (rank == c.peer) fold_any(c, received);
      return;
    case CollectiveOp::all_reduce:
    case CollectiveOp::reduce_scatter: return fold_any(c, received);
    case CollectiveOp::broadcast:
    case CollectiveOp::scatter:
    case CollectiveOp::recv: return put(0, c.peer);
    case CollectiveOp::gather:
      if (rank != c.peer) return;
      [[fallthrough]];
    case CollectiveOp::all_gather:
    case CollectiveOp::all_to_all:
      for (int r = 0; r < size; ++r) put(offset(c, incoming_counts(c, size), r), r);
      return;
  }
}

}  // namespace gangway::mpi
