#include "gang/collective.h"

#include <functional>
#include <numeric>

namespace gangway {

const char* name(Reduce reduce) noexcept {
  switch (reduce) {
    case Reduce::none: return "none";
    case Reduce::sum: return "sum";
    case Reduce::mean: return "mean";
    case Reduce::product: return "product";
    case Reduce::min: return "min";
    case Reduce::max: return "max";
  }
  return "unknown";
}

const char* name(Channel channel) noexcept {
  switch (channel) {
    case Channel::user: return "user";
    case Channel::fsdp_gather: return "fsdp_gather";
    case Channel::fsdp_reduce: return "fsdp_reduce";
    case Channel::replicate: return "replicate";
    case Channel::tp: return "tp";
    case Channel::cp: return "cp";
    case Channel::control: return "control";
    case Channel::pp_next: return "pp_next";
    case Channel::pp_previous: return "pp_previous";
  }
  return "unknown";
}

namespace {

size_t whole(const Collective& c, int size) {
  if (c.counts == nullptr) return c.count * static_cast<size_t>(size);
  return std::accumulate(c.counts, c.counts + size, size_t{0});
}

}  // namespace

size_t in_count(const Collective& c, int rank, int size) {
  switch (c.op) {
    case CollectiveOp::barrier:
    case CollectiveOp::recv: return 0;
    case CollectiveOp::all_reduce:
    case CollectiveOp::reduce:
    case CollectiveOp::send: return c.count;
    case CollectiveOp::broadcast: return rank == c.peer ? c.count : 0;
    case CollectiveOp::all_gather:
    case CollectiveOp::gather: return count_of(c, rank);
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::all_to_all: return whole(c, size);
    case CollectiveOp::scatter: return rank == c.peer ? whole(c, size) : 0;
  }
  return 0;
}

size_t out_count(const Collective& c, int rank, int size) {
  switch (c.op) {
    case CollectiveOp::barrier:
    case CollectiveOp::send: return 0;
    case CollectiveOp::all_reduce:
    case CollectiveOp::broadcast:
    case CollectiveOp::recv: return c.count;
    case CollectiveOp::reduce: return rank == c.peer ? c.count : 0;
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::scatter: return count_of(c, rank);
    case CollectiveOp::all_gather: return whole(c, size);
    case CollectiveOp::gather: return rank == c.peer ? whole(c, size) : 0;
    case CollectiveOp::all_to_all:
      if (c.counts == nullptr) return whole(c, size);
      return std::accumulate(c.counts + size, c.counts + 2 * size, size_t{0});
  }
  return 0;
}

Touched touched(const Collective& c, int rank, int size) {
  if (is_pair(c)) return {};
  const size_t item = item_bytes(c.dtype);
  return {static_cast<const char*>(c.in), static_cast<const char*>(c.out), in_count(c, rank, size) * item,
          out_count(c, rank, size) * item};
}

bool is_order_seen(const Touched& a, const Touched& b) {
  const auto meet = [](const char* x, size_t x_bytes, const char* y, size_t y_bytes) {
    return x_bytes != 0 && y_bytes != 0 && std::less<>()(x, y + y_bytes) && std::less<>()(y, x + x_bytes);
  };
  return meet(a.out, a.out_bytes, b.in, b.in_bytes) || meet(a.out, a.out_bytes, b.out, b.out_bytes) ||
         meet(a.in, a.in_bytes, b.out, b.out_bytes);
}

}  // namespace gangway
