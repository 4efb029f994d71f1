// Divides every collective into messages between single ranks, and computes the output from the messages that
// arrive. Pure functions over one rank's memory.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gang/collective.h"

namespace gangway::mpi {

// The header of every message. Both ranks of a message must have equal headers.
struct Head {
  uint64_t sequence = 0, count = 0;
  uint32_t dtype = 0;
  int32_t root = -1;
  CollectiveOp op = CollectiveOp::barrier;
  Reduce reduce = Reduce::none;
  uint8_t zero[6] = {};
  bool operator==(const Head&) const = default;
};
static_assert(sizeof(Head) == 32);

Head head_of(const Collective& c, uint64_t sequence);
// Returns text such as "all_reduce #3 of rank 1 (1 f64, sum)"; `rank` is "rank 1".
std::string text_of(const Head& head, const std::string& rank);

// Every rank of a collective sends a message to every other one: at least its header, by which all learn that
// one of them made another call. carries_data: the message also has elements.
bool carries_data(const Collective& c, int from, int to);
bool sends_to(const Collective& c, int to);
bool receives_from(const Collective& c, int from);
std::string outgoing(const Collective& c, int rank, int to);  // `rank` is this rank
size_t incoming_bytes(const Collective& c, int rank, int size, int from);
// `received[r]` is what rank r has sent; received[rank] is this rank's own part. Sums are left folds in rank
// order.
void finish(const Collective& c, int rank, int size, std::span<const std::string> received);

}  // namespace gangway::mpi
