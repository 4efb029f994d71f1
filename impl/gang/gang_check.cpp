// Every check of a collective's record, before anything moves.
#include "gang/gang.h"

#include <cstdint>

#include "gang/read_only.h"

namespace gangway {
namespace {

template <typename... Parts>
[[noreturn]] void refuse(const Collective& c, const Parts&... parts) {
  fail(Code::invalid_argument, "gang.", name(c.op), ": ", parts...);
}

void check_op(const Collective& c) {
  if (static_cast<int>(c.op) > static_cast<int>(CollectiveOp::recv))
    fail(Code::invalid_argument, "gang.run: op ", static_cast<int>(c.op), " is unknown (0 to ",
         static_cast<int>(CollectiveOp::recv), ")");
}

void check_barrier(const Collective& c) {
  if (c.count != 0) refuse(c, "a barrier moves nothing, but count is ", c.count);
  if (c.counts != nullptr) refuse(c, "takes one count, not counts per rank");
}

void check_dtype(const Collective& c) {
  if (!facts(c.op).reduces) {
    if (!is_movable(c.dtype))
      refuse(c, name(c.dtype), " cannot be moved: it must have one lane and a whole number of bytes");
    if (c.reduce != Reduce::none) refuse(c, "takes no reduce operation, but got ", name(c.reduce));
    if (c.accumulate) refuse(c, "accumulates nothing; only all_reduce, reduce and reduce_scatter do");
    return;
  }
  const int number = static_cast<int>(c.reduce);
  if (c.reduce == Reduce::none) refuse(c, "needs a reduce operation, but got none");
  if (number > static_cast<int>(Reduce::max)) refuse(c, "reduce operation ", number, " is unknown (1 to 5)");
  if (!is_reducible(c.dtype))
    refuse(c, name(c.dtype), " cannot be reduced (f64, f32, bf16, f16, i64, i32, u8; bool by min and max)");
  if (c.dtype == DType::boolean && c.reduce != Reduce::min && c.reduce != Reduce::max)
    refuse(c, "bool takes min and max only, but got ", name(c.reduce));
  if (c.reduce == Reduce::mean && !is_floating(c.dtype))
    refuse(c, "mean of the integer type ", name(c.dtype));
  if (c.accumulate && !is_floating(c.dtype))
    refuse(c, "accumulates floating types only, not ", name(c.dtype));
}

void check_peer(const Collective& c, int size) {
  const bool pair = is_pair(c);
  if (!pair && !facts(c.op).has_root) return;
  if (c.peer < 0 || c.peer >= size)
    refuse(c, pair ? "peer rank " : "source rank ", c.peer, " is outside [0, ", size, ")");
}

// Refuses sums of counts and bytes that do not fit ptrdiff_t.
void check_counts(const Collective& c, int rank, int size) {
  constexpr size_t kSurelyFits =
      size_t{1}  // Times 2^31 ranks and 16 bytes this still fits, and a small call needs no
      // division.
      << 27;
  if (c.counts == nullptr && c.count < kSurelyFits) return;
  const size_t limit =
      static_cast<size_t>(PTRDIFF_MAX) / (item_bytes(c.dtype) == 0 ? 1 : item_bytes(c.dtype));
  const size_t ranks = static_cast<size_t>(size);
  if (c.counts == nullptr) {
    const size_t times = facts(c.op).takes_counts ? ranks : 1;
    if (c.count > limit / times)
      refuse(c, c.count, " ", name(c.dtype), " times ", times, " are more bytes than an address holds");
    return;
  }
  if (!facts(c.op).takes_counts) refuse(c, "takes one count, not counts per rank");
  const size_t lists = c.op == CollectiveOp::all_to_all ? 2 : 1;
  for (size_t list = 0; list < lists; ++list) {
    size_t sum = 0;
    for (size_t i = 0; i < ranks; ++i) {
      if (c.counts[list * ranks + i] > limit - sum)
        refuse(c, "counts up to rank ", i, " are more bytes than an address holds");
      sum += c.counts[list * ranks + i];
    }
  }
  const size_t sent = c.counts[rank], got = c.counts[(lists - 1) * ranks + static_cast<size_t>(rank)];
  if (sent != got) refuse(c, "rank ", rank, " sends itself ", sent, " elements, but expects ", got);
}

size_t own_offset(const Collective& c, int rank) {
  if (c.counts == nullptr) return c.count * static_cast<size_t>(rank);
  size_t sum = 0;
  for (int i = 0; i < rank; ++i) sum += c.counts[i];
  return sum;
}

bool in_place(const Collective& c, int rank) {
  const auto in = reinterpret_cast<uintptr_t>(c.in), out = reinterpret_cast<uintptr_t>(c.out);
  const uintptr_t own = own_offset(c, rank) * item_bytes(c.dtype);
  switch (c.op) {
    case CollectiveOp::all_reduce:
    case CollectiveOp::reduce: return in == out && !c.accumulate;
    case CollectiveOp::broadcast: return in == out;
    case CollectiveOp::all_gather:
    case CollectiveOp::gather: return in == out + own;
    case CollectiveOp::reduce_scatter: return out == in + own && !c.accumulate;
    case CollectiveOp::scatter: return out == in + own;
    case CollectiveOp::barrier:
    case CollectiveOp::all_to_all:
    case CollectiveOp::send:
    case CollectiveOp::recv: return false;
  }
  return false;
}

void check_buffers(const Collective& c, int rank, int size, Device& device) {
  const size_t out_elements = out_count(c, rank, size), item = item_bytes(c.dtype);
  const bool writes =
      out_elements != 0 && !(c.op == CollectiveOp::broadcast && c.peer == rank && c.in == c.out);
  if (writes && is_read_only(c.out, out_elements * item))
    refuse(c, "the output is read-only memory that ranks share (a full value of a shard group): pass a copy");
  if (c.in != nullptr && c.out != nullptr && in_place(c, rank)) return;
  const size_t in_elements = in_count(c, rank, size);
  const auto has_memory = [&] { return device.kind() != DeviceKind::meta; };
  if (in_elements != 0 && c.in == nullptr && has_memory())
    refuse(c, "the input is null, but ", in_elements, " ", name(c.dtype), " are wanted");
  if (out_elements != 0 && c.out == nullptr && has_memory())
    refuse(c, "the output is null, but ", out_elements, " ", name(c.dtype), " are wanted");
  if (in_elements == 0 || out_elements == 0 || c.in == nullptr || c.out == nullptr) return;
  const auto in = reinterpret_cast<uintptr_t>(c.in), out = reinterpret_cast<uintptr_t>(c.out);
  const bool overlap = in < out + out_elements * item && out < in + in_elements * item;
  if (!overlap) return;
  if (c.accumulate) refuse(c, "an accumulating call needs an output apart from its input");
  const int64_t distance = static_cast<int64_t>(out - in);
  if (c.op == CollectiveOp::all_to_all)
    refuse(c, "has no in-place form; the output starts ", distance, " bytes from the input and overlaps it");
  refuse(c, "the output starts ", distance,
         " bytes from the input and overlaps it in another way than the in-place form");
}

// Checks that the device can access a caller's memory. Memory that the library itself passes needs no check.
void check_reach(const Collective& c, int rank, int size, const Device& device) {
  const auto look = [&](const char* what, const void* data, size_t elements) {
    if (elements != 0 && data != nullptr && !device.reaches(data))
      refuse(c, "the ", what, " is plain memory of the host or another device's; the gang takes memory of ",
             device.name());
  };
  look("input", c.in, in_count(c, rank, size));
  look("output", c.out, out_count(c, rank, size));
}

}  // namespace

void Gang::check(Channel channel, const Collective& c) const {
  check_op(c);
  if (c.op == CollectiveOp::barrier) return check_barrier(c);
  check_dtype(c);
  check_peer(c, size());
  check_counts(c, rank(), size());
  check_buffers(c, rank(), size(), device());
  if (channel == Channel::user && device().kind() == DeviceKind::cuda)
    check_reach(c, rank(), size(), device());
}

}  // namespace gangway
