// LoRA: low-rank adapters of linear layers, with PEFT's names and meaning. A layer with an adapter computes
//
//   y = x W^T + b + scale (drop(x) A^T) B^T,    A [rank, in], B [out, rank]
//
// A and B are parameters of the Linear itself (lora_A.weight, lora_B.weight), so that the tree of modules,
// which wrappers and plans refer to, stays the same. All other parameters are frozen. Hu et al., "LoRA:
// low-rank adaptation of large language models", 2021.
//
// Thread rule: that of a module.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"

namespace gangway {

struct LoraOptions {
  // Patterns of module paths (path_matches). Of the modules that they match, the linear layers get adapters,
  // except a layer whose parent computes with its weight (an lm_head). Empty: every linear layer.
  std::vector<std::string> patterns;
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;  // of an adapter's input, in training
  uint64_t seed = 0;   // of the first values of A
  bool rank_stabilized = false;

  // alpha / rank, or alpha / sqrt(rank) if it is rank-stabilised.
  double scale() const;
};

// What all adapters of one model share.
struct LoraSettings {
  LoraOptions options;
  bool enabled = true;  // false: forward leaves the adapters out
};

// Gives the linear layers below `root` adapters and freezes every other parameter. B begins as zeros. Element
// i of A begins as (2 u - 1) / sqrt(in), where u is philox_uniform(philox_key(seed, name of A), i); that is
// the distribution of PEFT (kaiming_uniform with a = sqrt(5)). Before the parameters have memory.
// INVALID_ARGUMENT: an option, or a pattern that matches no layer which can have an adapter. NOT_FOUND:
// nothing matches a pattern. INVALID_STATE: there are adapters already.
void apply_lora(const ModulePtr& root, const LoraOptions& options);

bool is_adapter(const Parameter& parameter);

// One layer with an adapter.
struct LoraLayer {
  std::string prefix;  // of the names of its parameters: "model.layers.0.self_attn.q_proj."
  ParameterPtr weight, a, b;
};
// Returns the layers with adapters, in the order of `parameters`, which are those of a whole model.
std::vector<LoraLayer> lora_layers(const std::vector<NamedParameter>& parameters);

// Returns what the adapters among `parameters` share; null: there are none.
std::shared_ptr<LoraSettings> lora_settings(const std::vector<NamedParameter>& parameters);

}  // namespace gangway
