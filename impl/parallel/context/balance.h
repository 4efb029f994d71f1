// How context parallelism splits a sequence over W ranks (nn/sequence_part.h). With this order a causal mask
// leaves every rank the same number of pairs of a query and a visible key.
//
// split_sequence and join_sequence are the only places that split and join whatever runs along the sequence:
// tokens, labels, positions, rows of a mask. Labels must be shifted before the split, because the label of a
// chunk's last token is the first token of another chunk.
//
// Thread rule: values and pure functions; split_sequence and join_sequence run on `stream`.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/sequence_part.h"
#include "ops/ops.h"

namespace gangway {

// INVALID_ARGUMENT: a whole sequence of `tokens` tokens cannot be split over `cp` ranks, or, with sequence
// parallelism, each part over `tp` ranks (1: no sequence parallelism). `tokens` must be a multiple of lcm(2
// cp, cp tp), or of tp when cp is 1.
void check_sequence(int64_t tokens, int cp, int tp = 1);

// split_sequence copies the part of `rank` from `whole` into `local`, split along `dim`; join_sequence copies
// it back to its place in `whole`. Any dtype and any strides are allowed.
void split_sequence(Ops& ops, const Tensor& whole, const Tensor& local, int dim, int rank, int ranks,
                    Stream& stream);
void join_sequence(Ops& ops, const Tensor& local, const Tensor& whole, int dim, int rank, int ranks,
                   Stream& stream);

// One step of ring attention without ranges of keys, in which keys and values move on to the next rank after
// each step. The queries from `first_query` on attend to the keys before `last_key`, which belong to rank
// `source`. `causal` is true only in the step on this rank's own keys; the causal mask then compares local
// positions of queries and keys. Otherwise each of these queries sees each of these keys.
struct RingStep {
  int source = 0;
  int64_t first_query = 0, last_key = 0;
  bool causal = false;
};
RingStep ring_step(int step, int64_t tokens, bool causal, int rank, int ranks);

}  // namespace gangway
