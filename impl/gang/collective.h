// The record of one collective. Every communication reaches an engine as such a record.
//
// Thread rule: values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "base/dtype.h"

namespace gangway {

enum class CollectiveOp : uint8_t {
  barrier,
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
};

// The numbers are those of fairseq2.
enum class Reduce : uint8_t { none = 0, sum = 1, mean = 2, product = 3, min = 4, max = 5 };

struct OpFacts {
  const char* name;
  bool has_root = false;      // Collective::peer is its root
  bool is_pair = false;       // only two ranks take part; Collective::peer is the other one
  bool reduces = false;       // takes a Reduce
  bool takes_counts = false;  // may take Collective::counts
};
// The facts of each op, in the order of the enum; the last row is for any other number.
inline constexpr OpFacts kOpFacts[] = {
    {.name = "barrier"},
    {.name = "all_reduce", .reduces = true},
    {.name = "all_gather", .takes_counts = true},
    {.name = "reduce_scatter", .reduces = true, .takes_counts = true},
    {.name = "broadcast", .has_root = true},
    {.name = "reduce", .has_root = true, .reduces = true},
    {.name = "gather", .has_root = true, .takes_counts = true},
    {.name = "scatter", .has_root = true, .takes_counts = true},
    {.name = "all_to_all", .takes_counts = true},
    {.name = "send", .is_pair = true},
    {.name = "recv", .is_pair = true},
    {.name = "unknown"},
};
constexpr const OpFacts& facts(CollectiveOp op) noexcept {
  constexpr size_t kUnknown = std::size(kOpFacts) - 1;
  return kOpFacts[static_cast<size_t>(op) < kUnknown ? static_cast<size_t>(op) : kUnknown];
}
constexpr const char* name(CollectiveOp op) noexcept { return facts(op).name; }
const char* name(Reduce reduce) noexcept;

// An independent sequence of collectives on a gang; with NCCL, a communicator. A user's calls and the
// library's calls use different channels, so that they are never matched with each other.
enum class Channel : uint8_t {
  user,
  fsdp_gather,
  fsdp_reduce,
  replicate,
  tp,
  cp,
  control,
  pp_next,
  pp_previous
};
constexpr int kChannels = 9;
const char* name(Channel channel) noexcept;

// The meaning of `count` and the sizes of the buffers. W is the size of the gang; elements are of `dtype`.
//
// | op             | in               | out              | count    | counts (when not null)                |
// |----------------|------------------|------------------|----------|---------------------------------------|
// | barrier        | -                | -                | 0        | -                                     |
// | all_reduce     | count            | count            | elements | -                                     |
// | all_gather     | count            | W * count        | per rank | W: of each rank; packed in out        |
// | reduce_scatter | W * count        | count            | per rank | W: of each rank; packed in in         |
// | broadcast      | count (root)     | count (all)      | elements | -                                     |
// | reduce         | count            | count (root)     | elements | -                                     |
// | gather         | count            | W * count (root) | per rank | W: of each rank; packed in out        |
// | scatter        | W * count (root) | count            | per rank | W: of each rank; packed in in         |
// | all_to_all     | W * count        | W * count        | per peer | 2 W: sent to each, then got from each |
// | send / recv    | count / -        | - / count        | elements | -                                     |
//
// A call is in place if in == out (all_reduce, broadcast, reduce), in == out + rank * count (all_gather,
// gather), or out == in + rank * count (reduce_scatter, scatter); with counts, the packed offsets take the
// place of rank * count. Any other overlap is refused.
//
// A reduction is a left fold in rank order with an f32 accumulator (f64 for f64; i64 for SUM of integers,
// which wraps in its own type). Over NCCL it is less precise (nccl/nccl_engine.h). MEAN divides the sum by W.
// `accumulate` means out += result; only floating all_reduce, reduce_scatter and reduce take it.
struct Collective {
  CollectiveOp op = CollectiveOp::barrier;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  const size_t* counts = nullptr;  // run() reads it before it returns
  DType dtype = DType::f32;
  Reduce reduce = Reduce::none;
  // The root of broadcast, reduce, gather and scatter; the other rank of send and recv. A rank of the gang.
  int peer = -1;
  bool accumulate = false;
  // If true, peers may go on reading `in` after this rank's output is ready, until Work::wait_input(). If
  // false, the output is ready only when no peer reads `in` any more.
  bool async_input = false;
};

inline bool is_pair(const Collective& c) { return facts(c.op).is_pair; }

// Returns the elements of one rank, where `counts` has an entry for each.
inline size_t count_of(const Collective& c, int rank) {
  return c.counts == nullptr ? c.count : c.counts[rank];
}

// Return how many elements `in` and `out` of this record have on one rank of a gang of `size` ranks.
size_t in_count(const Collective& c, int rank, int size);
size_t out_count(const Collective& c, int rank, int size);

// The memory that a collective reads and writes on one rank. Of a send or a receive: none, because the caller
// keeps the buffers of those apart from all others in flight.
struct Touched {
  const char *in = nullptr, *out = nullptr;
  size_t in_bytes = 0, out_bytes = 0;
};
Touched touched(const Collective& c, int rank, int size);
// Returns whether the order of two collectives matters: one writes what the other one reads or writes.
bool is_order_seen(const Touched& a, const Touched& b);

}  // namespace gangway
