// Divides a collective into pieces that go straight from rank to rank, and the arithmetic between them. Sums
// are left folds in rank order over the ranks' own inputs, with the kernels of the host engine, so a result
// has the bits that the host engine gives.
//
// | op                    | what goes from rank to rank                                                  |
// |-----------------------|------------------------------------------------------------------------------|
// | all_reduce, short     | every rank's input to every other, which folds all of them                   |
// | all_reduce, long      | slice r of every input to rank r, which folds it and sends the result to all |
// | reduce_scatter        | part r of every input to rank r                                              |
// | reduce                | every input to the root                                                      |
// | all others            | each block once to each rank that wants it, straight into its output         |
//
// A rank's peers are those that it exchanges pieces with, or all where some rank exchanges none.
//
// Long calls of a gang with several ranks on a host cross between hosts as little as they can
// (host_pieces.h).
//
// Thread rule: pure functions over one rank's memory.
#pragma once

#include "gang/network/topology.h"
#include "gang/network/transfer.h"

namespace gangway::network {

// Returns the transfer of one record, without its key and its sequence. Copies what this rank sends to itself.
// The caller's counts are read before it returns.
TransferPtr plan_transfer(const Collective& c, int rank, const Topology& topology);

}  // namespace gangway::network
