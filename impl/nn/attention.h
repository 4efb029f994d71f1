// Attention and blocks that share their rotary table with the other blocks of a model.
// Thread rule: that of the model.
#pragma once

#include <memory>

#include "nn/layers.h"
#include "nn/rope_table.h"

namespace gangway {

// Of a dim, a number of heads and the like: products of two and small factors fit 63 bits.
constexpr int64_t kMostWidth = INT32_MAX;

// Width of one head; INVALID_ARGUMENT for numbers that do not divide.
int64_t checked_head_dim(const AttentionOptions& options);

ModulePtr make_attention(const AttentionOptions& options, std::shared_ptr<RopeTable> table);
ModulePtr make_block(const AttentionOptions& attention, int64_t ffn, double eps, bool mlp_bias,
                     std::shared_ptr<RopeTable> table);

}  // namespace gangway
