// all_reduce, reduce and reduce_scatter. Whatever the path, every element is a left fold in rank order,
// rounded once to its type, so that all paths and all ranks have the same bits.
//
// Small: each receiver folds everything itself. In place: each rank folds one part and stores it into every
// receiver's output. Rounds (some tensor is outside the arena): each rank folds one part of each chunk into
// its staging area, then the receivers fetch the parts. Of two ranks each could as well fold whole chunks, which
// saves the second meeting, but a rank then reads and writes a quarter more.
#include <algorithm>
#include <array>
#include <cstring>

#include "gang/host/calls.h"
#include "gang/host/core.h"
#include "gang/host/fold.h"

namespace gangway::host {
namespace {

// Counts a move into other ranks' memory while it goes on.
class Writing {
 public:
  explicit Writing(std::atomic<uint32_t>& count) : count_(count) {
    count_.fetch_add(1, std::memory_order_seq_cst);
  }
  ~Writing() { count_.fetch_sub(1, std::memory_order_release); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  std::atomic<uint32_t>& count_;
};

constexpr size_t kFoldBlock = 16 << 10;  // bytes folded at a time when the result goes to more than one place
constexpr size_t kStreamBlock = 2 << 10;  // past the caches: reads go on while the last block's writes drain

using Inputs = std::array<const void*, kMaxRanks>;

// How a result is written: added, past the caches, or neither.
struct Delivery {
  bool accumulate = false, streams = false;
};

// out (+)= result, `count` elements.
void deliver(void* out, const void* result, size_t count, DType dtype, Delivery how) {
  if (how.accumulate) return fold_kernels().add(out, result, count, dtype);
  (how.streams ? stream_bytes : copy_bytes)(out, result, count * item_bytes(dtype));
}

FoldArgs fold_of(const Op& op, const Inputs& inputs, int ranks) {
  FoldArgs args;
  args.in = inputs.data();
  args.ranks = ranks;
  args.dtype = op.c.dtype;
  args.reduce = op.c.reduce;
  return args;
}

// Folds `count` elements into `out`, which may overlap an input, block by block.
void fold_to(FoldArgs args, size_t count, unsigned char* out, bool overlaps, Delivery how) {
  const size_t item = item_bytes(args.dtype);
  if (!overlaps && !how.accumulate && !how.streams) {
    args.count = count;
    args.out = out;
    return fold_kernels().fold(args);
  }
  alignas(kLine) unsigned char result[kFoldBlock];
  const size_t start = args.first;
  const size_t block = (how.streams ? kStreamBlock : kFoldBlock) / item;
  for (size_t at = 0; at < count; at += block) {
    args.first = start + at;
    args.count = std::min(block, count - at);
    args.out = result;
    fold_kernels().fold(args);
    deliver(out + at * item, result, args.count, args.dtype, how);
  }
}

}  // namespace

void Core::plan_reduction(Op& op) {
  const bool receiver = receives(op, rank_);
  bool direct = op.source == Source::direct && (!receiver || op.out_offset != 0);
  bool small = op.source != Source::direct && op.source != Source::staged;
  for (int r = 0; r < size_ && op.in_bytes > kInline; ++r) {
    if (r == rank_) continue;
    const Slot& slot = slot_of(op, r);
    direct = direct && slot.source == Source::direct && (!receives(op, r) || slot.out_direct);
    small = small && slot.source == Source::small;
  }
  op.drain_chunk = move_chunk(size_);
  op.drain_rounds = 1;
  if (direct) {
    op.in_place_on_peers = true;
    const size_t bytes = even_part(op.c.count, op.item, rank_, size_).count * op.item;
    op.drain_rounds = std::max<uint64_t>(1, (bytes + op.drain_chunk - 1) / op.drain_chunk);
  } else if (small) {
    op.drain_rounds = receiver ? 1 : 0;
  } else {
    op.fold_rounds = true;
    op.drain_chunk = kChunk;
    op.drain_rounds = (op.in_bytes + kChunk - 1) / kChunk;
    op.collect_rounds = receiver ? op.drain_rounds : 0;
  }
}

void Core::fold_small(Op& op) {
  Inputs inputs;
  for (int r = 0; r < size_; ++r) inputs[static_cast<size_t>(r)] = r == rank_ ? op.c.in : source_of(op, r, 0);
  traffic_.bytes_moved += op.in_bytes * static_cast<size_t>(size_ - 1);
  fold_to(fold_of(op, inputs, size_), op.c.count, static_cast<unsigned char*>(op.c.out), op.c.in == op.c.out,
          {op.c.accumulate});
}

void Core::fold_in_place(Op& op) {
  const Writing writing(member_->own().writing);
  refuse_when_closed(op);
  Part part = even_part(op.c.count, op.item, rank_, size_);
  const size_t own = part.count * op.item;
  const size_t first = op.drained * op.drain_chunk / op.item;
  part.first += first;
  part.count = std::min(part.count - first, op.drain_chunk / op.item);
  Inputs inputs;
  for (int r = 0; r < size_; ++r)
    inputs[static_cast<size_t>(r)] = r == rank_ ? op.c.in : arena_.at(slot_of(op, r).in);
  FoldArgs args = fold_of(op, inputs, size_);
  alignas(kLine) unsigned char result[kFoldBlock];
  const bool streams = op.in_bytes >= kStreamed;
  const size_t block = (op.streams ? kStreamBlock : kFoldBlock) / op.item;
  for (size_t at = 0; at < part.count; at += block) {
    args.first = part.first + at;
    args.count = std::min(block, part.count - at);
    args.out = result;
    fold_kernels().fold(args);
    for (int i = 0; i < size_; ++i) {
      const int r = (rank_ + i) % size_;
      if (!receives(op, r)) continue;
      const Slot& slot = slot_of(op, r);
      unsigned char* const out = r == rank_ ? static_cast<unsigned char*>(op.c.out) : arena_.at(slot.out);
      const Delivery how{r == rank_ ? op.c.accumulate : slot.accumulate,
                         r == rank_ ? op.streams : streams && slot.in != slot.out};
      deliver(out + args.first * op.item, result, args.count, op.c.dtype, how);
    }
  }
  if (streams) end_stream();  // also into outputs of others alone
  traffic_.bytes_moved += part.count * op.item * static_cast<size_t>(size_ - 1);
  if (op.drained == 0 && receives(op, rank_)) traffic_.bytes_moved += op.in_bytes - own;
}

void Core::fold_segment(Op& op) {
  const Part part = part_of(op, rank_);
  const size_t bytes = part.count * op.item;
  const size_t first = op.drained * op.drain_chunk;
  if (first >= bytes) return;
  const size_t n = std::min(op.drain_chunk, bytes - first);
  const auto* const own = static_cast<const unsigned char*>(op.c.in) + part.first * op.item;
  Inputs inputs;
  for (int r = 0; r < size_; ++r)
    inputs[static_cast<size_t>(r)] = r == rank_ ? own + first : source_of(op, r, part.first * op.item);
  traffic_.bytes_moved += n * static_cast<size_t>(size_ - 1);
  fold_to(fold_of(op, inputs, size_), n / op.item, static_cast<unsigned char*>(op.c.out) + first,
          own == op.c.out, {op.c.accumulate, op.streams});
}

bool Core::can_fold_round(Lane& lane, const Op& op) {
  if (!own_staging(lane, op)) return false;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const ChannelLine& peer = line(op.channel, r);
    if (slot_of(op, r).source == Source::staged &&
        peer.filled.load(std::memory_order_acquire) < progress_of(op.sequence, op.drained + 1))
      return false;
    // The result that was in this stage before is fetched.
    if (op.drained >= kStages && receives(op, r) &&
        peer.collected.load(std::memory_order_acquire) < progress_of(op.sequence, op.drained - kStages + 1))
      return false;
  }
  return true;
}

void Core::fold_round(Lane& lane, Op& op) {
  ChannelLine& mine = line(op.channel, rank_);
  if (lane.staging == 0)
    mine.staging.store(block_of(lane.staging, 2 * kStages * kChunk), std::memory_order_release);
  const size_t first = op.drained * kChunk;
  const Part part = even_part(std::min(kChunk, op.in_bytes - first) / op.item, op.item, rank_, size_);
  Inputs inputs;
  for (int r = 0; r < size_; ++r)
    inputs[static_cast<size_t>(r)] =
        r == rank_ ? static_cast<const unsigned char*>(op.c.in) + first : source_of(op, r, 0);
  FoldArgs args = fold_of(op, inputs, size_);
  unsigned char* const results = results_of(lane.staging, op.drained);
  const size_t block = kFoldBlock / op.item;
  for (size_t at = 0; at < part.count; at += block) {
    args.first = part.first + at;
    args.count = std::min(block, part.count - at);
    args.out = results + args.first * op.item;
    fold_kernels().fold(args);
    if (receives(op, rank_))
      deliver(static_cast<unsigned char*>(op.c.out) + first + args.first * op.item, args.out, args.count,
              op.c.dtype, {op.c.accumulate, op.streams});
  }
  if (op.streams) end_stream();
  traffic_.bytes_moved += part.count * op.item * static_cast<size_t>(size_ - 1);
  ++op.drained;
  announce(mine.drained, progress_of(op.sequence, op.drained));
}

bool Core::can_collect(const Op& op) const {
  if (op.collected >= op.drained) return false;
  for (int r = 0; r < size_; ++r)
    if (r != rank_ && line(op.channel, r).drained.load(std::memory_order_acquire) <
                          progress_of(op.sequence, op.collected + 1))
      return false;
  return true;
}

void Core::collect(Op& op) {
  const size_t first = op.collected * kChunk;
  const size_t count = std::min(kChunk, op.in_bytes - first) / op.item;
  for (int i = 1; i < size_; ++i) {
    const int r = (rank_ + i) % size_;
    const Part part = even_part(count, op.item, r, size_);
    const uint64_t staging = line(op.channel, r).staging.load(std::memory_order_acquire);
    const unsigned char* const results = results_of(staging, op.collected);
    deliver(static_cast<unsigned char*>(op.c.out) + first + part.first * op.item,
            results + part.first * op.item, part.count, op.c.dtype, {op.c.accumulate, op.streams});
    traffic_.bytes_moved += part.count * op.item;
  }
  if (op.streams) end_stream();
  ++op.collected;
  announce(line(op.channel, rank_).collected, progress_of(op.sequence, op.collected));
}

}  // namespace gangway::host
