#include "gpu_emulation/communicator.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu_emulation/emulator.h"
#include "gpu_emulation/reduce.h"
#include "gpu_emulation/segment.h"
#include "gpu_emulation/state.h"

namespace gpu_emulation {
namespace {

// Returns the number of items in a rank's input.
size_t inputs(const Call& call, int size) {
  return call.op == Op::reduce_scatter ? call.count * static_cast<size_t>(size) : call.count;
}
// Hosts of tests are network namespaces.
uint64_t own_host() {
  struct stat facts {};
  return stat("/proc/self/ns/net", &facts) == 0 ? facts.st_ino : 0;
}
char* at(const void* data, size_t items, ncclDataType_t type) {
  return static_cast<char*>(const_cast<void*>(data)) + items * bytes_of(type);
}

}  // namespace

Member::Member(std::shared_ptr<Segment> segment, int rank, int device)
    : segment_(std::move(segment)), rank_(rank), device_(device) {}
Member::~Member() { segment_->forget(); }

uint64_t Member::id() const { return segment_->id(); }
int Member::size() const { return segment_->size(); }
bool Member::broken() const { return segment_->broken(); }

ncclResult_t Member::sit_down() {
  const uint64_t host = own_host();
  segment_->seat(rank_).host = host;  // before the device, which tells the others that this rank has joined
  int free = 0;
  if (!segment_->seat(rank_).device.compare_exchange_strong(free, device_ + 1)) return ncclInvalidUsage;
  for (int r = 0; r < segment_->size(); ++r) {
    if (r == rank_ || segment_->seat(r).device != device_ + 1 || segment_->seat(r).host != host) continue;
    segment_->seat(rank_).device = 0;
    refuse(cudaErrorInvalidValue, "NCCL: two ranks of a communicator on one device");
    return ncclInvalidUsage;
  }
  return ncclInProgress;
}
bool Member::all_joined() const {
  for (int r = 0; r < segment_->size(); ++r)
    if (segment_->seat(r).device == 0) return false;
  return true;
}
bool Member::on_one_host() const {
  for (int r = 0; r < segment_->size(); ++r)
    if (segment_->seat(r).host != segment_->seat(rank_).host) return false;
  return true;
}

void Member::abort() {
  aborted_ = true;
  leave();
}
void Member::stop_link(bool told) {
  told_ = told;
  stopped_ = true;
}
void Member::mend_link() {
  told_ = stopped_ = false;
  segment_->changed();
}
void Member::leave() {
  segment_->seat(rank_).left = true;
  segment_->changed();
}
bool Member::all_left() const {
  for (int r = 0; r < segment_->size(); ++r)
    if (!segment_->seat(r).left) return false;
  return true;
}
// The history of a rank's windows is a hash of the sizes that it registered and the numbers that it
// deregistered.
uint64_t Member::add_window(size_t bytes, int flags) {
  const uint64_t facts = static_cast<uint64_t>(bytes) * 4 + static_cast<uint64_t>(flags);
  window_history_ = (window_history_ ^ facts) * 0x100000001b3;
  Seat& mine = segment_->seat(rank_);
  mine.window_histories[windows_ % kMostWindows] = window_history_;
  mine.windows = ++windows_;
  segment_->changed();
  return windows_;
}
void Member::remove_window(uint64_t number) { window_history_ = (window_history_ ^ ~number) * 0x100000001b3; }
bool Member::all_have_windows() {
  for (int r = 0; r < segment_->size(); ++r)
    if (segment_->seat(r).windows < windows_) return false;
  for (; compared_windows_ < windows_; ++compared_windows_)
    for (int r = 0; r < segment_->size(); ++r) {
      const size_t at = compared_windows_ % kMostWindows;
      if (segment_->seat(r).window_histories[at] == segment_->seat(rank_).window_histories[at]) continue;
      fault("ranks " + std::to_string(std::min(r, rank_)) + " and " + std::to_string(std::max(r, rank_)) +
            " register windows of different sizes or in different orders");
    }
  return true;
}

void Member::fault(const std::string& words) {
  keep_fault(device_, {cudaErrorLaunchFailure, "NCCL: " + words});
  segment_->set_broken();
}

// Waits until happened() is true. Returns false if the communicator was aborted or is broken.
template <typename Happened>
bool Member::wait(Happened&& happened) {
  for (;;) {
    const uint32_t seen = segment_->changes();
    if (aborted_ || broken()) return false;
    if (happened()) return true;
    segment_->sleep(seen);
  }
}

void Member::run(uint64_t launch, const std::vector<Call>& pairs, const std::vector<Meeting>& meetings) {
  if (!wait([&] { return next_launch_ == launch && !stopped_; })) return;
  exchange(pairs);
  for (const Meeting& meeting : meetings) meet(meeting);
  next_launch_ = launch + 1;
  segment_->changed();
}

void Member::meet(const Meeting& meeting) {
  const Call& call = meeting.call;
  const size_t all = inputs(call, segment_->size()), most = kSlot / bytes_of(call.type);
  for (size_t first = 0; first == 0 || first < all; first += most) {
    const size_t count = std::min(most, all - first);
    if (!stage(meeting, first, count) || !all_came(meeting)) return;
    take(call, first, count);
    ++segment_->seat(rank_).read;
    segment_->changed();
  }
}

// Waits until all ranks have read the chunk before, and then puts a chunk of the input into this rank's slot.
bool Member::stage(const Meeting& meeting, size_t first, size_t count) {
  Seat& mine = segment_->seat(rank_);
  const auto all_read = [&] {
    for (int r = 0; r < segment_->size(); ++r)
      if (segment_->seat(r).read < mine.staged) return false;
    return true;
  };
  if (!wait(all_read)) return false;
  const Call& call = meeting.call;
  const bool gives = call.op != Op::broadcast || rank_ == call.peer;
  if (gives && count > 0)
    std::memcpy(segment_->slot(rank_), at(call.in, first, call.type), count * bytes_of(call.type));
  Notice& notice = mine.notice;
  notice.op = static_cast<int>(call.op);
  notice.type = call.type;
  notice.reduce = call.reduce;
  notice.root = call.peer;
  notice.count = call.count;
  notice.in_place = call.in_place;
  notice.out_place = call.out_place;
  notice.others = static_cast<int>(std::min(meeting.others.size(), static_cast<size_t>(kMostLaunches)));
  std::copy_n(meeting.others.begin(), notice.others, notice.launches);
  ++mine.staged;
  segment_->changed();
  return true;
}

// Waits until all ranks have put their chunks into their slots. If one called something else, keeps a fault
// and returns false.
bool Member::all_came(const Meeting& meeting) {
  const uint64_t stages = segment_->seat(rank_).staged;
  for (int r = 0; r < segment_->size(); ++r) {
    if (!wait([&] { return segment_->seat(r).staged >= stages; })) return false;
    const std::string words = difference(meeting, r);
    if (words.empty()) continue;
    fault(words);
    return false;
  }
  return true;
}

std::string Member::difference(const Meeting& meeting, int rank) const {
  const Seat& seat = segment_->seat(rank);
  const Notice& notice = seat.notice;
  const Call& call = meeting.call;
  const auto both = [](const char* who, int a, int b) {
    return std::string(who) + std::to_string(std::min(a, b)) + " and " + std::to_string(std::max(a, b));
  };
  if (notice.op != static_cast<int>(call.op) || notice.count != call.count || notice.type != call.type ||
      notice.root != call.peer || notice.reduce != call.reduce)
    return both("ranks ", rank, rank_) + " call different collectives";
  if (notice.in_place != call.in_place || notice.out_place != call.out_place)
    return both("ranks ", rank, rank_) + " pass buffers at different places of their registered memory";
  for (const Launches& mine : meeting.others)
    for (int i = 0; i < notice.others; ++i)
      if (notice.launches[i].communicator == mine.communicator && notice.launches[i].count != mine.count)
        return both("devices ", seat.device - 1, device_) + " launch their communicators in different orders";
  return {};
}

// Computes the output from items [first, first + count) of all inputs, which are in the slots. It may
// overwrite this rank's input up to these items.
void Member::take(const Call& call, size_t first, size_t count) {
  const auto items = [&](int rank, size_t skip) { return at(segment_->slot(rank), skip, call.type); };
  const auto copy = [&](size_t to, int rank) {
    if (count > 0) std::memcpy(at(call.out, to, call.type), items(rank, 0), count * bytes_of(call.type));
  };
  const auto sum = [&](size_t to, size_t skip, size_t n) {
    std::vector<const void*> in;
    for (int r = 0; r < segment_->size(); ++r) in.push_back(items(r, skip));
    reduce(call.type, call.reduce, in, at(call.out, to, call.type), n);
  };
  // Of n items, whose ring ends at rank `last`.
  const auto sum_in_ring = [&](size_t to, size_t skip, size_t n, int last) {
    std::vector<const void*> in;
    for (int r = 1; r <= segment_->size(); ++r) in.push_back(items((last + r) % segment_->size(), skip));
    reduce_in_ring(call.type, call.reduce, in, at(call.out, to, call.type), n);
  };
  const bool ring = settings().ring && !call.symmetric;  // the kernels for symmetric windows sum in f32
  switch (call.op) {
    case Op::all_gather:
      for (int r = 0; r < segment_->size(); ++r) copy(static_cast<size_t>(r) * call.count + first, r);
      return;
    case Op::broadcast: return copy(first, call.peer);
    case Op::reduce_scatter: {
      const size_t mine = static_cast<size_t>(rank_) * call.count;
      const size_t from = std::max(first, mine), to = std::min(first + count, mine + call.count);
      if (from < to && ring) sum_in_ring(from - mine, from - first, to - from, rank_);
      if (from < to && !ring) sum(from - mine, from - first, to - from);
      return;
    }
    case Op::reduce:
      if (rank_ != call.peer) return;
      if (ring) return sum_in_ring(first, 0, count, call.peer);
      return sum(first, 0, count);
    default:
      if (!ring) return sum(first, 0, count);
      // An all_reduce is a reduce_scatter of as many parts as there are ranks, and an all_gather.
      const auto size = static_cast<size_t>(segment_->size()), part = (call.count + size - 1) / size;
      for (size_t i = first; i < first + count;) {
        const size_t owner = i / part, end = std::min(first + count, (owner + 1) * part);
        sum_in_ring(i, i - first, end - i, static_cast<int>(owner));
        i = end;
      }
  }
}

struct Member::Transfer {
  const Call& call;
  size_t bytes = call.count * bytes_of(call.type);
  size_t done = 0;
  bool begun = false, ended = false;

  bool shares_mailbox(const Transfer& other) const {
    return call.op == other.call.op && call.peer == other.call.peer;
  }
};

// As in NCCL, messages of one pair are ordered like the calls, and messages of different pairs move at the
// same time.
void Member::exchange(const std::vector<Call>& calls) {
  std::vector<Transfer> transfers;
  for (const Call& call : calls) transfers.push_back({call});
  const auto move_all = [&] {
    bool moved = false, ended = true;
    for (size_t i = 0; i < transfers.size(); ++i) {
      const bool waits =
          std::any_of(transfers.begin(), transfers.begin() + static_cast<std::ptrdiff_t>(i),
                      [&](const Transfer& t) { return !t.ended && t.shares_mailbox(transfers[i]); });
      if (!waits && !transfers[i].ended) moved |= move(transfers[i]);
      ended &= transfers[i].ended;
    }
    if (moved) segment_->changed();
    return ended;
  };
  wait(move_all);
}

// Returns whether a chunk moved.
bool Member::move(Transfer& transfer) {
  const bool sends = transfer.call.op == Op::send;
  const Mailbox& mailbox =
      sends ? segment_->mailbox(rank_, transfer.call.peer) : segment_->mailbox(transfer.call.peer, rank_);
  const bool full = mailbox.posted > mailbox.taken;
  if (sends) {
    const bool all_posted = transfer.begun && transfer.done == transfer.bytes;
    if (full) return false;
    transfer.ended = all_posted;
    if (!all_posted) send_chunk(transfer);
    return !all_posted;
  }
  if (!full) return false;
  receive_chunk(transfer);
  return true;
}
void Member::send_chunk(Transfer& transfer) {
  Mailbox& mailbox = segment_->mailbox(rank_, transfer.call.peer);
  const size_t chunk = std::min(kSlot, transfer.bytes - transfer.done);
  if (chunk > 0)
    std::memcpy(segment_->slot(rank_, transfer.call.peer),
                static_cast<const char*>(transfer.call.in) + transfer.done, chunk);
  transfer.done += chunk;
  transfer.begun = true;
  mailbox.bytes = transfer.bytes;
  ++mailbox.posted;
}
void Member::receive_chunk(Transfer& transfer) {
  Mailbox& mailbox = segment_->mailbox(transfer.call.peer, rank_);
  if (mailbox.bytes != transfer.bytes)
    return fault("ranks " + std::to_string(transfer.call.peer) + " and " + std::to_string(rank_) +
                 " exchange different numbers of bytes");
  const size_t chunk = std::min(kSlot, transfer.bytes - transfer.done);
  if (chunk > 0)
    std::memcpy(static_cast<char*>(transfer.call.out) + transfer.done,
                segment_->slot(transfer.call.peer, rank_), chunk);
  transfer.done += chunk;
  transfer.ended = transfer.done == transfer.bytes;
  ++mailbox.taken;
}

}  // namespace gpu_emulation
