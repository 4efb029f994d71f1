// Attention layers and blocks that share one rotary table with the other blocks of a model.
//
// Thread rule: that of the model.
#pragma once

#include <memory>

#include "nn/layers.h"
#include "nn/rope_table.h"

namespace gangway {

// Upper limit of a dim, a number of heads and similar sizes. The product of two such sizes and small factors
// fits 63 bits.
constexpr int64_t kMostWidth = INT32_MAX;

// Returns the width of one head. INVALID_ARGUMENT: a size is out of range, kv_heads does not divide heads, or
// head_dim is 0 and heads does not divide dim.
int64_t checked_head_dim(const AttentionOptions& options);

ModulePtr make_attention(const AttentionOptions& options, std::shared_ptr<RopeTable> table);
ModulePtr make_block(const BlockOptions& options, std::shared_ptr<RopeTable> table);

}  // namespace gangway
