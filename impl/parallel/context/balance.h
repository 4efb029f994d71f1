// How a sequence lies over the W ranks of context parallelism, as data: it is cut in 2 W equal chunks, and rank r holds
// chunk r and chunk 2W-1-r, one after the other ("head and tail"). Under a causal mask each rank then has as many pairs
// of a query and a key that it sees as any other.
//
// Whatever runs along the sequence is split and joined by the two functions here: tokens, labels, positions, rows of a
// mask. Labels are shifted before that: the label of a chunk's last token is the first of another chunk.
//
// Thread rule: values and pure functions; split_sequence and join_sequence are work on `stream`.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ops/ops.h"

namespace gangway {

// INVALID_ARGUMENT: a whole sequence of `tokens` cannot be split over cp ranks and, with sequence parallelism, each part
// over tp ranks (1: without). It must be a multiple of lcm(2 cp, cp tp).
void check_sequence(int64_t tokens, int cp, int tp = 1);

// `count` tokens that stand together: from `local` on a rank, from `position` in the whole sequence.
struct Chunk {
  int64_t local = 0, position = 0, count = 0;
};
// Of a rank with `tokens` tokens, an even number.
std::array<Chunk, 2> chunks_of(int64_t tokens, int rank, int ranks);

// Part `rank` of `whole` along `dim` into `local`, and back into its place. Any dtype and strides.
void split_sequence(Ops& ops, const Tensor& whole, const Tensor& local, int dim, int rank, int ranks,
                    Stream& stream);
void join_sequence(Ops& ops, const Tensor& local, const Tensor& whole, int dim, int rank, int ranks,
                   Stream& stream);

// One step of a ring, in which keys and values move to the next rank after each step. The queries from `first_query` on
// attend to the keys below `last_key`, which rank `source` owns. Causal: by their places on the ranks, which are one rank
// then; otherwise each of these queries sees each of these keys.
struct RingStep {
  int source = 0;
  int64_t first_query = 0, last_key = 0;
  bool causal = false;
};
RingStep ring_step(int step, int64_t tokens, bool causal, int rank, int ranks);

}  // namespace gangway
