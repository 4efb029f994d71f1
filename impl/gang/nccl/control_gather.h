// Small values that the ranks of a gang tell one another over its control engine.
//
// Thread rule: calls of the control engine, which are collective.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gang/engine.h"

namespace gangway::nccl {

// Returns the bytes of every rank, in rank order.
std::vector<uint8_t> gather(Engine& control, Stream& host_stream, std::span<const uint8_t> mine);
// Returns which of the facts, of which 0 means no, hold on every rank.
std::vector<bool> on_all_ranks(Engine& control, Stream& host_stream, std::span<const uint8_t> facts);

}  // namespace gangway::nccl
