// all_reduce, reduce: the fold of all inputs goes to every rank, or to the root. There are three paths:
//
//  small     each receiver folds all inputs itself
//  in place  each rank folds one part and stores it into every receiver's output
//  rounds    for a tensor outside of the arena: each rank folds one part of each chunk into its staging area,
//            then the receivers fetch the parts
//
// With two ranks, each could fold whole chunks instead. That would save the second synchronization, but each
// rank would read and write a quarter more.
#include "gang/host/algorithms/folding.h"
#include "gang/host/algorithms/rounds.h"
#include "gang/host/algorithms/table.h"
#include "gang/host/call/reasons.h"

namespace gangway::host {
namespace {

bool receives(const Op& op, int rank) { return op.c.op != CollectiveOp::reduce || op.c.peer == rank; }

void publish(Call& call, Slot& slot) {
  Op& op = call.op;
  if (op.in_bytes <= kInline) return;
  op.out_offset = receives(op, call.rank()) ? call.team.arena().offset_of(op.c.out, op.in_bytes) : 0;
  slot.out = op.out_offset;
  slot.out_direct = op.out_offset != 0;
}

void plan(Call& call) {
  Op& op = call.op;
  const bool receiver = receives(op, call.rank());
  op.streams = op.streams && op.c.in != op.c.out;  // an output that was just read is still in the caches
  bool direct = op.source == Source::direct && (!receiver || op.out_offset != 0);
  bool small = op.source != Source::direct && op.source != Source::staged;
  for (int r = 0; r < call.size() && op.in_bytes > kInline; ++r) {
    if (r == call.rank()) continue;
    const Slot& slot = call.slot(r);
    direct = direct && slot.source == Source::direct && (!receives(op, r) || slot.out_direct);
    small = small && slot.source == Source::small;
  }
  op.drain_chunk = move_chunk(call.size());
  op.drain.all = 1;
  if (direct) {
    op.in_place_on_peers = true;
    const size_t bytes = even_part(op.c.count, op.item, call.rank(), call.size()).count * op.item;
    op.drain.all = std::max<uint64_t>(1, rounds_of(bytes, op.drain_chunk));
  } else if (small) {
    op.drain.all = receiver ? 1 : 0;
  } else {
    op.fold_rounds = true;
    op.drain_chunk = kChunk;
    op.drain.all = rounds_of(op.in_bytes, kChunk);
    op.collect.all = receiver ? op.drain.all : 0;
  }
}

void fold_small(Call& call) {
  const Op& op = call.op;
  Inputs inputs;
  for (int r = 0; r < call.size(); ++r)
    inputs[static_cast<size_t>(r)] = r == call.rank() ? op.c.in : source_of(call, r, 0);
  call.traffic.bytes_moved += op.in_bytes * static_cast<size_t>(call.size() - 1);
  fold_to(fold_of(op, inputs, call.size()), op.c.count, static_cast<unsigned char*>(op.c.out),
          op.c.in == op.c.out, {op.c.accumulate});
}

// --- the path "in place" ---

// Counts a move into other ranks' memory for as long as it lasts.
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

// Stores a block of the result into each receiver's output, first into this rank's.
void deliver_to_all(const Call& call, const FoldArgs& args) {
  const Op& op = call.op;
  const bool streams = op.in_bytes >= kStreamed;
  for (int i = 0; i < call.size(); ++i) {
    const int r = (call.rank() + i) % call.size();
    if (!receives(op, r)) continue;
    const bool own = r == call.rank();
    const Slot& slot = call.slot(r);
    unsigned char* const out = own ? static_cast<unsigned char*>(op.c.out) : call.team.arena().at(slot.out);
    const Delivery how{own ? op.c.accumulate : slot.accumulate,
                       own ? op.streams : streams && slot.in != slot.out};
    deliver(out + args.first * op.item, args.out, args.count, op.c.dtype, how);
  }
}

void fold_in_place(Call& call) {
  const Op& op = call.op;
  const Writing writing(call.team.member().own().writing);
  refuse_when_closed(call.team, op);
  Part part = even_part(op.c.count, op.item, call.rank(), call.size());
  const size_t own = part.count * op.item;
  const size_t first = op.drain.done * op.drain_chunk / op.item;
  part.first += first;
  part.count = std::min(part.count - first, op.drain_chunk / op.item);
  Inputs inputs;
  for (int r = 0; r < call.size(); ++r)
    inputs[static_cast<size_t>(r)] = r == call.rank() ? op.c.in : call.team.arena().at(call.slot(r).in);
  FoldArgs args = fold_of(op, inputs, call.size());
  alignas(kLine) unsigned char result[kFoldBlock];
  args.out = result;
  const size_t block = (op.streams ? kStreamBlock : kFoldBlock) / op.item;
  for (size_t at = 0; at < part.count; at += block) {
    args.first = part.first + at;
    args.count = std::min(block, part.count - at);
    fold_kernels().fold(args);
    deliver_to_all(call, args);
  }
  if (op.in_bytes >= kStreamed) end_stream();  // needed even if only other ranks' outputs were written
  call.traffic.bytes_moved += part.count * op.item * static_cast<size_t>(call.size() - 1);
  if (op.drain.done == 0 && receives(op, call.rank())) call.traffic.bytes_moved += op.in_bytes - own;
}

// --- the path "rounds" ---

unsigned char* results_of(const Call& call, uint64_t chunks, int r, uint64_t round) {
  return call.team.arena().at(chunks) + kStages * kChunk + stage_at(call.slot(r).first_stage, round);
}

bool can_fold_round(Call& call) {
  const Op& op = call.op;
  if (!own_chunks(call)) return false;
  for (int r = 0; r < call.size(); ++r) {
    if (r == call.rank()) continue;
    const ChannelLine& peer = call.line(r);
    if (call.slot(r).source == Source::staged &&
        peer.filled.load(std::memory_order_acquire) < progress_of(op.sequence, op.drain.done + 1))
      return false;
    // The receivers must have fetched the result that was in this chunk before.
    if (op.drain.done >= kStages && receives(op, r) &&
        peer.collected.load(std::memory_order_acquire) <
            progress_of(op.sequence, op.drain.done - kStages + 1))
      return false;
  }
  return true;
}

void fold_round(Call& call) {
  Op& op = call.op;
  ChannelLine& mine = call.line(call.rank());
  uint64_t& chunks = op.lane->staging.chunks;
  if (chunks == 0) take_chunks(call, mine.staging);
  const size_t first = op.drain.done * kChunk;
  const Part part =
      even_part(std::min(kChunk, op.in_bytes - first) / op.item, op.item, call.rank(), call.size());
  Inputs inputs;
  for (int r = 0; r < call.size(); ++r)
    inputs[static_cast<size_t>(r)] =
        r == call.rank() ? static_cast<const unsigned char*>(op.c.in) + first : source_of(call, r, 0);
  FoldArgs args = fold_of(op, inputs, call.size());
  unsigned char* const results = results_of(call, chunks, call.rank(), op.drain.done);
  const size_t block = kFoldBlock / op.item;
  for (size_t at = 0; at < part.count; at += block) {
    args.first = part.first + at;
    args.count = std::min(block, part.count - at);
    args.out = results + args.first * op.item;
    fold_kernels().fold(args);
    if (receives(op, call.rank()))
      deliver(static_cast<unsigned char*>(op.c.out) + first + args.first * op.item, args.out, args.count,
              op.c.dtype, {op.c.accumulate, op.streams});
  }
  if (op.streams) end_stream();
  call.traffic.bytes_moved += part.count * op.item * static_cast<size_t>(call.size() - 1);
  ++op.drain.done;
  call.team.announce(mine.drained, progress_of(op.sequence, op.drain.done));
}

bool can_collect(const Call& call) {
  const Op& op = call.op;
  if (op.collect.over() || op.collect.done >= op.drain.done) return false;
  for (int r = 0; r < call.size(); ++r)
    if (r != call.rank() &&
        call.line(r).drained.load(std::memory_order_acquire) < progress_of(op.sequence, op.collect.done + 1))
      return false;
  return true;
}

void collect(Call& call) {
  Op& op = call.op;
  const size_t first = op.collect.done * kChunk;
  const size_t count = std::min(kChunk, op.in_bytes - first) / op.item;
  for (int i = 1; i < call.size(); ++i) {
    const int r = (call.rank() + i) % call.size();
    const Part part = even_part(count, op.item, r, call.size());
    const uint64_t chunks = call.line(r).staging.load(std::memory_order_acquire);
    const unsigned char* const results = results_of(call, chunks, r, op.collect.done);
    deliver(static_cast<unsigned char*>(op.c.out) + first + part.first * op.item,
            results + part.first * op.item, part.count, op.c.dtype, {op.c.accumulate, op.streams});
    call.traffic.bytes_moved += part.count * op.item;
  }
  if (op.streams) end_stream();
  ++op.collect.done;
  call.team.announce(call.line(call.rank()).collected, progress_of(op.sequence, op.collect.done));
}

bool step_rounds(Call& call) {
  bool moved = false;
  if (!call.op.drain.over() && can_fold_round(call)) {
    fold_round(call);
    moved = true;
  }
  if (can_collect(call)) {
    collect(call);
    moved = true;
  }
  return moved;
}

bool step(Call& call) {
  if (call.op.fold_rounds) return step_rounds(call);
  call.op.in_place_on_peers ? fold_in_place(call) : fold_small(call);
  end_drain_round(call);
  return true;
}

}  // namespace

const Algorithm kAllReduce{.cut = Cut::but_own, .publish = publish, .plan = plan, .step = step};
// The root folds inputs that travel in the flags. For larger ones each rank folds a part.
const Algorithm kReduce{
    .flow_of_inlined = Flow::to_root, .cut = Cut::but_own, .publish = publish, .plan = plan, .step = step};

}  // namespace gangway::host
