#include "gang/begin_trace.h"

#include <chrono>
#include <cstring>

#include "gang/agreement.h"

namespace gangway {
namespace {

constexpr int kRounds = 16;

void move_time(Gang& gang, CollectiveOp op, int peer, int64_t& time) {
  Collective c;
  c.op = op;
  if (op == CollectiveOp::send)
    c.in = &time;
  else
    c.out = &time;
  c.count = 1;
  c.dtype = DType::i64;
  c.peer = peer;
  gang.run_now(Channel::control, c);
}

// Runs on rank 0 and returns how far the clock of `peer` is ahead.
int64_t measured_ahead(Gang& gang, int peer) {
  int64_t quickest = INT64_MAX, ahead = 0;
  for (int i = 0; i < kRounds; ++i) {
    int64_t theirs = 0, start = Tracer::now_ns();
    move_time(gang, CollectiveOp::send, peer, start);
    move_time(gang, CollectiveOp::recv, peer, theirs);
    const int64_t took = Tracer::now_ns() - start;
    if (took >= quickest) continue;
    quickest = took;
    ahead = theirs - (start + took / 2);
  }
  return ahead;
}

// How far this rank's steady clock is ahead of rank 0's. Ranks of one host have the same clock. Between hosts
// it is measured with the fastest of several round trips.
int64_t clock_ahead_ns(Gang& gang) {
  if (!gang.has_peers() || gang.shared_memory() != nullptr) return 0;
  std::string all(static_cast<size_t>(gang.size()) * sizeof(int64_t), '\0');
  for (int peer = 1; peer < gang.size(); ++peer) {
    if (gang.rank() == 0) {
      const int64_t ahead = measured_ahead(gang, peer);
      std::memcpy(all.data() + static_cast<size_t>(peer) * sizeof ahead, &ahead, sizeof ahead);
    }
    for (int i = 0; gang.rank() == peer && i < kRounds; ++i) {
      int64_t time = 0;
      move_time(gang, CollectiveOp::recv, 0, time);
      time = Tracer::now_ns();
      move_time(gang, CollectiveOp::send, 0, time);
    }
  }
  all = gang.agreement().broadcast_bytes(Channel::control, all, 0);
  int64_t own = 0;
  std::memcpy(&own, all.data() + static_cast<size_t>(gang.rank()) * sizeof own, sizeof own);
  return own;
}

// Returns a number that is equal on all ranks and differs from that of any other run in the same folder.
uint64_t run_number(Gang& gang) {
  const auto now = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  std::string bytes(sizeof now, '\0');
  std::memcpy(bytes.data(), &now, sizeof now);
  bytes = gang.agreement().broadcast_bytes(Channel::control, bytes, 0);
  uint64_t run = 0;
  std::memcpy(&run, bytes.data(), sizeof run);
  return run;
}

}  // namespace

void begin_trace(Gang& gang, const std::string& folder) {
  if (!gang.is_root())
    fail(Code::invalid_argument, "trace: ", gang.name(),
         " is no root gang; begin the trace on the gang that it was made of");
  const int64_t ahead = clock_ahead_ns(gang);
  const uint64_t run = run_number(gang);
  bool begun = false;
  const std::optional<Error> refusal = error_thrown_by([&] {
    if (folder.empty()) fail(Code::invalid_argument, "trace: the folder's name is empty");
    gang.owner()->tracer().begin(folder, run, gang.rank(), gang.size(), ahead);
    begun = true;
  });
  try {
    gang.agreement().agree(refusal);
  } catch (...) {
    if (begun) gang.owner()->tracer().cancel();
    throw;
  }
}

}  // namespace gangway
