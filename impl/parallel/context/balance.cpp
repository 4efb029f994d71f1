#include "parallel/context/balance.h"

#include <numeric>

#include "base/error.h"

namespace gangway {

void check_sequence(int64_t tokens, int cp, int tp) {
  const int64_t unit = cp == 1 ? tp : std::lcm(int64_t{2} * cp, int64_t{cp} * tp);
  if (tokens % unit == 0) return;
  fail(Code::invalid_argument, "context parallelism: a sequence has ", tokens, " tokens; with cp ", cp,
       " and sequences split over tp ", tp, " it must be a multiple of ", unit,
       "; pad the sequences or change the degrees");
}

void split_sequence(Ops& ops, const Tensor& whole, const Tensor& local, int dim, int rank, int ranks,
                    Stream& stream) {
  for (const Chunk& c : chunks_of(local.dim(dim), rank, ranks))
    ops.cast(whole.slice(dim, c.position, c.position + c.count), local.slice(dim, c.local, c.local + c.count),
             stream);
}

void join_sequence(Ops& ops, const Tensor& local, const Tensor& whole, int dim, int rank, int ranks,
                   Stream& stream) {
  for (const Chunk& c : chunks_of(local.dim(dim), rank, ranks))
    ops.cast(local.slice(dim, c.local, c.local + c.count), whole.slice(dim, c.position, c.position + c.count),
             stream);
}

// A source s < r: its chunk s stands before both chunks of rank r, and its chunk 2W-1-s after both. A source
// s > r: both of its chunks stand after chunk r and before chunk 2W-1-r.
RingStep ring_step(int step, int64_t tokens, bool causal, int rank, int ranks) {
  const int source = (rank - step + ranks) % ranks;
  if (step == 0 || !causal) return {source, 0, tokens, causal};
  return source < rank ? RingStep{source, 0, tokens / 2, false} : RingStep{source, tokens / 2, tokens, false};
}

}  // namespace gangway
